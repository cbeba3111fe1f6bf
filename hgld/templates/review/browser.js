// What all pages share: cells of a CSV, downloads, what a browser keeps, dialogs, photos.

const clean = (text) => text.replace(/\s+/g, " ").trim();

// As hgld.artifacts.cells does: no cell may look like a formula to a spreadsheet.
const guard = (cell) => (/^'*[=+\-@\t\r\0＝＋－＠]/.test(cell) ? `'${cell}` : cell);

const quote = (cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);

function download(name, text) {
  const file = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const anchor = make("a", { href: file, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(file), 10_000);
}

const inBrowser = () => localStorage;
const inTab = () => sessionStorage; // it outlives a reload, but not the tab

function recall(name, kept = inBrowser) {
  try {
    return kept().getItem(name);
  } catch {
    return null; // a private window
  }
}

function remember(name, text, kept = inBrowser) {
  try {
    kept().setItem(name, text);
  } catch {
    // asked again the next time
  }
}

let stored = true;
const NOTHING_KEPT = "This browser keeps nothing: download before you close the page.";

// Keeps the entries under a name; without entries the name is removed.
function keepAs(name, entries) {
  try {
    if (entries.length) localStorage.setItem(name, JSON.stringify(entries));
    else localStorage.removeItem(name);
    stored = true;
  } catch {
    stored = false; // a private window, or no room: the page says so
  }
}

function forget(names) {
  try {
    names.forEach((name) => localStorage.removeItem(name));
  } catch {
    // nothing is kept, so nothing is left
  }
}

const WHO = "hgld review name";
let person = recall(WHO) || ""; // who decides: asked once, kept in this browser

// Of this person on all versions of a sheet, wherever a copy of the page is.
const storesOf = (kind) => `hgld ${kind} ${data.live?.sheet || data.series} ${encodeURIComponent(person)} `;
const storeOf = (kind) => storesOf(kind) + (data.live ? "live" : data.hash); // a server's sheet changes

// Names under which something that `read` still finds is kept of earlier versions of this sheet.
function earlierStores(kind, read) {
  try {
    return Object.keys(localStorage).filter(
      (name) => name.startsWith(storesOf(kind)) && name !== storeOf(kind) && read(name).length,
    );
  } catch {
    return [];
  }
}

// Offers to take over or discard what is kept of earlier versions of this sheet.
function drawKept(kind, noun, read, take, besides = () => "") {
  const earlier = earlierStores(kind, read);
  const found = earlier.reduce((sum, name) => sum + read(name).length, 0);
  const done = (text) => {
    forget(earlier);
    drawKept(kind, noun, read, take, besides);
    say(text);
  };
  const takeOver = () => {
    take(earlier);
    done("Taken over");
  };
  const words = `This browser keeps ${counted(found, noun)} made on an earlier version of this sheet.`;
  const offer = [
    span(words, besides(earlier)),
    button("", takeOver, "Take over"),
    button("", () => done("Discarded"), "Discard"),
  ];
  byId("banner").replaceChildren(...(stored ? (found ? offer : []) : [span(NOTHING_KEPT)]));
  byId("banner").hidden = stored && !found;
}

function nameField(taken = () => {}) {
  const field = make("input", {
    id: "name", type: "text", maxlength: "80", autocomplete: "name", value: person,
    onchange: () => {
      const name = clean(field.value);
      if (name && name !== person) signAs(name);
      taken();
    },
  });
  return make("label", { class: "field" }, "Your name", field);
}

// Whether a version "run:number" of the server is before another one; another run is never before.
function isBefore(at, other) {
  const [run, number] = at.split(":");
  const [otherRun, otherNumber] = other.split(":");
  return run === otherRun && Number(number) < Number(otherNumber);
}

function dialogOf(id, title, ...inside) {
  const dialog = byId(id);
  const close = button("primary", () => dialog.close(), "Close");
  const head = make("h2", { id: `${id}-title` }, title);
  dialog.replaceChildren(head, ...inside.filter(Boolean), make("form", {}, close));
  dialog.showModal();
  close.focus({ preventScroll: true });
  dialog.scrollTop = 0;
}

function figureOf(photo) {
  const name = photo.landmark || photo.title;
  return make("figure", { "aria-label": name },
    make("img", { src: photo.src || `data:image/jpeg;base64,${photo.jpeg}`, alt: name }),
    make("figcaption", {},
      make("span", { title: photo.title }, bold(link(name, photo.url))),
      make("span", { title: photo.byline }, photo.byline),
      span(link(photo.terms, photo.license_url))));
}

// On narrow screens the panel covers the list.
const closePanel = () => byId("panel").classList.remove("shown");

function closeButton() {
  const node = button("close-panel", closePanel, "✕");
  node.setAttribute("aria-label", "Close");
  return node;
}

function personWords() {
  if (person) return [person];
  return [make("span", { class: "wide" }, "Your name"), make("span", { class: "narrow" }, "Name")];
}
