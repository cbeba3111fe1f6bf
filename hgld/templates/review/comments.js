// Comments on a value: the thread, and a new one, which goes into the sheet's column "comment".

const remarks = new Map(); // value key -> a comment that is not in the labels yet
const remarkStore = () => `${storeName()} comments`;

const isCommented = (row) => data.comments[row.number]?.length > 0 || remarks.has(row.key);

function takeInRemarks() {
  remarks.clear();
  let kept = [];
  try {
    kept = JSON.parse(recall(remarkStore()) || "[]");
  } catch {
    return; // nothing that this page has written
  }
  for (const [key, text] of kept) if (rowOf.has(key) && typeof text === "string") remarks.set(key, text);
}

function remark(row, text) {
  if (clean(text)) remarks.set(row.key, clean(text));
  else remarks.delete(row.key);
  remember(remarkStore(), JSON.stringify([...remarks]));
  drawBar();
  drawStatuses();
}

function commentPart(row) {
  if (data.blind) return null;
  const head = make("h3", {});
  const list = make("ol", { class: "history" });
  const field = make("textarea", {
    id: "comment", rows: "1", placeholder: "Add to the discussion; it decides nothing",
    oninput: (event) => remark(row, event.target.value),
  });
  onRefresh(() => {
    const said = data.comments[row.number] || [];
    head.replaceChildren("Comments", ...(said.length ? [small(count(said.length))] : []));
    list.replaceChildren(...said.map(([who, when, text]) =>
      make("li", {}, bold(who || "somebody"), ` ${when} `, span(text))));
    if (document.activeElement !== field) field.value = remarks.get(row.key) || "";
  });
  return make("section", { class: "part" }, head, list, make("label", { class: "field" }, "New comment", field));
}
