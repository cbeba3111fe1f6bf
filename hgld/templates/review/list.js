// The list: however many rows there are, only those in sight are elements.

const ROW = 56; // heights in pixels, as in page.css
const HEAD = 62;
const SPARE = 6; // rows drawn above and below what is in sight

let items = [];
let tops = [0]; // tops[i] is where item i begins; the last one is the height of all
let itemOf = new Map(); // row -> its place among the items
let selected = null;
const CHOSEN = "hgld review chosen"; // key of the chosen row, for a reload
const drawn = new Map(); // place -> its element

function relist() {
  const listed = listRows();
  items = groupRows(listed);
  itemOf = new Map(items.flatMap((item, i) => (item.row ? [[item.row, i]] : [])));
  tops = [0];
  let place = 0;
  for (const item of items) {
    tops.push(tops[tops.length - 1] + (item.row ? ROW : HEAD));
    if (item.row) item.place = place += 1; // for a screen reader, which hears of no heads
  }
  byId("rows").style.height = `${tops[tops.length - 1]}px`;
  byId("found").textContent = foundWords(listed);
  clearRows();
  const list = byId("list");
  const at = tops[itemOf.get(selected)] || 0;
  list.scrollTop = at > list.clientHeight - ROW ? at - list.clientHeight / 3 : 0;
  if (!itemOf.has(selected)) pick(listed[0] || null);
  drawRows();
}

function foundWords(listed) {
  const values = counted(listed.length, "value");
  if (listed.length === rows.length) return `${values}, ${count(total)} ${unitWords}`;
  return `${values} of ${count(rows.length)}, ${percent(sizeOf(listed), total)} of the ${unitWords}`;
}

function clearRows() {
  drawn.clear();
  const all = button("link", () => choose(ALL), "Show all");
  const none = make("p", { class: "empty" }, "No value fits. ", all);
  byId("rows").replaceChildren(...(items.length ? [] : [none]));
}

// Draws what is in sight and is not there yet; removes what has gone out of sight.
function drawRows() {
  const list = byId("list");
  const first = Math.max(0, itemAt(list.scrollTop) - SPARE);
  const last = Math.min(items.length - 1, itemAt(list.scrollTop + list.clientHeight) + SPARE);
  for (const [i, node] of drawn) {
    if (i >= first && i <= last) continue;
    node.remove();
    drawn.delete(i);
  }
  for (let i = first; i <= last; i += 1) {
    if (drawn.has(i)) continue;
    const node = items[i].row ? rowNode(items[i].row, i) : headNode(items[i].group);
    node.style.top = `${tops[i]}px`;
    drawn.set(i, node);
    byId("rows").append(node);
  }
}

// The last item that begins at or above a height.
function itemAt(height) {
  let [low, high] = [0, items.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle] <= height) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

function redrawRows() {
  for (const node of drawn.values()) node.remove();
  drawn.clear();
  drawRows();
}

function rowNode(row, i) {
  const status = statusOf(row);
  const named = row.examples && row.examples !== row.label; // a class is its own example
  const about = small(named ? row.examples : row.clusterName);
  return make("div", {
    class: "row", role: "option", id: `row-${row.number}`, onclick: () => show(row, false),
    "aria-selected": String(row === selected), "aria-setsize": itemOf.size,
    "aria-posinset": items[i].place,
  },
  make("i", { class: `dot ${status}`, role: "img", "aria-label": status, title: status }),
  make("span", { class: "what" }, bold(...marked(row.label)), about),
  make("span", { class: `fate${edits.has(row.key) ? " edited" : ""}` }, fate(row, status)),
  make("span", { class: "size", title: unitWords }, count(row[unit])));
}

// What becomes of the value: plain where it is decided, faint where it is not.
function fate(row, status) {
  const { decision, supercategory } = now(row);
  const faint = (text) => make("em", {}, text);
  if (status === "dropped") return faint("drop");
  if (decision === "unsure") return faint(supercategory ? `unsure: ${supercategory}` : "unsure");
  if (supercategory) return supercategory;
  return faint(adviceOf(row).name ? `${adviceOf(row).name} ?` : "–");
}

