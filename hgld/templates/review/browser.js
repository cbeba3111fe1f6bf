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

function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a private window
  }
}

function remember(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // asked again the next time
  }
}

const WHO = "hgld review name";
let person = recall(WHO) || ""; // who decides: asked once, kept in this browser

// Of this person on all versions of a sheet, wherever a copy of the page is.
const storesOf = (kind) => `hgld ${kind} ${data.live?.sheet || data.series} ${encodeURIComponent(person)} `;
const storeOf = (kind) => storesOf(kind) + (data.live ? "live" : data.hash); // a server's sheet changes

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
