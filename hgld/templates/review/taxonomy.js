// Edits of the supercategories: made in this page at once and saved as a list for --apply, or by the
// server, which has made them before the page shows them.

const TAXONOMY_FILE = "review_taxonomy.csv";
const CELLS = ["action", "into", "kind", "definition", "supercategory"];
const KINDS = ["human-made", "natural"]; // of H-GLDv2; other data has classes of its own levels
const ownKinds = String(data.above) !== "kind";
const kindShape = ownKinds ? data.above.join(" > ") : "kind";
const ACTIONS = ["rename", "merge", "split", "describe", "remove"];
const taxonomyStore = () => `hgld taxonomy ${storePrefix()}${data.hash}`;
const taxonomyEdits = []; // rows of the file, in the order in which they were made
const asWritten = { taxonomy: data.taxonomy, classes: model?.classes, names: rows.map((row) => [row.base, row.suggestion]) };

const listed = (name) => data.taxonomy.find((row) => row.supercategory.toLowerCase() === clean(name).toLowerCase());
const valuesIn = (name) => rows.filter((row) => now(row).supercategory === name);

// Makes an edit in this page; the names of values follow.
function applyTaxonomy({ action, into, kind, definition, supercategory: name }) {
  const row = listed(name);
  const rest = data.taxonomy.filter((other) => other !== row);
  if (action === "add") data.taxonomy = [...rest, { supercategory: name, kind, definition }];
  if (action === "split") data.taxonomy = [...rest, row, { supercategory: into, kind: row.kind, definition: "" }];
  if (action === "describe") data.taxonomy = [...rest, { ...row, kind, definition }];
  if (action === "rename") data.taxonomy = [...rest, { ...row, supercategory: into }];
  if (["merge", "remove"].includes(action)) data.taxonomy = rest;
  setTaxonomy(data.taxonomy.sort((one, other) => (one.supercategory < other.supercategory ? -1 : 1)));
  followName(name, ["rename", "merge"].includes(action) ? into : name);
}

function setTaxonomy(taxonomy) {
  data.taxonomy = taxonomy;
  kindOf.clear();
  namedOf.clear();
  for (const one of data.taxonomy) {
    kindOf.set(one.supercategory, one.kind);
    namedOf.set(one.supercategory.toLowerCase(), one.supercategory);
  }
}

// Gives everything that names a supercategory its new name and kind.
function followName(name, target) {
  if (model) {
    model.classes = model.classes.map((one) => (one === name ? target : one));
    for (const found of model.advice.values()) if (found.name === name) found.name = target;
  }
  const follow = (cells) => ({ ...cells, supercategory: target, kind: kindOf.get(target) || "" });
  for (const value of rows) {
    if (value.base.supercategory === name) value.base = follow(value.base);
    if (value.suggestion === name) value.suggestion = kindOf.has(target) ? target : "";
    const cells = edits.get(value.key);
    if (cells?.supercategory === name) edits.set(value.key, follow(cells));
  }
  for (const pair of steps.flat()) if (pair[1]?.supercategory === name) pair[1] = follow(pair[1]);
}

// Makes the kept edits anew from the taxonomy as the page was written with it.
function replayTaxonomy() {
  data.taxonomy = asWritten.taxonomy;
  if (model) model.classes = asWritten.classes;
  rows.forEach((row, i) => ([row.base, row.suggestion] = asWritten.names[i]));
  applyTaxonomy({ action: "", supercategory: "" });
  const kept = taxonomyEdits.splice(0);
  for (const one of kept) {
    if (CELLS.some((cell) => typeof one?.[cell] !== "string") || faultOf(one)) continue; // a browser may keep anything
    taxonomyEdits.push(one);
    applyTaxonomy(one);
  }
  for (const [key, cells] of [...edits]) put(rowOf.get(key), { ...cells, ...complete(cells.decision, cells.supercategory, cells.note) });
  fillSupercategories();
}

function editTaxonomy(edit) {
  const added = taxonomyEdits.find((one) => one.action === "add" && one.supercategory === edit.supercategory);
  if (added && edit.action === "rename") added.supercategory = edit.into;
  else if (added && edit.action === "remove") taxonomyEdits.splice(taxonomyEdits.indexOf(added), 1);
  else taxonomyEdits.push(edit);
  applyTaxonomy(edit);
  fillSupercategories();
  keepTaxonomy();
}

function keepTaxonomy() {
  remember(taxonomyStore(), JSON.stringify(taxonomyEdits));
  keep();
  tell();
  drawPanel();
}

