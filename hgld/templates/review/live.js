// Decisions shared through a server: sent as they are made, and those of others as they come.

const AGAIN_MS = 1000; // between two attempts to reach the server
const QUIET_MS = 4000; // of a note that is being written, until it is sent
const session = {
  at: data.live.at, who: "", people: [], away: "", sending: false, stream: null, again: 0,
  refused: new Map(), // step -> why the server refused it
};

function startLive() {
  session.who = clean(recall(WHO) || "");
  const saved = JSON.parse(recall(`${storeName()} saved`) || "[]").filter(({ keys }) => keys.every((key) => rowOf.has(key)));
  steps.unshift(...saved.map(({ id, keys }) => Object.assign(keys.map((key) => [key]), { id, saved: true })));
  byId("save").before(button("primary", showPeople, span(""), make("b", { hidden: true })));
  byId("save").previousSibling.id = "people";
  byId("save").hidden = true;
  byId("banner").after(make("div", { class: "banner", id: "away", role: "status", hidden: true }));
  changed.push(drawPeople, sendSoon);
  document.addEventListener("focusout", (event) => event.target.id === "note" && send());
  document.addEventListener("visibilitychange", () => document.hidden && send());
  drawPeople();
  if (session.who) connect();
  else showPeople();
}

// The stream of news; if it breaks, it is opened again, and what waits is sent.
function connect() {
  session.stream?.close();
  const asked = new URLSearchParams({ since: session.at, who: session.who });
  const stream = new EventSource(`events?${asked}`);
  session.stream = stream;
  stream.onmessage = (event) => {
    receive(JSON.parse(event.data));
    if (session.away) send();
  };
  stream.onerror = () => {
    stream.close(); // a browser would not try again after some errors
    clearTimeout(session.again);
    session.again = setTimeout(connect, AGAIN_MS);
    leaveServer();
  };
}

function leaveServer() {
  session.away = "The server does not answer";
  drawPeople();
}

async function ask(path, facts) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...facts, who: session.who, since: session.at }),
  });
  const found = await answer.json();
  if (answer.ok) return found;
  throw Object.assign(new Error(found.error), { refused: answer.status === 422 });
}

const numberOf = (at) => Number(at.split(":")[1]);
const sameRun = (one, other) => one.split(":")[0] === other.split(":")[0];

// Takes in what is new; an answer that the stream has overtaken says nothing new.
function receive({ at, news, people }) {
  if (people) session.people = people;
  if (sameRun(at, session.at) && numberOf(at) < numberOf(session.at)) return;
  session.at = at;
  session.away = "";
  if (news.taxonomy) renewTaxonomy(Object.values(news.taxonomy)[0]);
  for (const [key, facts] of Object.entries(news.rows || {})) {
    if (rowOf.has(key)) renewRow(rowOf.get(key), facts);
  }
  if (Object.keys(news).length) keep();
  tell();
}

function renewRow(row, facts) {
  for (const [name, cell] of Object.entries(facts)) {
    if (name in place) row.cells[place[name]] = guard(cell);
  }
  row.base = Object.fromEntries(EDITABLE.map((name) => [name, facts[name]]));
  row.from = facts.base;
  row.status = facts.status;
  row.sides = facts.sides;
  if (edits.has(row.key) && sameCells(edits.get(row.key), row.base)) edits.delete(row.key);
}

function renewTaxonomy(taxonomy) {
  data.taxonomy = taxonomy;
  kindOf.clear();
  namedOf.clear();
  for (const { supercategory, kind } of taxonomy) {
    kindOf.set(supercategory, kind);
    namedOf.set(supercategory.toLowerCase(), supercategory);
  }
}

// A decision is sent at once; a note when its field is left, or after a pause.
let quiet = 0;
function sendSoon() {
  clearTimeout(quiet);
  if (document.activeElement?.id === "note") quiet = setTimeout(send, QUIET_MS);
  else send();
}

// Sends what waits, step by step, so that each can be undone by itself.
async function send() {
  if (session.sending || !session.who) return;
  session.sending = true;
  try {
    for (let step = nextStep(); step; step = nextStep()) await sendStep(step);
  } catch (error) {
    if (error.refused === undefined) leaveServer(); // no connection
    else session.away = error.message;
    setTimeout(send, AGAIN_MS);
  }
  session.sending = false;
  drawPeople();
}

const nextStep = () => [...edits.values()].find(({ step }) => !session.refused.has(step))?.step;

