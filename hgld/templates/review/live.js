// Decisions shared through a server: sent as they are made, and those of others as they come.

const AGAIN_MS = 1000; // between two attempts to reach the server
const QUIET_MS = 4000; // of a note that is being written, until it is sent
const MOST_STEPS = 200; // that can be undone after a reload
const session = {
  at: data.live.at, people: [], away: "", sending: false, stream: null, again: 0, quiet: 0,
  refused: new Map(), // step -> why the server refused it
  outdated: false, // the clusters were made again since this page was
};

// Decisions of one tab, person and day are one entry of the log; a reload does not end it.
const SITTING = "hgld review sitting";
const sitting = () => {
  try {
    if (!sessionStorage.getItem(SITTING)) sessionStorage.setItem(SITTING, newStep());
    return sessionStorage.getItem(SITTING);
  } catch {
    return (session.sitting ??= newStep()); // a private window
  }
};

function startLive() {
  byId("save").hidden = true; // nothing has to be downloaded
  byId("save").before(make("button", {
    type: "button", id: "people", class: "primary", "aria-haspopup": "dialog", onclick: showPeople,
  }, span(), make("b")));
  byId("banner").after(make("div", { class: "banner", id: "away", role: "status", hidden: true }));
  document.body.append(make("dialog", { id: "shared", "aria-labelledby": "shared-title" }));
  recallSteps();
  changed.push(drawPeople, sendSoon);
  document.addEventListener("focusout", (event) => ["note", "comment"].includes(event.target.id) && send());
  document.addEventListener("visibilitychange", () => document.hidden && send());
  drawPeople();
  connect();
  if (person) send();
  else showPeople();
}

// The steps that this person has saved before can be undone, too.
function recallSteps() {
  const known = (step) => step.keys.every((key) => rowOf.has(key));
  const saved = JSON.parse(recall(`${storeName()} saved`) || "[]").filter(known);
  steps.unshift(...saved.map(({ keys, ...made }) => Object.assign(keys.map((key) => [key]), made)));
  pace.before = steps.length;
  drawBar();
}

// The stream of news. After an error it is opened again, since a browser gives up after some.
function connect() {
  session.stream?.close();
  const stream = new EventSource(`events?${new URLSearchParams({ since: session.at, who: person })}`);
  session.stream = stream;
  stream.onmessage = (event) => receive(JSON.parse(event.data));
  stream.onerror = () => {
    stream.close();
    clearTimeout(session.again);
    session.again = setTimeout(connect, AGAIN_MS);
    leaveServer("The server does not answer");
  };
}

function leaveServer(why) {
  session.away = why;
  drawPeople();
}

async function ask(path, facts) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...facts, who: person, since: session.at }),
  });
  const found = await answer.json();
  if (answer.ok) return found;
  throw Object.assign(new Error(found.error), { isRefusal: answer.status === 422, isAnswer: true });
}

// Takes in what is new. An answer that the stream has overtaken would be a step back.
function receive({ at, news, people }) {
  const wasAway = session.away;
  session.away = "";
  session.people = people || session.people;
  if (!isBefore(at, session.at)) {
    session.at = at;
    if (news.clusters) session.outdated = news.clusters[""] !== data.live.clusters;
    if (news.taxonomy) renewTaxonomy(news.taxonomy[""], news.renamed || {});
    for (const [key, facts] of Object.entries(news.rows || {})) {
      if (rowOf.has(key)) renewRow(rowOf.get(key), facts);
    }
    for (const [key, thread] of Object.entries(news.comments || {})) {
      if (rowOf.has(key)) data.comments[rowOf.get(key).number] = thread;
    }
  }
  if (Object.keys(news).length || !people) { // of an own request there is always something to draw
    keep();
    return tell();
  }
  drawPeople();
  if (wasAway) send();
}

function renewRow(row, { history, ...facts }) {
  for (const [name, cell] of Object.entries(facts)) {
    if (name in place) row.cells[place[name]] = guard(cell);
  }
  row.base = Object.fromEntries(EDITABLE.map((name) => [name, facts[name]]));
  row.from = facts.base;
  row.status = facts.status;
  data.history[row.number] = history;
  if (edits.has(row.key) && sameCells(edits.get(row.key), row.base)) edits.delete(row.key);
}

