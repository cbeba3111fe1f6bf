// The map by keyboard: arrows choose the value beside, Enter opens it.

const WAYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, -1], ArrowDown: [1, 1] };

function walkMap(event) {
  const way = WAYS[event.key];
  if (!way && event.key !== "Enter") return;
  event.preventDefault();
  const row = way ? valueBeside(...way) : selected;
  if (way && row) reach(row);
  if (!way && row) {
    show(row);
    byId("list").focus({ preventScroll: true });
  }
}

// The value whose box lies nearest on one side; along an axis (0 across, 1 down), backwards or on.
function valueBeside(axis, sign) {
  const here = boxOf.get(selected);
  if (!here) return boxOf.keys().next().value;
  const other = 1 - axis;
  const middle = here[other] + here[other + 2] / 2;
  let [best, least] = [null, Infinity];
  for (const [row, box] of boxOf) {
    const gap = sign > 0 ? box[axis] - here[axis] - here[axis + 2] : here[axis] - box[axis] - box[axis + 2];
    const aside = Math.max(0, box[other] - middle, middle - box[other] - box[other + 2]);
    if (gap > -1 && gap + 4 * aside < least) [best, least] = [row, gap + 4 * aside];
  }
  return best;
}
