// The sheet: its cells as the CSV has them, what they mean, and the CSV again.

const data = JSON.parse(byId("data").textContent);
const EDITABLE = ["decision", "supercategory", "kind", "note"];
const place = Object.fromEntries(data.columns.map((name, i) => [name, i]));
const GONE = "-1"; // the cluster of a decision whose value is not there any more
const TRANSLATED = data.columns.filter((name) => name.startsWith("label_")); // label_de: German
const kindOf = new Map(data.taxonomy.map((row) => [row.supercategory, row.kind]));
const namedOf = new Map(data.taxonomy.map((row) => [row.supercategory.toLowerCase(), row.supercategory]));

const rows = data.rows.map(readRow);
const rowOf = new Map(rows.map((row) => [row.key, row]));
const unit = rows.some((row) => row.images > 0) ? "images" : "landmarks";
const unitWord = unit === "images" ? "image" : data.landmarks.noun;
const unitWords = plural(unitWord);
const total = rows.reduce((sum, row) => sum + row[unit], 0);
const membersOf = groupBy(rows, (row) => row.cluster);
const closeMargin = lowestFifth(rows.map((row) => row.margin).filter(Number.isFinite));

function readRow(cells, number) {
  const plain = data.plain[number] || {};
  const read = (name) => plain[name] ?? cells[place[name]] ?? "";
  const figure = (name) => (read(name) === "" ? NaN : Number(read(name)));
  const row = {
    number,
    cells,
    key: read("key"),
    byId: read("key_type") === "qid",
    label: read("instance_of") || read("key"),
    translations: TRANSLATED.map((name) => [name.slice(6), read(name)]).filter(([, text]) => text),
    landmarks: figure("landmarks") || 0,
    images: figure("images") || 0,
    examples: read("examples"),
    cluster: read("cluster") === GONE ? "" : read("cluster"),
    gone: read("cluster") === GONE,
    clusterName: read("cluster_name"),
    distance: figure("distance"),
    margin: figure("margin"),
    hint: read("hint"),
    suggestion: [...kindOf.keys(), "drop"].includes(read("suggestion")) ? read("suggestion") : "",
    probability: figure("probability") || 0,
    reason: read("reason"),
    status: read("status"),
    next: data.next[number] === null ? "" : String(data.next[number]),
    base: Object.fromEntries(EDITABLE.map((name) => [name, read(name)])),
    from: read("base"), // of which decision these cells are
    evidence: read("evidence"), // of what the value is
  };
  row.haystack = fold(
    [row.label, ...row.translations.flat(), row.key, row.examples, row.clusterName, row.base.note].join(" "),
  );
  return row;
}

// The CSV with the edited cells in place of the old ones; without edits the same bytes as the file.
function writeSheet(wantedOf) {
  const more = remarks.size ? ["comment"] : [];
  if (rows.some((row) => wantedOf(row)?.block)) more.push("block");
  const lines = rows.map((row) => {
    const wanted = wantedOf(row);
    const added = { comment: remarks.get(row.key), block: wanted?.block };
    const cells = [...row.cells, ...more.map((name) => guard(added[name] || ""))];
    if (!wanted) return cells;
    for (const name of EDITABLE) cells[place[name]] = guard(wanted[name]);
    cells[place.base] = wanted.from;
    return cells;
  });
  const text = [[...data.columns, ...more], ...lines].map((cells) => `${cells.map(quote).join(",")}\r\n`);
  return `\ufeff${text.join("")}`;
}

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

function lowestFifth(margins) {
  const sorted = margins.sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 5)] : -Infinity;
}

// The supercategory that has the very name of a value.
const namesake = (row) => namedOf.get(row.label.toLowerCase());

const clusterName = (id) => data.clusters[id]?.name || `cluster ${id}`;
const sizeOf = (some) => some.reduce((sum, row) => sum + row[unit], 0);
