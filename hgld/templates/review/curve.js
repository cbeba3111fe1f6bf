// The coverage curve: images covered against values decided; first what is decided, then the rest
// in the order of the sheet.

const TARGETS = [0.5, 0.8, 0.9, 0.95, 0.99, 1];

function coverage() {
  const settled = rows.filter(decides).sort((one, other) => other[unit] - one[unit]);
  const order = [...settled, ...rows.filter((row) => !decides(row))];
  const sums = [0];
  for (const row of order) sums.push(sums[sums.length - 1] + row[unit]);
  return { done: settled.length, sums };
}

function drawCurve() {
  const box = byId("curve");
  const [wholeWidth, wholeHeight] = [box.clientWidth, box.clientHeight];
  const frame = { left: 40, top: 10, width: wholeWidth - 54, height: wholeHeight - 44 };
  if (frame.width < 50) return;
  const { done, sums } = coverage();
  const wide = rows.length > 300; // few values hold most images: a root gives them room
  const across = (n) => (wide ? Math.sqrt(n / rows.length) : n / (rows.length || 1));
  const x = (n) => frame.left + frame.width * across(n);
  const y = (sum) => frame.top + frame.height * (1 - (total ? sum / total : 0));
  const points = thin(sums, x);
  const split = [done, sums[done]];
  const before = [...points.filter(([n]) => n < done), split];
  const after = [split, ...points.filter(([n]) => n > done)];
  const label = curveWords(done, sums);
  byId("curve-words").textContent = label;
  box.replaceChildren(
    draw("svg", { role: "img", "aria-label": `Coverage curve. ${label}`,
      viewBox: `0 0 ${wholeWidth} ${wholeHeight}` }, // a printed page is narrower
      gridLines(frame, x, y, wide),
      draw("path", { class: "todo", d: area(after, x, y) }),
      draw("path", { class: "done", d: area(before, x, y) }),
      draw("path", { class: "line rest", d: path(after, x, y) }),
      draw("path", { class: "line", d: path(before, x, y) }),
      draw("circle", { class: "now", cx: x(done), cy: y(sums[done]), r: 5 }),
      done ? marker(done, sums[done], x, y, frame) : null,
    ),
  );
}

// One point a pixel is enough.
function thin(sums, x) {
  const points = [];
  let last = -1;
  sums.forEach((sum, n) => {
    if (x(n) - last < 1 && n !== sums.length - 1) return;
    points.push([n, sum]);
    last = x(n);
  });
  return points;
}

const path = (points, x, y) =>
  points.map(([n, sum], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(sum).toFixed(1)}`).join("");

function area(points, x, y) {
  if (points.length < 2) return "";
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  return `${path(points, x, y)}L${x(last).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z`;
}

function gridLines(frame, x, y, wide) {
  const parts = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => {
    const at = y(share * total);
    return [
      draw("line", { class: "grid", x1: frame.left, x2: frame.left + frame.width, y1: at, y2: at }),
      draw("text", { x: frame.left - 7, y: at + 4, "text-anchor": "end" }, `${100 * share} %`),
    ];
  });
  const foot = frame.top + frame.height + 17;
  const ticks = ticksOf(rows.length, wide).map((n) =>
    draw("text", { x: x(n), y: foot, "text-anchor": "middle" }, count(n)),
  );
  const middle = { x: frame.left + frame.width / 2, y: foot + 16, "text-anchor": "middle" };
  const words = draw("text", middle, "values decided");
  return [...parts, ...ticks, words];
}

function ticksOf(most, wide) {
  if (wide) return [10, 100, 500, 1000, 2000, 5000].filter((n) => n < most * 0.75).concat(most);
  const step = [1, 2, 5, 10, 20, 50, 100].find((size) => most / size <= 6) || 100;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

// Beside the point, where the curve is not.
function marker(done, sum, x, y, frame) {
  const right = x(done) + 100 > frame.left + frame.width;
  const facts = right
    ? { x: x(done) - 12, y: y(sum) + 30, "text-anchor": "end" }
    : { x: x(done) + 12, y: Math.min(y(sum) + 16, y(0) - 5), "text-anchor": "start" };
  return draw("text", { class: "words", ...facts }, `now ${percent(sum, total)}`);
}

function curveWords(done, sums) {
  const share = `${percent(sums[done], total)} of the ${unitWords}`;
  const covered = `${counted(done, "value")} of ${count(rows.length)} decided, ${share}.`;
  if (done === rows.length) return `${covered} Nothing is left to decide.`;
  const target = TARGETS.find((part) => part * total > sums[done]);
  if (target === undefined) return `${covered} What is left has no ${unitWords}.`;
  const more = sums.findIndex((sum) => sum >= target * total) - done;
  const goal = `${Math.round(100 * target)} %`;
  const next = more === 1 ? "The next value" : `The next ${count(more)} values`;
  return `${covered} ${next} would bring it to ${goal}.`;
}