function takeInTaxonomy() {
  byId("taxonomy-list").hidden = Boolean(data.blind);
  byId("taxonomy-list").addEventListener("click", showTaxonomy);
  readTaxonomyEdits();
}

// Of this person; those that were made before the name was known follow.
function readTaxonomyEdits(unsigned = []) {
  if (data.live || data.blind) return;
  const before = taxonomyEdits.splice(0);
  try {
    taxonomyEdits.push(...JSON.parse(recall(taxonomyStore()) || "[]"));
  } catch {
    // not what this page wrote
  }
  taxonomyEdits.push(...unsigned);
  if (before.length || taxonomyEdits.length) replayTaxonomy();
  if (unsigned.length) remember(taxonomyStore(), JSON.stringify(taxonomyEdits));
}

function fillSupercategories() {
  const select = byId("by-supercategory");
  if (![NOT_KNOWN, "", ...kindOf.keys()].includes(filter.supercategory)) choose({ supercategory: "" });
  [...select.options].slice(2).forEach((option) => option.remove());
  select.append(...data.taxonomy.map(({ supercategory: name }) => make("option", { value: name }, name)));
  select.value = filter.supercategory;
}

function writeTaxonomy() {
  const lines = [CELLS, ...taxonomyEdits.map((edit) => CELLS.map((name) => guard(edit[name] || "")))];
  return `\ufeff${lines.map((cells) => `${cells.map(quote).join(",")}\r\n`).join("")}`;
}

// The list of supercategories, each with what can be done to it.
function showTaxonomy() {
  const [made, takeBack] = data.live ? [savedTaxonomyEdits(), takeSavedEditBack] : [taxonomyEdits, takeTaxonomyBack];
  const deed = (action, name) => button("chip", () => showEdit(action, name), action);
  const items = data.taxonomy.map(({ supercategory: name, kind, definition }) => make("li", {},
    make("div", {}, bold(name), small(` ${kind} · ${counted(valuesIn(name).length, "value")}`)),
    small(definition),
    make("div", { class: "near", role: "group", "aria-label": name }, ...ACTIONS.map((action) => deed(action, name)))));
  const words = data.live
    ? "Each edit is saved at once, for everybody."
    : `Edits are kept in this browser and applied with your decisions${made.length ? `; ${counted(made.length, "edit")} so far` : ""}.`;
  const back = button("chip", takeBack, "Take back the last edit");
  const add = button("chip", () => showEdit("add", ""), "New supercategory");
  dialogOf("taxonomy", "Supercategories", make("p", { class: "quiet" }, words),
    make("div", { class: "near" }, add, made.length ? back : null),
    make("ul", { class: "supercategories" }, ...items));
}

// The open list, with what somebody else has changed; the place in it stays.
function renewTaxonomyList() {
  const dialog = byId("taxonomy");
  if (!dialog.open || !dialog.querySelector(".supercategories")) return;
  const { scrollTop } = dialog;
  const facts = (node) => [node.parentElement?.ariaLabel, node.textContent].join("\n");
  const place = facts(document.activeElement);
  showTaxonomy();
  [...dialog.querySelectorAll("button")].find((node) => facts(node) === place)?.focus({ preventScroll: true });
  dialog.scrollTop = scrollTop;
}

function takeTaxonomyBack() {
  const last = taxonomyEdits.pop();
  const renamed = last.action === "rename" ? last.into : "";
  for (const [key, cells] of renamed ? [...edits] : []) {
    if (cells.supercategory === renamed) edits.set(key, { ...cells, supercategory: last.supercategory });
  }
  replayTaxonomy();
  keepTaxonomy();
  showTaxonomy();
}

