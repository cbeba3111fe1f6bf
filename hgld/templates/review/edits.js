// What the person has decided here: kept in this browser, undone step by step.

const storePrefix = () => storesOf("review");
const storeName = () => storeOf("review");
const STATUSES = ["conflict", "open", "unsure", "stale", "decided", "dropped"];
const edits = new Map(); // value key -> its four editable cells
const steps = []; // each a list of [key, the edit before or undefined]
const undone = new Set(); // ids of steps that were taken back, perhaps on their way to a server
const changed = []; // what is to be drawn anew after a change

const now = (row) => edits.get(row.key) || row.base;

function statusOf(row) {
  const { decision } = now(row);
  if (!edits.has(row.key) && ["stale", "conflict"].includes(row.status)) return row.status;
  if (decision === "drop") return "dropped";
  if (["unsure", "open"].includes(decision)) return decision;
  return decision ? "decided" : "open";
}

// As the gate of the run counts: a stale decision still decides.
const decides = (row) => ["keep", "move", "drop"].includes(now(row).decision);
const isSettled = (row) => ["decided", "dropped"].includes(statusOf(row));
const sameCells = (one, other) => EDITABLE.every((name) => one[name] === other[name]);

// A decision made whole, so that no row can be saved that the sheet's reader would refuse: a place
// is a supercategory of the taxonomy, and without one nothing is placed. Only a side of a conflict
// that was taken back is "open".
function complete(decision, supercategory, note) {
  const name = ["drop", "open"].includes(decision) || !kindOf.has(supercategory) ? "" : supercategory;
  const placed = ["keep", "move"].includes(decision) && !name ? "unsure" : decision;
  return { decision: placed, supercategory: name, kind: kindOf.get(name) || "", note: clean(note) };
}

// As complete; said again of a stale value it needs a word more, or it would be no news.
function renew(row, decision, supercategory) {
  const same = complete(decision, supercategory, "").supercategory === now(row).supercategory;
  const wanted = complete(decision, supercategory, same ? now(row).note : now(row).note.replace(ACCEPTED, ""));
  if (statusOf(row) !== "stale" || !sameCells(wanted, row.base)) return wanted;
  return { ...wanted, note: [wanted.note, "still so"].filter(Boolean).join("; ") };
}

// The wanted edits as one step; undefined takes a row's edit back. A source makes the step a block:
// an entry of its own in the log.
function edit(wanted, source) {
  const id = newStep();
  const block = source ? { block: `${source} ${id}` } : {};
  steps.push(Object.assign(wanted.map(([row]) => [row.key, edits.get(row.key)]), { id }));
  for (const [row, cells] of wanted) put(row, cells && { ...cells, ...block, step: id });
  keep();
  tell();
}

const newStep = () => [...crypto.getRandomValues(new Uint8Array(8))].map((n) => n.toString(36)).join("");

// An edit keeps base and evidence of the row that it was made from, although others may decide
// meanwhile, or the value may change.
function put(row, cells) {
  const { from, evidence, step } = edits.get(row.key) || { ...row, step: newStep() };
  if (!cells || sameCells(cells, row.base)) edits.delete(row.key);
  else edits.set(row.key, { from, evidence, step, ...cells });
}

function undo() {
  const step = steps.pop();
  if (!step) return null;
  undone.add(step.id);
  if (step.entry) undoSaved(step);
  else for (const [key, before] of step) put(rowOf.get(key), before);
  keep();
  tell();
  return rowOf.get(step[0][0]);
}

const ACCEPTED = /^accepted (at \d+ %|by a rule): .*/; // the note of a block, of its answer alone

const tell = () => changed.forEach((redraw) => redraw());
const keep = () => keepAs(storeName(), [...edits]);

// Undo reaches edits from before a reload and of other tabs, too.
function stepsOfEdits() {
  for (const [id, kept] of groupBy([...edits], ([, cells]) => cells.step)) {
    if (steps.some((step) => step.id === id)) continue;
    steps.push(Object.assign(kept.map(([key]) => [key, undefined]), { id }));
  }
}

// Takes in what a browser has kept under a name.
function takeIn(name) {
  for (const [row, cells] of readStore(name)) put(row, cells);
}

// Rows with their kept edits; what is no decision, has no row here or is in force by now stays out.
function readStore(name) {
  try {
    return JSON.parse(localStorage.getItem(name) || "[]")
      .filter(([key, cells]) => rowOf.has(key) && isDecision(cells))
      .map(([key, kept]) => [rowOf.get(key), { ...madeFrom(kept), ...complete(kept.decision, kept.supercategory, kept.note) }])
      .filter(([row, cells]) => !sameCells(cells, row.base));
  } catch {
    return [];
  }
}

const madeFrom = (kept) =>
  Object.fromEntries(["from", "evidence", "step", "block"].filter((name) => typeof kept[name] === "string").map((name) => [name, kept[name]]));

function isDecision(cells) {
  const texts = EDITABLE.every((name) => typeof cells?.[name] === "string");
  if (!texts || !["keep", "move", "drop", "unsure", "open"].includes(cells.decision)) return false;
  return kindOf.has(cells.supercategory) || !cells.supercategory;
}
