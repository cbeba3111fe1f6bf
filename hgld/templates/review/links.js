// Links of classes to items of Wikidata: an item of the candidates, none, or another one.

const data = JSON.parse(byId("data").textContent);
const NONE = "none"; // there is no such item
const OPEN = "open"; // an answer is taken back
const AGAIN_MS = 3000; // between two attempts to reach the server
const KEYS = [
  ["j  k", "next, previous class (or ↓ ↑)"],
  ["1–9", "it is this candidate"],
  ["d", "none: Wikidata has no such item"],
  ["i", "another item: type its id or address"],
  ["n", "write a note"],
  ["z", "undo the last answer"],
  ["x", "take this answer back"],
  ["?", "this help"],
];
const place = Object.fromEntries(data.columns.map((name, i) => [name, i]));
const rows = data.rows.map(readRow);
const rowOf = new Map(rows.map((row) => [row.name, row]));
const answers = new Map(); // name -> {qid, note}, not applied or not sent yet
const steps = []; // [name, the answer before or undefined]
const storeName = () => storeOf("links");
let selected = rows[0];
let waits = 0; // of the next attempt to send
let at = data.live?.at; // version of the answers that the server has
let sending = false; // one request at a time, so that the last answer of a class is the last row

function readRow(cells, number) {
  const plain = data.plain[number] || {};
  const read = (name) => plain[name] ?? cells[place[name]] ?? "";
  return {
    number, cells, name: read("name"), images: Number(read("images")), reason: read("reason"),
    candidates: data.candidates[number], base: { qid: read("qid"), note: read("note") },
  };
}

const now = (row) => answers.get(row.name) || row.base;
const isOpen = (row) => !now(row).qid || now(row).qid === OPEN;
const sameAnswer = (one, other) => one?.qid === other?.qid && one?.note === other?.note;

function answer(row, qid, note = now(row).note) {
  steps.push([row.name, answers.get(row.name) || { ...row.base }]);
  put(row, { qid, note: clean(note) });
  drawAll();
}

// An empty answer of a served page takes the saved one back.
function put(row, wanted) {
  const onItsWay = data.live && answers.has(row.name); // the base is about to change
  const taken = onItsWay || (data.live && row.base.qid) ? OPEN : "";
  const said = { ...wanted, qid: wanted.qid || taken };
  if (!onItsWay && sameAnswer(said, row.base)) answers.delete(row.name);
  else answers.set(row.name, said);
  keep();
  if (data.live) send();
}

const keep = () => keepAs(storeName(), [...answers]);

function undo() {
  const [name, before] = steps.pop() || [];
  if (!name) return say("Nothing to undo");
  selected = rowOf.get(name);
  put(selected, before);
  drawAll();
  say(`${name}: undone`);
}

function choose(row, qid) {
  answer(row, qid);
  const later = [...rows.slice(row.number), ...rows.slice(0, row.number)].find(isOpen);
  show(later || row);
}

// The id in a text such as an address of Wikidata; empty if there is none.
function itemIn(text) {
  const word = clean(text).split("/").pop().toUpperCase();
  return /^Q[1-9]\d*$/.test(word) ? word : "";
}

function drawAll() {
  const open = rows.filter(isOpen).length;
  const flex = (part) => `flex: ${part}`;
  byId("gauge").replaceChildren(
    make("i", { class: "decided", style: flex(rows.length - open) }), make("span", { style: flex(open) }));
  byId("share").replaceChildren(
    bold(count(rows.length - open)), ` of ${count(rows.length)}`,
    make("span", { class: "wide" }, ` ${rows.length === 1 ? "class" : "classes"} answered`));
  byId("edited").textContent = count(answers.size);
  byId("edited").hidden = !answers.size;
  byId("undo").disabled = !steps.length;
  byId("who").replaceChildren(...personWords());
  byId("rows").replaceChildren(...rows.map(rowNode));
  byId(`row-${selected?.number}`)?.scrollIntoView({ block: "nearest" });
  drawPanel();
}

function rowNode(row) {
  const { qid } = now(row);
  const status = isOpen(row) ? "open" : qid === NONE ? "dropped" : "decided";
  return make("div", {
    class: "row", role: "option", id: `row-${row.number}`, onclick: () => show(row),
    "aria-selected": String(row === selected),
  },
  make("i", { class: `dot ${status}`, role: "img", "aria-label": status, title: status }),
  make("span", { class: "what" }, bold(row.name), small(row.reason.replaceAll("_", " "))),
  make("span", { class: `fate${answers.has(row.name) ? " edited" : ""}` }, isOpen(row) ? "" : qid),
  make("span", { class: "size", title: "images" }, count(row.images)));
}

