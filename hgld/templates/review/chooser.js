// The field in which a supercategory is chosen by typing its first letters.

const chooser = { input: null, list: null, options: [], active: 0, decision: "" };

function makeChooser() {
  chooser.list = make("ul", {
    class: "options", id: "options", role: "listbox", "aria-label": "Supercategories", hidden: true,
  });
  chooser.input = make("input", {
    id: "chooser", type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-expanded": "false", "aria-controls": "options", "aria-autocomplete": "list",
    placeholder: chooserHint(),
    oninput: () => openChooser(chooser.decision), onclick: () => openChooser(chooser.decision),
    onblur: closeChooser, onkeydown: chooserKey,
  });
  const label = make("label", { class: "field", for: "chooser" }, "Supercategory", chooser.input);
  return make("div", { class: "chooser" }, label, chooser.list);
}

function chooserHint() {
  const size = data.taxonomy.length;
  return size ? "Type to choose one of " + count(size) : "Type the name of the first supercategory";
}

// Opens the list; what is chosen becomes the decision named, else keep or move as it fits.
function openChooser(decision) {
  chooser.decision = decision;
  const { input, list } = chooser;
  if (document.activeElement !== input) {
    bringWork();
    input.focus();
    input.select();
  }
  const untouched = input.value === now(selected).supercategory;
  const typed = untouched ? "" : input.value;
  const fresh = { supercategory: "+ new supercategory …", kind: "", definition: "", fresh: true };
  chooser.options = typed && !data.blind ? [...rank(typed), fresh] : rank(typed);
  chooser.active = typed || suggestionOf(selected) ? 0 : -1; // Enter takes no name by the alphabet
  list.hidden = false;
  input.setAttribute("aria-expanded", "true");
  drawOptions();
}

// Names that begin with the words typed, then those with a word that does, then all that hold them.
function rank(typed) {
  const term = fold(typed).trim();
  const first = suggestionOf(selected);
  const score = ({ supercategory, definition }) => {
    const name = fold(supercategory);
    if (!term) return supercategory === first ? 0 : 1; // the likeliest first
    if (name.startsWith(term)) return 0;
    if (name.split(/[^\p{L}\p{N}]+/u).some((word) => word.startsWith(term))) return 1;
    if (name.includes(term)) return 2;
    return term.length > 2 && fold(definition).includes(term) ? 3 : 4;
  };
  const rowsOf = new Map(data.taxonomy.map((row) => [row.supercategory, row]));
  const ordered = likeliest(selected).map((name) => rowsOf.get(name));
  const scored = ordered.map((row) => [score(row), row]).filter(([points]) => points < 4);
  return scored.sort((one, other) => one[0] - other[0]).map(([, row]) => row);
}

function drawOptions() {
  const { options, active, list, input } = chooser;
  const nothing = data.taxonomy.length ? "No supercategory has these letters" : "There is no supercategory yet";
  const none = make("li", { role: "option", "aria-disabled": "true" }, nothing);
  list.replaceChildren(...(options.some(({ fresh }) => !fresh) ? [] : [none]), ...options.map(optionNode));
  if (options[active]) input.setAttribute("aria-activedescendant", `option-${active}`);
  else input.removeAttribute("aria-activedescendant");
  fitOptions();
  byId(`option-${active}`)?.scrollIntoView({ block: "nearest" });
}

// Below the field, or above it if there is no room, where it covers the photos but not the label.
function fitOptions() {
  const { list, input } = chooser;
  const edge = (node) => node.getBoundingClientRect();
  const below = Math.min(edge(byId("panel")).bottom, innerHeight) - edge(input).bottom - 12;
  const above = edge(input).top - edge(byId("panel").querySelector(".label")).bottom - 34;
  const up = below < 160 && above > below;
  list.classList.toggle("up", up);
  list.style.maxHeight = `${Math.max(120, Math.min(up ? above : below, 420))}px`;
}

function optionNode(row, i) {
  const about = make("small", { class: "about", title: row.definition }, row.definition);
  if (row.fresh) about.textContent = "";
  return make("li", {
    role: "option", id: `option-${i}`, "aria-selected": String(i === chooser.active),
    onmousedown: (event) => event.preventDefault(), onclick: () => take(row),
  }, i < LIKELY ? keySign(String(i + 1)) : null, row.supercategory, small(row.kind), about);
}

function closeChooser() {
  const { input, list } = chooser;
  chooser.decision = "";
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
  input.value = selected ? now(selected).supercategory : "";
  input.placeholder = chooserHint();
}

function chooserKey(event) {
  const { options, active, list } = chooser;
  const moves = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (moves) {
    event.preventDefault();
    if (list.hidden) return openChooser(chooser.decision);
    const from = active < 0 && moves < 0 ? 0 : active;
    chooser.active = (from + moves + options.length) % Math.max(1, options.length);
    drawOptions();
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (!list.hidden && options[active]) take(options[active]);
  } else if (/^[1-9]$/.test(event.key) && !list.hidden && options[event.key - 1]) {
    event.preventDefault(); // no supercategory is found by a digit
    take(options[event.key - 1]);
  } else if (event.key === "Escape") {
    event.stopPropagation();
    closeChooser();
    byId("list").focus({ preventScroll: true });
  }
}

// Takes one of the likeliest supercategories of the chosen row.
function takeLikely(i) {
  const name = selected && model && !data.blind && likeliest(selected)[i];
  if (name) take({ supercategory: name });
}

function take({ supercategory, fresh }) {
  if (fresh) return newSupercategory(clean(chooser.input.value));
  const row = selected;
  const fits = supercategory === suggestionOf(row) || now(row).decision === "keep";
  const decision = chooser.decision || (fits ? "keep" : "move");
  closeChooser();
  decide(row, decision, supercategory);
  byId("list").focus({ preventScroll: true });
  advance();
}
