// The keyboard, and the two dialogs.

const KEYS = [
  ["j  k", "next, previous value (or ↓ ↑)"],
  ["K", "keep it, with the chosen or the suggested supercategory"],
  ["m", "move it: choose a supercategory by typing"],
  ["d", "drop it: too vague, or of none of the supercategories"],
  ["u", "unsure: it stays open"],
  ["1–9", "choose one of the likeliest supercategories, also in the open chooser"],
  ["S", "the sure suggestions, to accept them as a block"],
  ["E", "rules: all open values whose label ends in a noun"],
  ["A", "keep all open values of its cluster likewise"],
  ["n", "write a note"],
  ["c", "comment"],
  ["z", "undo the last step"],
  ["x", "take this row's edit back"],
  ["/", "search; Esc leaves the field, Esc again empties it"],
  ["o", "the curve and the map"],
  ["← → ↑ ↓", "on the map: the value beside; Enter opens it, Esc leads back to the list"],
  ["?", "this help"],
];

const DEEDS = {
  j: () => go(1), ArrowDown: () => go(1),
  k: () => go(-1), ArrowUp: () => go(-1),
  PageDown: () => go(1, 10), PageUp: () => go(-1, 10),
  Home: () => go(-1, items.length), End: () => go(1, items.length),
  K: () => act("keep", true),
  m: () => act("move"),
  d: () => act("drop", true),
  u: () => act("unsure", true),
  A: keepCluster,
  S: showSure,
  E: showRules,
  n: () => byId("note")?.focus(),
  c: () => byId("comment")?.focus(),
  z: undoStep,
  x: () => selected && revert(selected),
  o: () => byId("map").focus(),
  "/": () => byId("search").focus(),
  "?": showHelp,
  Escape: leave,
  ...Object.fromEntries(Array.from({ length: LIKELY }, (_, i) => [i + 1, () => takeLikely(i)])),
};
const LISTED = ["ArrowDown", "ArrowUp", "PageDown", "PageUp", "Home", "End"];

function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, textarea, select");
  if (field && event.key === "Escape") {
    event.preventDefault(); // a browser would empty a search field without a word
    byId("list").focus({ preventScroll: true });
    return;
  }
  if (field === byId("search") && ["Enter", "ArrowDown"].includes(event.key)) {
    event.preventDefault();
    byId("list").focus({ preventScroll: true });
    return;
  }
  const inList = byId("list").contains(event.target);
  if (inList && event.key === "Enter") {
    event.preventDefault();
    return openChooser("");
  }
  const deed = DEEDS[event.key];
  if (field || !deed || (LISTED.includes(event.key) && !inList)) return;
  event.preventDefault();
  deed();
}

// Out of the map, out of the panel if it covers the list, else out of the search.
function leave() {
  if (document.activeElement === byId("map")) {
    byId("list").focus({ preventScroll: true });
    return bringWork();
  }
  const panel = byId("panel");
  const over = getComputedStyle(panel).position === "fixed" && panel.classList.contains("shown");
  if (over) closePanel();
  else if (filter.text) choose({ text: "" });
}

function undoStep() {
  const row = undo();
  if (!row) return say("Nothing to undo");
  show(row);
  say(`${row.label}: undone`);
}

function showHelp() {
  const terms = KEYS.flatMap(([keys, words]) => [
    make("dt", {}, ...keys.split("  ").flatMap((key) => [make("kbd", {}, key), " "])),
    make("dd", {}, words),
  ]);
  const kept = "What you decide is kept in this browser until you download and apply it.";
  const sent = "What you decide is saved at once; while the server is away, this browser keeps it.";
  const words = make("p", { class: "quiet" }, data.live ? sent : stored ? kept : NOTHING_KEPT);
  dialogOf("help", "Keys", make("dl", {}, ...terms), words);
}

function save() {
  download(data.file, writeSheet((row) => edits.get(row.key)));
  dialogOf("saved", `${data.file} is in your downloads`, ...savedWords());
}

// Decisions are signed with the name that the page knows; a shell reads it as it is.
const signedCommand = () =>
  data.command + (taxonomyEdits.length ? ` ${TAXONOMY_FILE}` : "") + (person && ` --set review.who="${person.replace(/["\\$`!]/g, "")}"`);

function savedWords() {
  const words = (text) => make("p", {}, text);
  const made = edits.size + remarks.size + taxonomyEdits.length;
  if (!made) return [words("It is the sheet as it was: nothing is decided here yet.")];
  if (data.blind) {
    return [
      words(`It is your blind copy with ${counted(made, "edit")}. Two of them are compared by:`),
      make("pre", {}, data.command),
    ];
  }
  const command = make("pre", {}, signedCommand());
  const unsigned = person ? null : nameField(() => (command.textContent = signedCommand()));
  const names = button("chip", () => download(TAXONOMY_FILE, writeTaxonomy()), `Download ${TAXONOMY_FILE}`);
  return [
    taxonomyEdits.length ? words(`Save your ${counted(taxonomyEdits.length, "edit")} of supercategories, too:`) : null,
    taxonomyEdits.length ? names : null,
    words(`It holds the whole sheet with your ${counted(made, "edit")}. This command applies them:`),
    command, unsigned,
    words("Write the folder of your downloads before review.csv, and the same --set as before."),
    words("If a row has a fault, nothing is applied, and the row is named."),
  ];
}
