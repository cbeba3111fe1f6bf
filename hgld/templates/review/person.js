// Who decides, asked once.

// Edits that were made before the name was known are the person's; those of another one are not.
function signAs(name) {
  const unsigned = person ? [] : [...edits];
  const unsaid = new Map(person ? [] : remarks);
  const unnamed = person ? [] : [...taxonomyEdits];
  if (!person) forget([storeName(), remarkStore(), taxonomyStore()]);
  person = name;
  remember(WHO, name);
  edits.clear();
  steps.length = 0;
  readTaxonomyEdits(unnamed);
  takeIn(storeName());
  takeInRemarks();
  if (unsaid.size) unsaid.forEach((text, key) => remarks.set(key, text));
  remember(remarkStore(), JSON.stringify([...remarks]));
  for (const [key, cells] of unsigned) put(rowOf.get(key), cells);
  stepsOfEdits();
  keep();
  tell();
  drawBanner();
}

function askName() {
  const words = "It signs your decisions, which are published with the labels. Your edits are kept "
    + "in this browser under this name; somebody else gives another one.";
  dialogOf("help", "Who decides?", nameField(), make("p", { class: "quiet" }, words));
  byId("name").focus();
}
