// The chosen value: photos, what it could be, the decision, and its cluster.

const DEEDS_SHOWN = [["keep", "K"], ["move", "m"], ["drop", "d"], ["unsure", "u"]];
const anyById = rows.some((row) => row.byId); // else values go by their labels
const DEED_COLOURS = { keep: "decided", move: "decided", drop: "dropped", unsure: "unsure" };
const live = { refresh: () => {} }; // brings the parts that a decision changes up to date

function onRefresh(work) {
  const before = live.refresh;
  live.refresh = () => {
    before();
    work();
  };
}

function drawPanel() {
  const panel = byId("panel");
  const row = selected;
  const inside = panel.contains(document.activeElement);
  live.refresh = () => {};
  if (!row) return panel.replaceChildren(make("p", { class: "empty" }, "No value is chosen."));
  const parts = [
    ...headParts(row), conflictPart(row), photoStrip(row), exampleWords(row), ...decisionParts(row),
    clusterPart(row), commentPart(row), historyPart(row), closeButton(),
  ];
  panel.replaceChildren(...parts.filter(Boolean));
  panel.scrollTop = 0;
  live.refresh();
  if (inside) byId("list").focus({ preventScroll: true }); // what had the focus is gone
}

function headParts(row) {
  const isItem = row.byId && /^Q\d+$/.test(row.key);
  const key = isItem ? link(row.key, `https://www.wikidata.org/wiki/${row.key}`) : row.key;
  const pill = make("span", { class: "pill" });
  onRefresh(() => {
    pill.className = `pill ${statusOf(row)}`;
    pill.textContent = statusOf(row);
  });
  const facts = [
    counted(row.landmarks, data.landmarks.noun), counted(row.images, "image"),
    `${percent(row[unit], total)} of all`,
  ];
  const id = row.byId ? key : anyById && "no class id";
  const line = [pill, ...(id ? [id, " · "] : []), facts.join(" · ")];
  const title = make("h2", { class: "label", title: row.label }, row.label);
  const others = row.translations.flatMap(([code, text]) => [small(`${code} `), make("span", { lang: code }, text), " "]);
  return [title, others.length ? make("p", { class: "facts" }, ...others) : null, make("p", { class: "facts" }, ...line)];
}

function photoStrip(row) {
  const photos = data.photos[row.number] || [];
  const strip = make("div", { class: "photos", hidden: !photos.length }, ...photos.map(figureOf));
  if (data.live) fetchPhotos(row, strip);
  return strip;
}

function decisionParts(row) {
  const advice = make("p", { class: "advice" });
  const deeds = DEEDS_SHOWN.map(deedButton);
  const place = makeChooser();
  const field = make("textarea", {
    id: "note", rows: "1", placeholder: "Why; an open value with a note counts as unsure",
    oninput: (event) => note(row, event.target.value),
  });
  const likely = make("div", { class: "likely", role: "group", "aria-label": "Likeliest" });
  const after = make("div", { class: "after" });
  onRefresh(() => {
    const { decision, supercategory, note: why } = now(row);
    advice.replaceChildren(...adviceWords(row));
    likely.replaceChildren(...likelyButtons(row));
    for (const deed of deeds) deed.setAttribute("aria-pressed", String(decision === deed.name));
    if (document.activeElement !== chooser.input) chooser.input.value = supercategory;
    if (document.activeElement !== field) field.value = why;
    after.replaceChildren(...afterWords(row));
  });
  const group = make("div", { class: "deeds", role: "group", "aria-label": "Decision" }, ...deeds);
  return [advice, group, likely, place, make("label", { class: "field" }, "Note", field), after];
}

function deedButton([decision, key]) {
  const word = decision[0].toUpperCase() + decision.slice(1);
  const colour = DEED_COLOURS[decision];
  const node = button(`deed ${colour}`, () => act(decision, true), word, keySign(key));
  node.name = decision;
  node.setAttribute("aria-keyshortcuts", key === "K" ? "Shift+K" : key);
  return node;
}

function adviceWords(row) {
  const parts = [];
  const advice = now(row).decision ? { name: "" } : adviceOf(row);
  const why = advice.reason && small(` ${advice.reason}`);
  if (advice.name) parts.push(span("Suggested: ", bold(adviceWord(advice)), why));
  if (row.hint && row.hint !== "ask") parts.push(span("Wikidata's classes say: ", bold(row.hint)));
  if (row.gone) parts.push(span(`No ${data.landmarks.noun} carries this value any more; its decision is kept.`));
  else if (statusOf(row) === "stale") parts.push(span("What this decision rests on has changed; look again."));
  return parts;
}

// The likeliest supercategories, which a digit chooses.
function likelyButtons(row) {
  if (!model || data.blind || now(row).decision) return [];
  const names = likeliest(row).slice(0, LIKELY);
  return names.map((name, i) => button("chip", () => takeLikely(i), keySign(String(i + 1)), name));
}

function afterWords(row) {
  const back = edits.has(row.key) ? button("chip", () => revert(row), "As it was") : null;
  const next = button("chip", advance, "Next open");
  return [span(now(row).kind), make("span", { class: "near" }, back, next)];
}

// Landmarks that no photo shows.
function exampleWords(row) {
  const shown = (data.photos[row.number] || []).map((photo) => photo.landmark);
  const names = row.examples.split("; ").filter((name) => name && !shown.includes(name));
  const head = shown.length ? "Also " : "For example ";
  const facts = { class: "examples", id: "examples", hidden: !names.length };
  return make("p", facts, head, names.join(" · "));
}

// The sides of a conflict; one of them is taken, or something else decided.
function conflictPart(row) {
  const part = make("section", { class: "sides", "aria-label": "Conflict" });
  onRefresh(() => {
    const sides = (data.history[row.number] || []).filter(([, , , , , holds]) => holds);
    part.hidden = statusOf(row) !== "conflict";
    if (part.hidden) return part.replaceChildren();
    part.replaceChildren(...sides.map(([decision, supercategory, who, when, why]) => {
      const take = () => edit([[row, complete(decision, supercategory, why)]]);
      const said = bold([decision, supercategory].filter(Boolean).join(" "));
      const about = small([who || "somebody", when, why].filter(Boolean).join(", "));
      return make("div", {}, make("p", {}, said, " ", about), button("chip", take, "Take this"));
    }));
  });
  return part;
}

// Who decided what, when and why; the newest first.
function historyPart(row) {
  const list = make("ol", { class: "history", reversed: true });
  const part = make("section", { class: "part" }, make("h3", {}, "History"), list);
  onRefresh(() => {
    const made = data.history[row.number] || [];
    part.hidden = !made.length;
    list.replaceChildren(...made.map(([decision, supercategory, who, when, why]) =>
      make("li", {},
        bold(decision, supercategory && ` ${supercategory}`), ` ${who || "somebody"}, ${when || "some day"}`,
        ...(why ? [make("span", { class: "why" }, why)] : []))));
  });
  return part;
}
