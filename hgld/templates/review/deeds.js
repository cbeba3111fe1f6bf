// What a person does to a value: decide it, take it back, decide its cluster, write a note.

function decide(row, decision, supercategory) {
  edit([[row, renew(row, decision, supercategory)]]);
  const { supercategory: name } = now(row);
  say(`${row.label}: ${decision}${name ? `, ${name}` : ""}`);
}

// Decides the chosen row; a place is asked for where none is named or suggested.
function act(decision, onwards) {
  const row = selected;
  if (!row) return;
  const known = kindOf.has(now(row).supercategory) ? now(row).supercategory : "";
  const name = known || suggestionOf(row);
  if (decision === "move" || (decision === "keep" && !name)) return openChooser(decision);
  decide(row, decision, decision === "unsure" ? known : name);
  if (onwards) advance();
}

function revert(row) {
  if (!edits.has(row.key)) return;
  edit([[row, undefined]]);
  say(`${row.label}: as it was`);
}

// The same supercategory for every value of the cluster that is still open; a value for which
// another one is suggested is left alone.
function keepCluster() {
  const [name, open] = clusterOffer(selected);
  if (!name || !open.length) return;
  edit(open.map((row) => [row, complete("keep", name, now(row).note)]));
  say(`${counted(open.length, "value")} kept as ${name}; z takes it back`);
}

function clusterOffer(row) {
  if (!row) return ["", []];
  const members = row.cluster === "" ? [] : membersOf.get(row.cluster);
  const name = leaning(row);
  const fits = (other) => other === row || ["", name].includes(adviceOf(other).name);
  return [name, members.filter((other) => statusOf(other) === "open" && fits(other))];
}

// A note needs a decision beside it, so an open value with a note counts as unsure.
function note(row, text) {
  const before = now(row);
  const last = steps[steps.length - 1];
  const wanted = complete(before.decision || "unsure", before.supercategory, text);
  const cells = clean(text) || before.decision ? wanted : undefined;
  if (last?.noteOf === row.key) {
    put(row, cells && { ...cells, step: last.id });
    keep();
    tell();
  } else {
    edit([[row, cells]]);
    steps[steps.length - 1].noteOf = row.key; // one step for all that is typed
  }
}