function show(row) {
  if (!row) return;
  selected = row;
  byId("panel").classList.add("shown");
  drawAll();
}

const go = (by) => show(rows[Math.min(rows.length - 1, Math.max(0, (selected?.number ?? 0) + by))]);

function drawPanel() {
  const row = selected;
  if (!row) return byId("panel").replaceChildren(make("p", { class: "empty" }, "Every class is linked."));
  const strip = make("div", { class: "photos" }, ...(data.photos[row.number] || []).map(figureOf));
  if (data.live) fetchPhotos(row, strip);
  const other = make("input", {
    id: "item", type: "text", maxlength: "80", placeholder: "Q…", onchange: () => takeItem(row, other.value),
    value: row.candidates.some(({ id }) => id === now(row).qid) || isOpen(row) ? "" : now(row).qid,
  });
  const note = make("input", {
    id: "note", type: "text", maxlength: "400", value: now(row).note,
    onchange: () => answer(row, now(row).qid, note.value),
  });
  byId("panel").replaceChildren(
    make("h2", { class: "label" }, row.name),
    make("p", { class: "facts" }, `${row.reason.replaceAll("_", " ")} · ${counted(row.images, "image")}`),
    strip, make("ol", { class: "candidates" }, ...row.candidates.map((one, i) => candidateItem(row, one, i))),
    make("div", { class: "deeds" }, deedButton(row, NONE, "None", "d")),
    make("label", { class: "field" }, "Another item", other), make("p", { class: "fault", id: "fault", role: "alert" }),
    make("label", { class: "field" }, "Note", note), closeButton());
}

function candidateItem(row, { id, text, score, seen }, i) {
  const scores = [score && `text ${score}`, seen && `photos ${seen}`].filter(Boolean).join(", ");
  return make("li", {}, deedButton(row, id, text, String(i + 1)),
    small(link(id, `https://www.wikidata.org/wiki/${id}`), scores ? ` · ${scores}` : ""));
}

function deedButton(row, qid, text, key) {
  const node = button("chip", () => choose(row, qid), keySign(key), text);
  node.setAttribute("aria-keyshortcuts", key);
  node.setAttribute("aria-pressed", String(now(row).qid === qid));
  return node;
}

function takeItem(row, text) {
  const id = itemIn(text);
  if (id || !clean(text)) return id ? choose(row, id) : undefined;
  byId("fault").textContent = `${clean(text)}: expected an item such as Q35694.`;
}

async function fetchPhotos(row, strip) {
  const found = await fetch(`photos?${new URLSearchParams({ key: row.name })}`).catch(() => null);
  if (found?.ok) strip.replaceChildren(...(await found.json()).map(figureOf));
}

// Sends all answers that the server has not; they are in this browser until it has them.
async function send() {
  clearTimeout(waits);
  if (sending || !answers.size) return;
  if (!person) return askName();
  sending = true;
  const sender = storeName(); // another person may sign in before the reply
  const sent = new Map(answers);
  const body = { who: person, since: at, rows: [...sent].map(([name, said]) => ({ name, ...said })) };
  const facts = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch("decisions", facts).catch(() => null);
  const found = await reply?.json().catch(() => null); // also null if the reply is cut off
  sending = false;
  if (!found || !reply.ok) {
    say(found?.error || "The server does not answer; your answers are kept in this browser");
    if (!found || reply.status >= 500 || sender !== storeName()) waits = setTimeout(send, AGAIN_MS);
    return;
  }
  for (const [name, said] of sent) {
    rowOf.get(name).base = { ...said, qid: said.qid === OPEN ? "" : said.qid };
  }
  receive(found);
  const isSaved = ([name, said]) => sameAnswer(sent.get(name), said);
  if (sender === storeName()) {
    [...answers].filter(isSaved).forEach(([name]) => answers.delete(name));
    keep();
  } else keepAs(sender, entriesIn(sender).filter((entry) => !isSaved(entry)));
  drawAll();
  send();
}

// What others answer. An event that a reply has overtaken would take back what was saved since.
function receive({ at: version, news }) {
  if (isBefore(version, at)) return;
  at = version;
  for (const [name, qid] of Object.entries(news.rows || {})) {
    if (rowOf.has(name)) rowOf.get(name).base.qid = qid;
  }
}

