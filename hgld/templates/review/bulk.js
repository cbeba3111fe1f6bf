// Many values at once: the suggestions that are sure, and rules of the noun that ends a label.

const FEWEST_OF_RULE = 2; // open values that a rule is for, and decided ones that it is drawn from

// Open rows whose suggestion is probable enough, the least sure first.
function sureRows() {
  if (!model || data.blind) return [];
  const open = rows.filter((row) => statusOf(row) === "open" && adviceOf(row).probability >= model.sure);
  return open.sort((one, other) => adviceOf(one).probability - adviceOf(other).probability);
}

function showSure() {
  const offers = sureRows().map((row) => ({
    rows: [row], name: adviceOf(row).name, words: [bold(row.label), ` → ${adviceWord(adviceOf(row))}`],
    note: sureNote(adviceOf(row)),
  }));
  const about = `Suggestions with a probability of at least ${100 * model?.sure}\u00a0%, the least sure first.`;
  openBulk("Sure suggestions", "sure", about, offers);
}

// As sure_choices in hgld/review/sheets.py.
const sureNote = ({ probability, reason }) => `accepted at ${Math.floor(100 * probability)} %: ${reason}`;

// The noun that says what a value is, in the singular, as head_noun in hgld/review/suggestions.py.
function headNoun(label) {
  const plain = label.toLowerCase().replace(/\(.*?\)/g, "");
  const before = plain.split(/\s(?:of|in|for|with|on|at|from|by|to|and)\s/)[0];
  const word = (before.match(/[\p{L}\p{N}]+/gu) || [""]).at(-1);
  return word.replace(/(?<=[\p{L}\p{N}]{3})(?<!s)s$/u, "");
}

// Rules that hold for all decided values with a noun, and the open values that they would decide.
function rules() {
  const groups = groupBy(rows.filter((row) => !row.gone), (row) => headNoun(row.label));
  const found = [];
  for (const [noun, members] of groups) {
    const answers = members.map(answerOf).filter(Boolean);
    const name = namedOf.get(noun) || (answers.length >= FEWEST_OF_RULE ? answers[0] : "");
    const open = members.filter((row) => statusOf(row) === "open" && [undefined, name].includes(namesake(row)));
    const fits = name && answers.every((answer) => answer === name);
    if (!noun || !fits || open.length < FEWEST_OF_RULE) continue;
    const labels = open.map((row) => row.label).join(", ");
    const words = [`Ends in “${noun}”: `, bold(name), ` for ${labels}`];
    found.push({ rows: open, name, words, note: `accepted by a rule: ends in “${noun}”` });
  }
  return found.sort((one, other) => other.rows.length - one.rows.length);
}

function showRules() {
  openBulk("Rules", "rule", "Decides all open values whose label ends in a noun. None contradicts a decision.", rules());
}

// A list of offers, each with a box, marked for sure ones; digits turn the first nine, Enter accepts
// those with a mark.
function openBulk(title, source, about, offers) {
  if (!offers.length) return say(`${title}: nothing to accept`);
  const boxes = offers.map(() => make("input", { type: "checkbox", checked: source === "sure" }));
  const lines = offers.map(({ words }, i) =>
    make("li", {}, make("label", {}, boxes[i], i < LIKELY ? make("kbd", {}, String(i + 1)) : null, span(...words))));
  const accept = () => acceptBulk(source, offers, boxes);
  const buttons = make("p", { class: "near" }, button("primary", accept, "Accept", make("kbd", {}, "Enter")));
  const list = make("ul", { class: "bulk" }, ...lines);
  list.addEventListener("keydown", (event) => bulkKey(event, boxes, accept));
  dialogOf("bulk", title, make("p", {}, `${about} A digit or x leaves one out; after Enter, z undoes all.`), list, buttons);
  boxes[0].focus();
}

function bulkKey(event, boxes, accept) {
  const at = boxes.indexOf(document.activeElement);
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const turned = event.key === "x" ? boxes[at] : /^[1-9]$/.test(event.key) && boxes[event.key - 1];
  if (turned) turned.checked = !turned.checked;
  else if (by) boxes[(at + by + boxes.length) % boxes.length].focus();
  else if (event.key === "Enter") accept();
  else return;
  event.preventDefault();
}

// One step of the undo and one entry of the log for all that is accepted; what was left out counts
// as a wrong suggestion.
function acceptBulk(source, offers, boxes) {
  const accepted = offers.filter((_, i) => boxes[i].checked);
  offers.forEach((offer, i) => boxes[i].checked || offer.rows.forEach((row) => judge(row, false)));
  const decided = accepted.flatMap(({ rows: some, name, note: why }) =>
    some.map((row) => [row, complete(name === DROP ? DROP : "keep", name, why)]));
  byId("bulk").close();
  byId("list").focus({ preventScroll: true });
  if (!decided.length) return;
  edit(decided, source);
  say(`${counted(decided.length, "value")} accepted; z takes it back`);
  if (selected && isSettled(selected)) advance();
}
