// The table of classes: search, level, metric, order; rows are added 50 at a time.
"use strict";
{
  const { levels, metrics, runs, rows } = JSON.parse(document.getElementById("classes").textContent);
  const section = document.querySelector(".classes");
  const find = (selector) => section.querySelector(selector);
  const form = find("form"), head = find("thead"), body = find("tbody"), more = find(".more");
  const STEP = 50;
  // by the first run, the worst class first: that is what a reader looks for
  let shown = STEP, order = { column: 2, rising: true };

  const add = (parent, tag, text = "", attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  };
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const haystack = new Map(rows.map((row) => [row, plain(`${row[1]} ${row[2]}`)]));
  const options = (name, texts) => texts.forEach((text, i) => add(form[name], "option", text, { value: i }));
  options("level", levels);
  options("metric", metrics);
  form.level.value = levels.length - 1;

  const cells = (row) => row[4].slice(form.metric.value * runs.length).slice(0, runs.length);
  const key = (row, column) => [row[1], row[3], ...cells(row).map((cell) => cell[0])][column];
  const number = (value) => (value === null ? "–" : value.toFixed(1));

  const compare = (a, b) => {
    const [one, other] = [key(a, order.column), key(b, order.column)];
    if (one === null || other === null) return (one === null) - (other === null); // always last
    const sign = typeof one === "string" ? one.localeCompare(other) : one - other;
    return (order.rising ? sign : -sign) || a[1].localeCompare(b[1]);
  };

  const draw = () => {
    const words = plain(form.words.value).split(/\s+/).filter(Boolean);
    const all = rows.filter((row) => row[0] === levels[form.level.value]);
    const found = all.filter((row) => words.every((word) => haystack.get(row).includes(word)));
    found.sort(compare);
    head.replaceChildren();
    const line = add(head, "tr");
    ["class", "queries", ...runs].forEach((text, column) => {
      const direction = order.rising ? "ascending" : "descending";
      const sorted = column === order.column ? direction : "none";
      const cell = add(line, "th", "", { scope: "col", "aria-sort": sorted });
      add(cell, "button", text, { type: "button" }).onclick = () => {
        order = { column, rising: column === order.column ? !order.rising : column !== 1 };
        draw();
        head.querySelectorAll("button")[column].focus();
      };
    });
    body.replaceChildren(...found.slice(0, shown).map((row) => {
      const line = document.createElement("tr");
      const name = add(line, "th", row[1], { scope: "row" });
      if (row[2]) add(name, "small", row[2].split(" > ").reverse().join(" · "));
      add(line, "td", row[3].toLocaleString("en"));
      for (const [mean, low, high] of cells(row)) {
        const cell = add(line, "td", number(mean));
        if (low !== null) add(cell, "small", `${number(low)}–${number(high)}`);
      }
      return line;
    }));
    const amount = found.length === all.length ? "" : `${found.length.toLocaleString("en")} of `;
    find("[role=status]").textContent = `${amount}${all.length.toLocaleString("en")} ${all.length === 1 ? "class" : "classes"} of the level “${levels[form.level.value]}”`;
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(STEP, found.length - shown)} more`;
  };
  more.onclick = () => { shown += STEP; draw(); };
  form.oninput = () => { shown = STEP; draw(); };
  form.onsubmit = (event) => event.preventDefault();
  draw();
}
