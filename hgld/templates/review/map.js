// The treemap: kind > supercategory > value, sized by images, coloured by status.

const SMALLEST = 26; // square pixels of a value that is drawn alone
const NOT_PLACED = "not placed yet";
const boxOf = new Map(); // row -> x, y, width and height of the box that it has alone

// Squarified treemap (Bruls, Huizing, van Wijk 2000): rows along the shorter side, as square as
// they get. Items have a size above 0 and come largest first.
function squarify(items, x, y, width, height) {
  const boxes = [];
  const scale = (width * height) / items.reduce((sum, item) => sum + item.size, 0);
  let at = 0;
  while (at < items.length) {
    const side = Math.min(width, height);
    let end = at + 1;
    let area = items[at].size * scale;
    let worst = ratio(area, items[at].size * scale, items[at].size * scale, side);
    while (end < items.length) {
      const more = area + items[end].size * scale;
      const next = ratio(more, items[at].size * scale, items[end].size * scale, side);
      if (next > worst) break;
      [area, worst, end] = [more, next, end + 1];
    }
    const depth = side ? area / side : 0;
    let along = 0;
    for (const item of items.slice(at, end)) {
      const length = depth ? (item.size * scale) / depth : 0;
      if (width >= height) boxes.push([item, x, y + along, depth, length]);
      else boxes.push([item, x + along, y, length, depth]);
      along += length;
    }
    if (width >= height) [x, width] = [x + depth, width - depth];
    else [y, height] = [y + depth, height - depth];
    at = end;
  }
  return boxes;
}

const ratio = (sum, largest, smallest, side) =>
  Math.max((side * side * largest) / (sum * sum), (sum * sum) / (side * side * smallest));

function drawMap() {
  const box = byId("map");
  const [width, height] = [box.clientWidth, box.clientHeight];
  if (!width) return;
  const kinds = tree();
  boxOf.clear();
  const parts = [];
  for (const [kind, x, y, w, h] of squarify(kinds, 0, 0, width, height)) {
    parts.push(...drawKind(kind, x, y, w, h));
  }
  const words = kinds.map((kind) => `${kind.name} ${percent(kind.size, total)}`).join(", ");
  box.setAttribute("aria-label", `Treemap of ${count(rows.length)} values: ${words}`);
  box.replaceChildren(draw("svg", { role: "none", viewBox: `0 0 ${width} ${height}` }, parts));
  markChosen();
}

// A frame around the chosen value, over all the others.
function markChosen() {
  const map = byId("map");
  map.querySelector(".frame")?.remove();
  map.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  map.removeAttribute("aria-activedescendant");
  if (!boxOf.has(selected)) return;
  const [x, y, width, height] = boxOf.get(selected);
  map.firstChild.append(draw("rect", { class: "frame", "aria-hidden": "true", rx: 3, x, y, width, height }));
  byId(`box-${selected.number}`).setAttribute("aria-selected", "true");
  map.setAttribute("aria-activedescendant", `box-${selected.number}`);
}

// Kinds, with their supercategories, with their values; each largest first.
function tree() {
  const sized = rows.filter((row) => row[unit] > 0).map((row) => ({ row, size: row[unit] }));
  const places = new Map(sized.map((leaf) => [leaf, placeOf(leaf.row)]));
  const largest = (one, other) => other.size - one.size;
  const node = (name, inside) => ({
    name,
    inside: inside.sort(largest),
    size: inside.reduce((sum, item) => sum + item.size, 0),
  });
  const kinds = [...groupBy(sized, (leaf) => places.get(leaf)[0])].map(([kind, leaves]) => {
    const groups = [...groupBy(leaves, (leaf) => places.get(leaf)[1])];
    return node(kind, groups.map(([name, inside]) => node(name, inside)));
  });
  return kinds.sort(largest);
}

// Where a value stands: as decided, else as suggested, else with its cluster.
function placeOf(row) {
  const name = leaning(row);
  if (now(row).decision === "drop") return ["dropped", "dropped"];
  if (name) return [kindOf.get(name) || (data.above.length ? "no kind" : "placed"), name];
  return [NOT_PLACED, row.clusterName || "open"];
}

function drawKind(kind, x, y, w, h) {
  const head = h > 44 && w > 60 ? 17 : 0;
  const parts = [];
  if (head) parts.push(words(kind.name, x + 3, y + 12, w - 6, "kind", 12));
  for (const [group, gx, gy, gw, gh] of squarify(kind.inside, x, y + head, w, h - head)) {
    parts.push(...drawGroup(group, gx + 1.5, gy + 1.5, gw - 3, gh - 3));
  }
  return parts;
}