// The form of one edit; `then` gets the name that the supercategory has afterwards.
function showEdit(action, name, then = showTaxonomy, proposed = "") {
  const row = listed(name) || { kind: "", definition: "" };
  const field = (label, node) => make("label", { class: "field" }, label, node);
  const into = make("input", { type: "text", id: "edit-name", value: proposed, maxlength: "120", list: action === "merge" ? "edit-names" : null });
  const kind = ownKinds
    ? make("input", { type: "text", id: "edit-kind", value: row.kind, maxlength: "240", list: "edit-kinds" })
    : make("select", { id: "edit-kind" }, make("option", { value: "" }, ""), ...KINDS.map((one) => make("option", { value: one, selected: one === row.kind }, one)));
  const kinds = [...new Set(data.taxonomy.map((other) => other.kind))].sort();
  const definition = make("textarea", { id: "edit-definition", rows: "2" }, row.definition);
  const chosen = valuesIn(name).map((value) => [value, make("input", { type: "checkbox" })]);
  const fault = make("p", { class: "fault", role: "alert" });
  const parts = [
    ["add", "rename", "merge", "split"].includes(action) ? field(action === "merge" ? "Into" : "New name", into) : null,
    action === "merge" ? make("datalist", { id: "edit-names" }, ...data.taxonomy.map((one) => make("option", { value: one.supercategory }))) : null,
    ["add", "describe"].includes(action) && data.above.length ? field(ownKinds ? kindShape : "Kind", kind) : null,
    ownKinds ? make("datalist", { id: "edit-kinds" }, ...kinds.map((one) => make("option", { value: one }))) : null,
    ["add", "describe"].includes(action) ? field("Definition", definition) : null,
    chosen.length && action === "split" ? make("fieldset", {}, make("legend", {}, "Values that go to the new one; the others stay"),
      ...chosen.map(([value, box]) => make("label", {}, box, ` ${value.label}`))) : null,
  ];
  const dialog = byId("taxonomy");
  const take = async () => {
    const wanted = { action, supercategory: name, into: clean(into.value), kind: clean(kind.value), definition: clean(definition.value) };
    if (action === "add") Object.assign(wanted, { supercategory: wanted.into, into: "" });
    fault.textContent = faultOf(wanted);
    if (fault.textContent) return;
    if (action === "merge") wanted.into = listed(wanted.into).supercategory;
    if (!["add", "describe"].includes(action)) Object.assign(wanted, { kind: "", definition: "" });
    const moved = chosen.filter(([, box]) => box.checked).map(([value]) => value);
    if (data.live) {
      if (done.disabled) return; // it was pressed twice
      done.disabled = true;
      fault.textContent = await saveTaxonomyEdit(wanted, moved.map(({ key }) => key));
      done.disabled = false;
      const left = !dialog.open || !done.isConnected; // closed while the server made the edit
      if (left && fault.textContent) say(fault.textContent);
      if (fault.textContent || (left && then === showTaxonomy)) return;
      if (left) return then(wanted.into || wanted.supercategory);
    } else {
      editTaxonomy(wanted);
      if (moved.length) edit(moved.map((value) => [value, complete(now(value).decision, wanted.into, now(value).note)]));
    }
    dialog.close();
    then(wanted.into || wanted.supercategory);
  };
  const done = button("primary", take, action === "add" ? "Add" : action[0].toUpperCase() + action.slice(1));
  dialogOf("taxonomy", action === "add" ? "New supercategory" : `${done.textContent} ${name}`, ...parts, fault, done);
  const enter = (event) => event.key === "Enter" && take();
  for (const node of ownKinds ? [into, kind] : [into]) node.addEventListener("keydown", enter);
  (dialog.querySelector("input, select") || done).focus();
}

// Why an edit cannot be made, in one line; empty if it can.
function faultOf({ action, supercategory: name, into, kind }) {
  const fresh = action === "add" ? name : into;
  const there = listed(fresh);
  if (![...ACTIONS, "add"].includes(action) || (action !== "add" && !listed(name))) return `${name} is not in the taxonomy.`;
  if (action !== "describe" && action !== "remove" && !fresh) return "Give a name.";
  if (action === "rename" && fresh === name) return `${name} has this name already.`;
  const own = action === "rename" && there?.supercategory === name; // other capitals
  if (["add", "rename", "split"].includes(action) && there && !own) return `${there.supercategory} is there already.`;
  const classes = kind ? kind.split(" > ").length : 0;
  if (["add", "describe"].includes(action) && classes !== data.above.length) {
    return ownKinds ? `Write ${kindShape}, as in the levels of the pipeline.` : "Choose a kind.";
  }
  if (action === "merge" && !there) return `${into} is not in the taxonomy.`;
  if (action === "merge" && there.supercategory === name) return "Choose another one.";
  if (action === "merge" && there.kind !== kindOf.get(name)) return `${name} is ${kindOf.get(name)}, ${there.supercategory} is ${there.kind}.`;
  const used = action === "remove" ? valuesIn(name).length : 0;
  return used ? `In use by ${counted(used, "value")}; merge it into another one.` : "";
}

// From the list of the chooser: what was typed becomes a new supercategory of the chosen value.
function newSupercategory(typed) {
  const row = selected;
  const decision = chooser.decision || "keep";
  closeChooser();
  showEdit("add", "", (name) => {
    decide(row, decision, name);
    byId("list").focus({ preventScroll: true });
    advance();
  }, typed);
}
