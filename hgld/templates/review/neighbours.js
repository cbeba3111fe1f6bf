// The cluster of the chosen value: how sure its place is, the other values, the clusters nearby.

const MATES = 12; // other values that are named

function clusterPart(row) {
  if (row.cluster === "") return null;
  const members = membersOf.get(row.cluster);
  const facts = small(`${counted(members.length, "value")}, ${count(sizeOf(members))} ${unitWords}`);
  const offer = make("p", {});
  onRefresh(() => offer.replaceChildren(...offerWords(row)));
  const parts = [
    make("h3", {}, `Cluster “${clusterName(row.cluster)}”`, facts),
    ...marginParts(row), ...mateParts(row, members), offer, nearPart(row),
  ];
  return make("section", { class: "part" }, parts);
}

const clusterButton = (id, text) => button("chip", () => choose({ ...ALL, cluster: id }), text);

function marginParts(row) {
  if (!Number.isFinite(row.margin) || !row.next) return [];
  const most = Math.max(...rows.map((other) => other.margin || 0), 1e-9);
  const share = Math.max(2, Math.min(100, (100 * row.margin) / most));
  const kind = row.margin <= closeMargin ? "meter close" : "meter";
  const margin = make("span", { class: "quiet" }, ` · margin ${row.margin.toFixed(2)}`);
  const bar = make("div", { class: kind }, make("i", { style: `width: ${share}%` }));
  return [make("p", {}, marginWords(row), margin), bar];
}

function marginWords(row) {
  const other = `“${clusterName(row.next)}”`;
  if (row.margin < 0) return `Nearer to ${other}: a person put it here`;
  if (row.margin <= closeMargin) return `A close call: nearly as near to ${other}`;
  return `Next would be ${other}`;
}

function mateParts(row, members) {
  const mates = members.filter((other) => other !== row);
  mates.sort((one, other) => other[unit] - one[unit]);
  const all = clusterButton(row.cluster, `All ${count(members.length)} values`);
  return [
    make("ul", { class: "mates" }, ...mates.slice(0, MATES).map(mateItem)),
    mates.length > MATES ? make("p", { class: "near" }, all) : null,
  ];
}

function mateItem(other) {
  const dot = make("i");
  onRefresh(() => (dot.className = `dot ${statusOf(other)}`));
  const facts = [dot, span(other.label), small(count(other[unit]))];
  return make("li", {}, button("", () => show(other, false), ...facts));
}

function offerWords(row) {
  const [name, open] = clusterOffer(row);
  if (!name || !open.length || (open.length === 1 && open[0] === row)) return [];
  const which = open.length === 1 ? "the open value" : `all ${count(open.length)} open values`;
  const text = `Keep ${which} of this cluster as ${name}`;
  return [button("link", keepCluster, text), " ", keySign("A")];
}

function nearPart(row) {
  const near = data.clusters[row.cluster]?.near || [];
  if (!near.length) return null;
  const title = make("span", { class: "quiet" }, "Nearest clusters");
  return make("p", { class: "near" }, title, ...near.map((id) => clusterButton(id, clusterName(id))));
}