async function sendStep(id) {
  const sent = [...edits].filter(([, cells]) => cells.step === id);
  const cells = ([key, { decision, supercategory, kind, note: why, from }]) =>
    ({ key, base: from, decision, supercategory, kind, note: why });
  let found;
  try {
    found = await ask("decisions", { entry: id, rows: sent.map(cells) });
  } catch (error) {
    if (!error.refused) throw error;
    session.refused.set(id, error.message);
    return;
  }
  for (const [key, wanted] of sent) if (edits.get(key) === wanted) edits.delete(key);
  const step = steps.find((one) => one.id === id);
  if (step) markSaved(step);
  receive(found);
  if (!step) await takeBack(id); // undone while it was on its way
  const disputed = Object.entries(found.done).filter(([, fate]) => fate === "conflict");
  if (disputed.length) say(`${rowOf.get(disputed[0][0]).label}: somebody decided otherwise meanwhile; both are kept`);
}

// The steps that can be undone also after a reload.
function markSaved(step) {
  Object.assign(step, { saved: true, noteOf: undefined });
  const saved = steps.filter((one) => one.saved).slice(-200);
  remember(`${storeName()} saved`, JSON.stringify(saved.map((one) => ({ id: one.id, keys: one.map(([key]) => key) }))));
}

async function takeBack(id) {
  const found = await ask("undo", { entry: id });
  receive(found);
  return found.done;
}

// Undoes a step that the server has; what somebody decided since stays.
async function undoSaved(step) {
  try {
    const done = await takeBack(step.id);
    const kept = Object.entries(done).filter(([, fate]) => fate !== "undone");
    if (kept.length) say(`${rowOf.get(kept[0][0])?.label}: ${kept[0][1]}; not undone`);
  } catch (error) {
    if (!error.refused) steps.push(step);
    say(error.refused ? error.message : "The server does not answer; nothing is undone");
  }
  markSaved([]);
  drawBar();
}

function drawPeople() {
  const [words, number] = byId("people").children;
  const refused = [...edits.values()].find(({ step }) => session.refused.has(step));
  const others = session.people.filter((name) => name !== session.who);
  words.textContent = session.who || "Your name";
  number.textContent = edits.size ? count(edits.size) : others.length ? `+${others.length}` : "";
  number.hidden = !number.textContent;
  const state = edits.size ? `${count(edits.size)} not saved yet` : "all saved";
  const title = [session.who, state, ...others.map((name) => `${name} is here`)].join(", ");
  byId("people").setAttribute("aria-label", title);
  byId("people").title = title;
  const kept = stored ? "kept in this browser and sent" : "sent, if this page stays open,";
  const waits = edits.size ? `; your ${counted(edits.size, "decision")} will be ${kept} when it is back` : "";
  const words_ = refused ? `Not saved: ${session.refused.get(refused.step)}` : `${session.away}${waits}.`;
  const back = button("", () => dropRefused(), "Take it back");
  byId("away").replaceChildren(span(words_), ...(refused ? [back] : []));
  byId("away").hidden = !session.away && !refused;
}

function dropRefused() {
  for (const [key, { step }] of [...edits]) if (session.refused.has(step)) edits.delete(key);
  session.refused.clear();
  keep();
  tell();
}

function showPeople() {
  const field = make("input", { id: "name", type: "text", maxlength: "80", autocomplete: "name", value: session.who || data.live.who });
  const words = (text) => make("p", { class: "quiet" }, text);
  const others = session.people.filter((name) => name !== session.who);
  const take = () => {
    const who = clean(field.value);
    if (!who || who === session.who) return;
    session.who = who;
    remember(WHO, who);
    connect();
    send();
    drawPeople();
  };
  dialogOf("saved", "Who decides?",
    make("label", { class: "field" }, "Your name", field),
    words("It signs your decisions, which are published with the labels."),
    words(others.length ? `Also here: ${others.join(", ")}.` : "Nobody else is here."),
    words(edits.size ? `${counted(edits.size, "decision")} not saved yet.` : `All decisions are saved in ${data.live.file}.`),
    button("chip", save, "Download review.csv"));
  byId("saved").addEventListener("close", take, { once: true });
  field.addEventListener("keydown", (event) => event.key === "Enter" && byId("saved").close());
  field.focus();
  field.select();
}

// The photos of a value are asked for when it is shown.
async function fetchPhotos(row, strip) {
  if (!data.photos[row.number]) {
    try {
      data.photos[row.number] = await (await fetch(`photos?key=${encodeURIComponent(row.key)}`)).json();
    } catch {
      return; // asked again when the value is shown again
    }
  }
  strip.replaceChildren(...data.photos[row.number].map(figureOf));
  strip.hidden = !data.photos[row.number].length;
}