// Names that are gone may have been renamed several times; names that are there are not followed.
function renewTaxonomy(taxonomy, renamed) {
  const before = [...kindOf.keys()];
  setTaxonomy(taxonomy);
  for (const old of before.filter((name) => !kindOf.has(name))) {
    const passed = new Set([old]);
    let [name] = renamed[old] || [];
    while (name && !kindOf.has(name) && !passed.has(name)) {
      passed.add(name);
      [name] = renamed[name] || [];
    }
    followName(old, kindOf.has(name) ? name : old);
  }
  fillSupercategories();
  renewTaxonomyList();
}

// Edits of the taxonomy that this person can take back here, the last one at the end.
const savedEditsStore = () => `${storeName()} ${encodeURIComponent(person)} taxonomy`;
const savedTaxonomyEdits = () => JSON.parse(recall(savedEditsStore()) || "[]");

// Lets the server make an edit; returns why it did not, empty if it did.
async function saveTaxonomyEdit(wanted, keys) {
  if (!person) return "Give your name first: it signs the edit.";
  try {
    const found = await ask("taxonomy", { edit: wanted, keys });
    if (found.entry) remember(savedEditsStore(), JSON.stringify([...savedTaxonomyEdits(), found.entry]));
    receive(found);
    drawPanel();
    return "";
  } catch (error) {
    return error.isAnswer ? error.message : "The server does not answer; nothing is changed.";
  }
}

// The last one that nobody took back meanwhile.
async function takeSavedEditBack() {
  const made = savedTaxonomyEdits();
  try {
    let found;
    do found = await ask("undo", { entry: made.pop() });
    while (!found.left && made.length);
    remember(savedEditsStore(), JSON.stringify(made));
    receive(found);
    drawPanel();
    showTaxonomy();
    if (!found.left) say("Somebody took it back already");
    else if (found.left.length) say(`Decided again since, and left as it is: ${found.left.join("; ")}`);
  } catch (error) {
    const why = error.isAnswer ? error.message : "The server does not answer; nothing is taken back.";
    byId("taxonomy").querySelector("p").replaceChildren(make("span", { class: "fault", role: "alert" }, why));
  }
}

// A decision is sent at once, a note when its field is left or after a pause.
function sendSoon() {
  clearTimeout(session.quiet);
  if (document.activeElement?.id === "note") session.quiet = setTimeout(send, QUIET_MS);
  else send();
}

// Sends what waits, step by step, so that each can be undone by itself.
async function send() {
  if (session.sending || !person) return;
  session.sending = true;
  try {
    for (let step = nextStep(); step; step = nextStep()) await sendStep(step);
    const refusals = [];
    for (const [key, text] of remarks) if (!isWriting(key)) refusals.push(await sendRemark(key, text));
    const [why] = refusals.filter(Boolean);
    if (why) throw Object.assign(new Error(why), { isAnswer: true });
  } catch (error) {
    leaveServer(error.isAnswer ? error.message : "The server does not answer");
    setTimeout(send, AGAIN_MS);
  }
  session.sending = false;
  drawPeople();
}

const nextStep = () => [...edits.values()].find(({ step }) => !session.refused.has(step))?.step;

async function sendStep(id) {
  const sent = [...edits].filter(([, cells]) => cells.step === id);
  const asRow = ([key, { decision, supercategory, kind, note: why, from, evidence, block }]) =>
    ({ key, decision, supercategory, kind, note: why, base: from, evidence, ...(block && { block }) });
  let found;
  try {
    found = await ask("decisions", { rows: sent.map(asRow), sitting: sitting() });
  } catch (error) {
    if (!error.isRefusal) throw error;
    session.refused.set(id, error.message);
    return;
  }
  for (const [key, cells] of sent) if (edits.get(key) === cells) edits.delete(key);
  const step = steps.find((one) => one.id === id);
  const made = { entry: found.entry, rows: found.rows };
  if (step) Object.assign(step, made, { noteOf: undefined });
  keepSteps();
  receive(found);
  if (undone.has(id) && found.entry) receive(await ask("undo", made));
  const [disputed] = Object.keys(found.done).filter((key) => found.done[key] === "conflict");
  if (disputed) say(`${rowOf.get(disputed).label}: decided otherwise by somebody else; both are kept`);
}

// A comment is sent when its field is left. One that is refused keeps no other one back.
const isWriting = (key) => document.activeElement?.id === "comment" && selected?.key === key;