// The label with the searched word marked.
function marked(label) {
  const term = fold(filter.text).trim();
  const at = term && fold(label).length === label.length ? fold(label).indexOf(term) : -1;
  if (at < 0) return [label];
  const end = at + term.length;
  return [label.slice(0, at), make("mark", {}, label.slice(at, end)), label.slice(end)];
}

function headNode(group) {
  const known = group.name !== NOT_KNOWN;
  const byCluster = filter.groups === "cluster";
  const name = byCluster ? clusterName(group.name) : known ? group.name : "(none yet)";
  const near = (byCluster && data.clusters[group.name]?.near) || [];
  const more = near.length ? `near ${near.map(clusterName).join(", ")}` : kindOf.get(group.name);
  const facts = [counted(group.inside.length, "value"), `${count(group.size)} ${unitWords}`, more];
  const title = make("div", {}, make("strong", {}, name), small(facts.filter(Boolean).join(" · ")));
  return make("div", { class: "head", role: "presentation" }, title, stack(group.inside));
}

// A bar of the statuses, by images.
function stack(some) {
  const found = groupBy(some, statusOf);
  const part = (status) => {
    const flex = `flex: ${sizeOf(found.get(status)) || 0.01} 1 0`;
    return make("i", { class: status, title: status, style: flex });
  };
  const order = STATUSES.toReversed().filter((status) => found.has(status));
  return make("div", { class: "stack", "aria-hidden": "true" }, ...order.map(part));
}

// Chooses a row and opens its panel; by keyboard and from the map, list and panel come into sight.
function show(row, jump = true) {
  reach(row);
  byId("panel").classList.add("shown");
  if (jump) bringWork();
}

// Chooses a row; a list that does not hold it is widened first.
function reach(row) {
  if (!itemOf.has(row)) choose(ALL);
  pick(row);
  reveal();
}

// Brings list and panel into sight; where the panel covers the list, it is in sight anyway.
function bringWork() {
  if (innerWidth > 900) byId("desk").scrollIntoView({ block: "nearest" });
}

function pick(row) {
  selected = row;
  const before = byId("rows").querySelector('[aria-selected="true"]');
  before?.setAttribute("aria-selected", "false");
  if (row) {
    remember(CHOSEN, row.key, inTab);
    byId(`row-${row.number}`)?.setAttribute("aria-selected", "true");
    byId("list").setAttribute("aria-activedescendant", `row-${row.number}`);
  }
  drawPanel();
  markChosen();
}

// Scrolls the list, and not the page, until the chosen row is in sight.
function reveal() {
  const list = byId("list");
  const i = itemOf.get(selected);
  if (i === undefined) return;
  const above = items[i - 1]?.group ? HEAD : 0;
  if (tops[i] - above < list.scrollTop) list.scrollTop = tops[i] - above;
  const end = tops[i + 1] - list.clientHeight;
  if (end > list.scrollTop) list.scrollTop = end;
  drawRows();
}

// The next row that passes, from the chosen one on in a direction.
function step(by, passes = () => true) {
  for (let i = (itemOf.get(selected) ?? -1) + by; i >= 0 && i < items.length; i += by) {
    if (items[i].row && passes(items[i].row)) return items[i].row;
  }
  return null;
}

function go(by, size = 1) {
  let target = null;
  const from = selected;
  for (let i = 0; i < size; i += 1) {
    const next = step(by);
    if (!next) break;
    selected = target = next;
  }
  selected = from;
  if (target) show(target);
}

// On to what is still to be decided: after the chosen row, else from the top.
function advance() {
  const waits = (row) => !isSettled(row);
  const next = step(1, waits) || items.find((item) => item.row && waits(item.row))?.row;
  if (next) show(next);
}
