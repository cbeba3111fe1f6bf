// Puts the page together.

function drawOverview() {
  drawCurve(); // first: it asks for its size, and the map is much to lay out
  drawMap();
}

function drawBar() {
  const found = groupBy(rows, statusOf);
  const order = ["decided", "dropped", "unsure", "stale"].filter((status) => found.has(status));
  const done = sizeOf(rows.filter(decides));
  const flex = (status) => `flex: ${sizeOf(found.get(status) || [])} 1 0`;
  byId("gauge").replaceChildren(
    ...order.map((status) => make("i", { class: status, title: status, style: flex(status) })),
    make("span", { style: flex("open") }),
  );
  byId("gauge").setAttribute("aria-label", `${percent(done, total)} of the ${unitWords} are decided`);
  byId("share").replaceChildren(...shareWords(done));
  byId("gate").textContent = gateWords();
  byId("left").textContent = leftWords();
  const made = edits.size + remarks.size;
  byId("edited").textContent = count(made);
  byId("edited").hidden = !made;
  byId("save").setAttribute("aria-label", `Download ${data.file}, ${counted(made, "edit")}`);
  byId("undo").disabled = !steps.length;
  byId("who").replaceChildren(...personWords());
}

// Both shares, since the gate of the run counts landmarks and the sheet is ordered by images.
function shareWords(done) {
  const images = span(bold(percent(done, total)), " of images, ");
  const landmarks = span(bold(percent(...decidedLandmarks())), ` of ${plural(data.landmarks.noun)}`);
  return [unit === "images" ? images : "", landmarks];
}

function gateWords() {
  if (data.blind) return "A blind copy: it shows no suggestion and no decision of anybody else.";
  const [done, all] = decidedLandmarks();
  const share = `${(100 * data.landmarks.needed).toFixed(1).replace(/\.0$/, "")} %`;
  return `The run goes on once ${share} of the ${counted(all, data.landmarks.noun)} are decided, with all their `
    + `values; ${count(all - done)} are open.`;
}

// How many landmarks have all their values decided, of how many.
function decidedLandmarks() {
  const { alone, shared, total: all } = data.landmarks;
  const single = rows.filter(decides).reduce((sum, row) => sum + alone[row.number], 0);
  const whole = shared.filter(([places]) => places.every((i) => decides(rows[i])));
  return [single + whole.reduce((sum, [, here]) => sum + here, 0), all];
}

function drawLegend() {
  byId("legend").replaceChildren(
    ...STATUSES.map((status) => make("li", { class: status }, make("i"), status)),
  );
}

function drawBanner() {
  drawKept("review", "edit", readStore, (names) => {
    names.forEach(takeIn);
    keep();
    tell();
  });
}

function footing() {
  const shown = Object.keys(data.photos).map(Number);
  const photos = Object.values(data.photos).flat().length;
  const parts = [`Sheet ${data.hash}.`];
  const owed = "each belonging to its author and shown in a small copy under the licence below it";
  const later = "The values further down get theirs once those before them are decided.";
  if (photos) parts.push(`${counted(photos, "photo")}, ${owed}.`);
  if (photos && Math.max(...shown) < rows.length - 1) parts.push(later);
  return parts.join(" ");
}

function drawCounts() {
  byId("counts").textContent = [
    counted(rows.length, "value"), `${count(total)} ${unitWords}`,
    ...(data.blind ? [] : [counted(membersOf.size, "cluster")]),
    `${counted(data.taxonomy.length, "supercategory").replace(/ys$/, "ies")} to choose from`,
  ].join(" · ");
  byId("rule-list").hidden = data.blind || !rules().length;
}

function start() {
  takeInTaxonomy();
  takeIn(storeName());
  takeInRemarks();
  stepsOfEdits();
  pace.before = steps.length;
  keep();
  votes = null;
  drawCounts();
  byId("unit").textContent = unitWords;
  byId("footing").textContent = footing();
  fillSelects();
  changed.push(() => (votes = null), measurePace, drawCounts, drawBar, drawStatuses, redrawRows, () => live.refresh());
  changed.push(settled(drawOverview), settled(refit));
  byId("sure-ones").addEventListener("click", showSure);
  byId("rule-list").addEventListener("click", showRules);
  byId("list").addEventListener("scroll", once(drawRows), { passive: true });
  byId("undo").addEventListener("click", undoStep);
  byId("keys").addEventListener("click", showHelp);
  byId("who").addEventListener("click", askName);
  byId("who").hidden = Boolean(data.live); // a server's page shows everybody
  byId("save").addEventListener("click", save);
  document.addEventListener("keydown", pressKey);
  byId("map").addEventListener("keydown", walkMap);
  new ResizeObserver(once(() => { drawOverview(); drawRows(); })).observe(byId("map"));
  addEventListener("storage", takeOthers);
  addEventListener("beforeunload", (event) => edits.size && !stored && event.preventDefault());
  drawLegend();
  drawBar();
  drawBanner();
  drawStatuses();
  const chosen = rowOf.get(recall(CHOSEN, inTab)); // before relist chooses the first row
  relist();
  if (chosen) reach(chosen);
  drawOverview();
  performance.mark("drawn");
  refit(edits.size > 0);
  if (data.live) startLive();
  if (data.blind && !edits.size) askName(); // another annotator may have used this browser
}

// Edits made in another tab of this page.
function takeOthers(event) {
  if (event.key !== storeName()) return;
  edits.clear();
  takeIn(storeName());
  stepsOfEdits();
  tell();
}

start();