async function sendRemark(key, text) {
  let found;
  try {
    found = await ask("comments", { key, text });
  } catch (error) {
    if (!error.isRefusal) throw error;
    return `The comment on ${rowOf.get(key).label} is not saved: ${error.message}`;
  }
  if (remarks.get(key) === text) remarks.delete(key);
  remember(remarkStore(), JSON.stringify([...remarks]));
  receive(found);
  return "";
}

function keepSteps() {
  const saved = steps.filter(({ entry }) => entry).slice(-MOST_STEPS);
  const facts = saved.map((step) => ({ entry: step.entry, rows: step.rows, keys: step.map(([key]) => key) }));
  remember(`${storeName()} saved`, JSON.stringify(facts));
}

// Takes back a step that the server has; what somebody decided since stays.
async function undoSaved(step) {
  try {
    const found = await ask("undo", { entry: step.entry, rows: step.rows });
    receive(found);
    const [left] = found.left;
    if (left) say(`${rowOf.get(left)?.label || left} was decided again since, and stays as it is`);
  } catch (error) {
    if (!error.isRefusal) steps.push(step);
    say(error.isAnswer ? error.message : "The server does not answer; nothing is undone");
  }
  keepSteps();
  drawBar();
}

const otherPeople = () => session.people.filter((name) => name && name !== person);
const unsavedWords = () => (edits.size ? `${counted(edits.size, "decision")} not saved yet` : "all saved");

function drawPeople() {
  const [name, number] = byId("people").children;
  const others = otherPeople();
  name.textContent = person || "Your name";
  number.textContent = edits.size ? count(edits.size) : `+${others.length}`;
  number.hidden = !edits.size && !others.length;
  const words = [person || "Your name", unsavedWords(), ...others.map((other) => `${other} is here`)];
  byId("people").title = words.join(", ");
  byId("people").setAttribute("aria-label", words.join(", "));
  const refused = [...edits.values()].find(({ step }) => session.refused.has(step));
  const banner = [];
  if (refused) {
    const why = span(`Not saved: ${session.refused.get(refused.step)}`);
    banner.push(why, button("", sendRefused, "Try again"), button("", dropRefused, "Take it back"));
  } else if (session.away) banner.push(span(awayWords()));
  else if (session.outdated) {
    banner.push(span(OUTDATED), button("", () => location.reload(), "Reload"));
  }
  byId("away").replaceChildren(...banner);
  byId("away").hidden = !banner.length;
}

const OUTDATED = "The clusters were made again since this page was; it shows the values of before.";

function awayWords() {
  if (!edits.size) return `${session.away}; decide on, nothing is lost.`;
  const kept = stored ? "kept in this browser" : "kept while this page is open";
  return `${session.away}; ${counted(edits.size, "decision")} ${kept}, and sent when it is back.`;
}

function sendRefused() {
  session.refused.clear();
  send();
}

function dropRefused() {
  for (const [key, { step }] of [...edits]) if (session.refused.has(step)) edits.delete(key);
  session.refused.clear();
  keep();
  tell();
}

function showPeople() {
  const others = otherPeople();
  const field = nameField(() => {
    recallSteps();
    connect();
    send();
  });
  const words = (text) => make("p", { class: "quiet" }, text);
  const later = [
    words(others.length ? `Also here: ${others.join(", ")}.` : "Nobody else is here."),
    words(edits.size ? `${unsavedWords()}.` : `All decisions are saved in ${data.live.file}.`),
    button("chip", downloadSheet, "Download review.csv"),
  ];
  dialogOf("shared", "Who decides?", field,
    words("It signs your decisions, which are published with the labels."), ...(person ? later : []));
  const input = byId("name");
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // the button that has the focus next must not open the dialog again
    input.blur();
    byId("shared").close();
  });
  input.focus();
  input.select();
}

function downloadSheet() {
  byId("shared").close();
  save();
}

// The photos of a value are asked for when it is shown.
async function fetchPhotos(row, strip) {
  if (!data.photos[row.number]) {
    const answer = await fetch(`photos?key=${encodeURIComponent(row.key)}`).catch(() => null);
    if (!answer?.ok) return; // asked again when the value is shown again
    data.photos[row.number] = await answer.json();
  }
  strip.replaceChildren(...data.photos[row.number].map(figureOf));
  strip.hidden = !data.photos[row.number].length;
  if (row === selected) byId("examples").replaceWith(exampleWords(row));
}
