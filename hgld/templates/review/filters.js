// Which values are listed, in which order and groups.

const filter = { text: "", status: "", supercategory: "", cluster: "", order: "sheet", groups: "" };
const NOT_KNOWN = "?"; // the choice of values that no supercategory is named or suggested for

const SELECTS = {
  "by-supercategory": "supercategory", "by-cluster": "cluster", order: "order", groups: "groups",
};
const ORDERS = {
  sheet: () => 0,
  images: (one, other) => other[unit] - one[unit],
  margin: (one, other) => (one.margin || 0) - (other.margin || 0) || other[unit] - one[unit],
  label: (one, other) => one.label.localeCompare(other.label, "en"),
};

const FEWEST_VOTERS = 2; // decided values of a cluster, before they suggest something
let votes = null; // cluster -> the decided values, and supercategory -> their landmarks

// What most decided values of the cluster have by now.
function voteOf(row) {
  votes ??= countVotes();
  const { voters, names } = votes.get(row.cluster) || { voters: 0, names: [] };
  const found = voters < FEWEST_VOTERS ? [] : [...names];
  const best = found.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0];
  return best ? best[0] : "";
}

function countVotes() {
  const found = new Map();
  for (const row of rows) {
    const { decision, supercategory } = now(row);
    if (!["keep", "move"].includes(decision)) continue;
    if (!found.has(row.cluster)) found.set(row.cluster, { voters: 0, names: new Map() });
    const cluster = found.get(row.cluster);
    cluster.voters += 1;
    cluster.names.set(supercategory, (cluster.names.get(supercategory) || 0) + row.landmarks);
  }
  return found;
}

// The supercategory that a value has, or is about to have.
function leaning(row) {
  const { decision, supercategory } = now(row);
  return supercategory || (decision ? "" : suggestionOf(row));
}

function listRows() {
  const terms = fold(filter.text).replace(WIKIDATA, "").split(/\s+/).filter(Boolean);
  const fits = (row) =>
    (!filter.status || hasStatus(row, filter.status)) &&
    (!filter.cluster || row.cluster === filter.cluster) &&
    (!filter.supercategory || placeName(row) === filter.supercategory) &&
    (!terms.length || holds(row, terms));
  return rows.filter(fits).sort(ORDERS[filter.order]);
}

function hasStatus(row, status) {
  if (status === "edited") return edits.has(row.key);
  return status === "commented" ? isCommented(row) : statusOf(row) === status;
}

const placeName = (row) => leaning(row) || NOT_KNOWN;

const WIKIDATA = /https?:\/\/www\.wikidata\.org\/(wiki|entity)\//g; // a pasted address

// A Wikidata id has to be the whole id: q85 is not the beginning of q8502.
function holds(row, terms) {
  const { supercategory, note } = now(row);
  const text = `${row.haystack} ${fold(supercategory)} ${fold(note)}`;
  const fits = (term) => (/^q\d+$/.test(term) ? row.key.toLowerCase() === term : text.includes(term));
  return terms.every(fits);
}

// Rows with a head before each group; groups of most images come first.
function groupRows(listed) {
  if (!filter.groups) return listed.map((row) => ({ row }));
  const keyed = filter.groups === "cluster" ? (row) => row.cluster : placeName;
  const groups = [...groupBy(listed, keyed)].map(
    ([name, inside]) => ({ name, inside, size: sizeOf(inside) }),
  );
  groups.sort((one, other) => other.size - one.size);
  return groups.flatMap((group) => [{ group }, ...group.inside.map((row) => ({ row }))]);
}

function drawStatuses() {
  const found = groupBy(rows, statusOf);
  const chips = [["", "All", rows.length]];
  for (const status of STATUSES) {
    const here = found.get(status)?.length || 0;
    if (here || status === "open" || filter.status === status) chips.push([status, status, here]);
  }
  if (edits.size || filter.status === "edited") chips.push(["edited", "edited here", edits.size]);
  const commented = rows.filter(isCommented).length;
  if (commented || filter.status === "commented") chips.push(["commented", "commented", commented]);
  byId("statuses").replaceChildren(...chips.map(([status, word, here]) => chip(status, word, here)));
}

function chip(status, word, here) {
  const pressed = filter.status === status;
  const dot = STATUSES.includes(status) ? make("i", { class: `dot ${status}` }) : null;
  const deed = () => choose({ status: pressed ? "" : status });
  const node = button("chip", deed, dot, word, small(count(here)));
  node.setAttribute("aria-pressed", String(pressed));
  return node;
}

function fillSelects() {
  const option = (value, text) => make("option", { value }, text);
  byId("by-supercategory").append(
    option("", "Supercategory"), option(NOT_KNOWN, "(none yet)"),
  );
  fillSupercategories();
  const clusters = [...membersOf].filter(([id]) => id !== "");
  clusters.sort((one, other) => sizeOf(other[1]) - sizeOf(one[1]));
  byId("by-cluster").append(
    option("", "Cluster"),
    ...clusters.map(([id, members]) => option(id, `${clusterName(id)} (${count(members.length)})`)),
  );
  byId("by-cluster").disabled = data.blind;
  byId("groups").querySelector("[value=cluster]").disabled = data.blind;
  for (const [id, name] of Object.entries(SELECTS)) {
    byId(id).addEventListener("change", (event) => choose({ [name]: event.target.value }));
  }
  byId("search").addEventListener("input", (event) => choose({ text: event.target.value }));
}

// Changes the filter, and lists anew from the top.
function choose(wanted) {
  Object.assign(filter, wanted);
  byId("search").value = filter.text;
  for (const [id, name] of Object.entries(SELECTS)) byId(id).value = filter[name];
  for (const name of ["by-supercategory", "by-cluster"]) {
    byId(name).classList.toggle("used", Boolean(byId(name).value));
  }
  drawStatuses();
  relist();
}

const ALL = { text: "", status: "", supercategory: "", cluster: "" };

// The values of a group of the map: of a supercategory, a status, or of a cluster's name.
function showPlace(name) {
  if (kindOf.has(name)) choose({ ...ALL, supercategory: name });
  else choose(["dropped", "open"].includes(name) ? { ...ALL, status: name } : { ...ALL, text: name });
  byId("desk").scrollIntoView();
}