// A group of options for a screen reader, as it is one box for the eye.
function drawGroup(group, x, y, w, h) {
  if (w <= 0 || h <= 0) return [];
  const alone = group.inside.length === 1 && group.inside[0].row.label === group.name;
  const head = h > 40 && w > 50 && !alone ? 15 : 0;
  const open = { onclick: () => showPlace(group.name) };
  const area = { class: "group-area", "aria-hidden": "true", x, y, width: w, height: h, rx: 4 };
  const parts = [draw("rect", { ...area, ...open })];
  if (head) parts.push(words(group.name, x + 5, y + 11.5, w - 8, "group", 11));
  const leaves = together(group, w * (h - head));
  for (const [leaf, lx, ly, lw, lh] of squarify(leaves, x, y + head, w, h - head)) {
    parts.push(drawValue(leaf, group, lx, ly, lw, lh));
    const label = leaf.row ? leaf.row.label : `${count(leaf.count)} smaller`;
    if (lw > 40 && lh > 17) parts.push(words(label, lx + 5, ly + 13, lw - 8, "", 11.5));
  }
  return [draw("g", { role: "group", "aria-label": group.name }, parts)];
}

// Values too small to be seen, as one rectangle a status.
function together(group, area) {
  const least = (SMALLEST * group.size) / Math.max(area, 1);
  const large = group.inside.filter((leaf) => leaf.size >= least);
  const small = group.inside.filter((leaf) => leaf.size < least);
  const merged = [...groupBy(small, (leaf) => statusOf(leaf.row))].map(([status, leaves]) =>
    leaves.length === 1
      ? leaves[0]
      : { status, count: leaves.length, size: leaves.reduce((sum, leaf) => sum + leaf.size, 0) },
  );
  return [...large, ...merged].sort((one, other) => other.size - one.size);
}

function drawValue(leaf, group, x, y, width, height) {
  const status = leaf.row ? statusOf(leaf.row) : leaf.status;
  const name = leaf.row ? leaf.row.label : `${count(leaf.count)} smaller values`;
  const about = [name, `${status}, ${group.name}`, counted(leaf.size, unitWord)];
  const option = leaf.row ? {
    id: `box-${leaf.row.number}`, role: "option", "aria-selected": "false",
    "aria-label": about.join(", "),
  } : { "aria-hidden": "true" }; // its values are in the list
  if (leaf.row) boxOf.set(leaf.row, [x, y, width, height]);
  return draw("rect", {
    class: `value ${status}`, x, y, width: Math.max(0, width), height: Math.max(0, height),
    rx: 3,
    ...option,
    onclick: () => (leaf.row ? show(leaf.row) : showPlace(group.name)),
    onpointermove: (event) => tip(event, about),
    onpointerleave: () => tip(null),
  });
}

// A text cut to its room.
function words(text, x, y, room, kind, size) {
  let cut = text;
  if (widthOf(text, size, kind) > room) {
    let end = text.length;
    while (end && widthOf(`${text.slice(0, end)}…`, size, kind) > room) end -= 1;
    cut = end > 2 ? `${text.slice(0, end).trimEnd()}…` : "";
  }
  return draw("text", { class: kind, x, y, "aria-hidden": "true" }, cut);
}

const ruler = document.createElement("canvas").getContext("2d");
const family = getComputedStyle(document.body).fontFamily;
const letters = new Map(); // size and weight -> letter -> its width

// As the sum of its letters, each measured once.
function widthOf(text, size, kind) {
  const font = `${kind ? 600 : 400} ${size}px ${family}`;
  if (!letters.has(font)) letters.set(font, new Map());
  const known = letters.get(font);
  let width = 0;
  for (const letter of text) {
    if (!known.has(letter)) {
      ruler.font = font;
      known.set(letter, ruler.measureText(letter).width);
    }
    width += known.get(letter);
  }
  return width;
}

function tip(event, lines) {
  const box = byId("tip");
  box.style.opacity = event ? 1 : 0;
  if (!event) return;
  const [head, ...rest] = lines;
  box.replaceChildren(make("b", {}, head), ...rest.map((line) => make("span", {}, line)));
  const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${Math.min(event.clientY + 16, innerHeight - box.offsetHeight - 8)}px`;
}