function listen() {
  const stream = new EventSource(`events?${new URLSearchParams({ since: at, who: person })}`);
  stream.onmessage = (event) => {
    receive(JSON.parse(event.data));
    if (!byId("panel").contains(document.activeElement)) drawAll();
  };
}

// Answers that were given before the name was known are the person's; those of another one are not.
function signAs(name) {
  const unsigned = person ? [] : [...answers];
  if (!person) forget([storeName()]);
  person = name;
  remember(WHO, name);
  answers.clear();
  steps.length = 0;
  takeIn();
  for (const [key, said] of unsigned) answers.set(key, said);
  keep();
  drawBanner();
}

function askName() {
  const taken = () => {
    drawAll();
    if (data.live && person) send();
  };
  dialogOf("help", "Who decides?", nameField(taken));
  byId("name").focus();
}

function save() {
  const lines = rows.map(({ name, cells }) => {
    const said = answers.get(name);
    return said ? cells.map((cell, i) => (data.columns[i] in said ? guard(said[data.columns[i]]) : cell)) : cells;
  });
  const text = [data.columns, ...lines].map((cells) => `${cells.map(quote).join(",")}\r\n`).join("");
  download(data.file, `\ufeff${text}`);
  const signed = person && ` --set review.who="${person.replace(/["\\$`!]/g, "")}"`;
  dialogOf("help", `${data.file} is in your downloads`,
    make("p", {}, `It holds the sheet with ${counted(answers.size, "answer")}. This command applies them:`),
    make("pre", {}, data.command + signed),
    make("p", {}, `Write the folder of your downloads before ${data.file}, and the same --set as before.`));
}

function showHelp() {
  const terms = KEYS.flatMap(([keys, words]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, words)]);
  dialogOf("help", "Keys", make("dl", {}, ...terms));
}

const DEEDS = {
  j: () => go(1), ArrowDown: () => go(1), k: () => go(-1), ArrowUp: () => go(-1),
  d: () => choose(selected, NONE), i: () => byId("item").focus(), n: () => byId("note").focus(),
  x: () => answer(selected, ""), z: undo, "?": showHelp, Escape: closePanel,
  ...Object.fromEntries(Array.from({ length: 9 }, (_, i) => [i + 1, () => takeCandidate(i)])),
};

function takeCandidate(i) {
  if (selected.candidates[i]) choose(selected, selected.candidates[i].id);
}

function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input")) return event.key === "Escape" ? byId("list").focus() : undefined;
  const deed = DEEDS[event.key];
  if (!deed || (!selected && event.key !== "?")) return;
  event.preventDefault();
  deed();
}

// Entries [name, answer] of a store; what is no answer stays out.
function entriesIn(store) {
  try {
    return JSON.parse(recall(store) || "[]")
      .filter(([, { qid }]) => ["", NONE, OPEN].includes(qid) || itemIn(qid))
      .map(([name, { qid, note }]) => [name, { qid, note: clean(String(note)) }]);
  } catch {
    return [];
  }
}

// Takes in what the browser has kept of this person.
function takeIn() {
  for (const [name, said] of entriesIn(storeName())) if (rowOf.has(name)) answers.set(name, said);
}

// Answers given in another tab of this page.
function takeOthers(event) {
  if (event.key !== storeName()) return;
  answers.clear();
  takeIn();
  if (!byId("panel").contains(document.activeElement)) drawAll();
}

// Answers of an earlier version of the sheet to classes that are open in this one.
const openIn = (store) => entriesIn(store).filter(([name, said]) => {
  const row = rowOf.get(name);
  return row && isOpen(row) && !sameAnswer(said, now(row));
});

function drawBanner() {
  if (data.live) return; // one store holds the answers of all versions
  const take = (stores) => {
    for (const [name, said] of stores.flatMap(openIn)) answers.set(name, said);
    keep();
    drawAll();
  };
  const gone = (stores) => {
    const left = stores.flatMap(entriesIn).length - stores.flatMap(openIn).length;
    return left ? ` Taking over drops ${counted(left, "answer")} to classes that are no longer open.` : "";
  };
  drawKept("links", "answer", openIn, take, gone);
}

function start() {
  takeIn();
  if (!data.live) keep();
  byId("undo").addEventListener("click", undo);
  byId("keys").addEventListener("click", showHelp);
  byId("who").addEventListener("click", askName);
  byId("save").addEventListener("click", save);
  byId("save").hidden = Boolean(data.live);
  document.addEventListener("keydown", pressKey);
  addEventListener("storage", takeOthers);
  drawAll();
  drawBanner();
  if (!data.live) return;
  listen();
  if (person) send();
  else askName();
}

start();
