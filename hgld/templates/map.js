// The map of embeddings: pan, zoom, hover, search, colour by level; drawn on one canvas.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const one = (selector) => document.querySelector(selector);
const [canvas, tip, form] = [one("canvas"), one(".tip"), one("form")];
const context = canvas.getContext("2d");
const size = data.ids.length, pictured = data.pictures.length > 0;
const NAMED = 16, LISTED = 50, NEAR = 14; // classes with colour and mark, images found, pixels
// marks in a square of -1 to 1; with eight colours they tell 64 classes apart
const MARKS = [
  "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z", "M-.85-.85H.85V.85H-.85Z", "M0-1.1 1.05.8H-1.05Z", "M0-1.2 1.2 0 0 1.2-1.2 0Z",
  "M0 1.1 1.05-.8H-1.05Z", "M-.35-1.1H.35V-.35H1.1V.35H.35V1.1H-.35V.35H-1.1V-.35H-.35Z",
  "M-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0-1-.6Z",
  "M0-1.2.3-.4 1.15-.37.48.16.7 1 0 .5-.7 1-.48.16-1.15-.37-.3-.4Z",
];
const shapes = MARKS.map((path) => new Path2D(path));
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (number) => data.colours[dark.matches ? "dark" : "light"][number % 8];
const mark = (number) => (number % 8 + Math.floor(number / 8)) % 8;
const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const haystack = data.ids.map((id, i) => plain([id, ...data.groups.map((g) => g.classes[g.of[i]])].join(" ")));

let group, hits = null, chosen = null, current = -1, last = -1; // hits: image -> found; chosen: a class
let scale = 1, left = 0, top_ = 0; // of the view, in pixels per unit of the map and pixels

const make = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const place = (i) => [left + data.x[i] * scale, top_ + data.y[i] * scale];
const strong = (i) => (!hits || hits[i]) && (chosen === null || group.of[i] === chosen);

function fit() {
  const { clientWidth: width, clientHeight: height } = canvas, margin = 24;
  const [wide, high] = [largest(data.x), largest(data.y)];
  scale = Math.min((width - 2 * margin) / Math.max(wide, 1), (height - 2 * margin) / Math.max(high, 1));
  left = (width - wide * scale) / 2;
  top_ = (height - high * scale) / 2;
  draw();
}
const largest = (values) => values.reduce((one, other) => Math.max(one, other), 0);

function draw() {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
    canvas.width = width * ratio;
    canvas.height = height * ratio;
  }
  const ink = getComputedStyle(document.body);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const radius = Math.min(9, Math.max(2, 110 / Math.sqrt(size)) * Math.min(2.2, Math.sqrt(scale / whole())));
  for (const pass of [false, true]) { // what was searched is drawn above the rest
    for (let i = 0; i < size; i++) {
      if (strong(i) !== pass) continue;
      const [x, y] = place(i);
      if (x < -20 || y < -20 || x > width + 20 || y > height + 20) continue;
      paint(x, y, radius, group.of[i], pass ? 0.9 : 0.12);
    }
  }
  context.globalAlpha = 1;
  if (current >= 0) {
    const [x, y] = place(current);
    context.strokeStyle = ink.color;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, radius + 5, 0, 7);
    context.stroke();
  }
}
const whole = () => Math.min(canvas.clientWidth, canvas.clientHeight) / 1e4;

function paint(x, y, radius, number, alpha) {
  context.save();
  context.translate(x, y);
  context.scale(radius, radius);
  context.globalAlpha = alpha;
  context.fillStyle = number < NAMED ? colour(number) : "#8a8f98";
  context.fill(shapes[number < NAMED ? mark(number) : 0]);
  context.restore();
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const next = Math.min(whole() * 200, Math.max(whole() * 0.5, scale * factor));
  left = x - (x - left) * (next / scale);
  top_ = y - (y - top_) * (next / scale);
  scale = next;
  show(current);
}

function nearest(x, y) {
  let best = -1, least = NEAR * NEAR;
  for (let i = 0; i < size; i++) {
    if (!strong(i)) continue;
    const [dx, dy] = [left + data.x[i] * scale - x, top_ + data.y[i] * scale - y];
    const distance = dx * dx + dy * dy;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

function show(i) {
  current = i;
  draw();
  tip.hidden = i < 0;
  if (i < 0) return;
  if (i !== last) {
    last = i;
    const words = data.groups.map((g) => g.classes[g.of[i]]);
    const split = words.pop();
    tip.replaceChildren(make("b", words.pop()), make("span", [...words.reverse(), split].join(" · ")), make("span", data.ids[i]));
    if (pictured) tip.prepend(make("img", "", { src: `data:image/jpeg;base64,${data.pictures[i]}`, alt: "" }));
  }
  const [x, y] = place(i);
  const space = canvas.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(space, x + 14))}px`;
  tip.style.top = `${Math.max(8, Math.min(canvas.clientHeight - tip.offsetHeight - 8, y + 14))}px`;
}

function go(i) { // bring an image into the middle, near enough to see its neighbours
  scale = Math.max(scale, whole() * 2.5);
  left = canvas.clientWidth / 2 - data.x[i] * scale;
  top_ = canvas.clientHeight / 2 - data.y[i] * scale;
  show(i);
}

function list() {
  const items = group.classes.slice(0, NAMED).map((name, number) => {
    const button = make("button", "", { type: "button", "aria-pressed": chosen === number });
    button.innerHTML = `<svg viewBox="-1.4 -1.4 2.8 2.8" aria-hidden="true"><path d="${MARKS[mark(number)]}" fill="${colour(number)}"/></svg>`;
    button.append(make("span", name), make("small", group.counts[number].toLocaleString("en")));
    button.onclick = () => {
      chosen = chosen === number ? null : number;
      list();
      one(".classes-list").children[number].firstChild.focus();
      show(-1);
    };
    const item = make("li");
    item.append(button);
    return item;
  });
  if (group.classes.length > NAMED) items.push(make("li", `${(group.classes.length - NAMED).toLocaleString("en")} more in grey; search finds them`));
  one(".classes-list").replaceChildren(...items);
}

let found = [];
function search() {
  const words = plain(form.words.value).split(/\s+/).filter(Boolean);
  hits = words.length ? haystack.map((text) => words.every((word) => text.includes(word))) : null;
  found = hits ? data.ids.map((_, i) => i).filter((i) => hits[i]) : [];
  one("[role=status]").textContent = hits ? `${found.length.toLocaleString("en")} of ${size.toLocaleString("en")} images found` : "";
  one(".side h2:nth-of-type(2)").hidden = !found.length;
  const finest = data.groups[data.groups.length - 2];
  one(".found-list").replaceChildren(...found.slice(0, LISTED).map((i) => {
    const item = make("li"), button = make("button", "", { type: "button" });
    button.append(make("span", finest.classes[finest.of[i]]), make("small", data.ids[i]));
    button.onclick = () => go(i);
    item.append(button);
    return item;
  }));
  show(-1);
}

data.groups.forEach((g, i) => form.group.append(make("option", g.name, { value: i })));
form.group.value = data.start;
const regroup = () => { group = data.groups[form.group.value]; chosen = null; list(); };
form.group.onchange = () => { regroup(); show(-1); };
form.words.oninput = search;
form.onsubmit = (event) => { event.preventDefault(); if (found.length) go(found[0]); };

const at = new Map(); // pointers that are down -> place
const local = (event) => [event.offsetX, event.offsetY];
canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); at.set(event.pointerId, local(event)); };
canvas.onpointermove = (event) => {
  const before = at.get(event.pointerId), [x, y] = local(event);
  if (!before) {
    const i = nearest(x, y);
    return i === current ? undefined : show(i); // a picture of 20,000 marks takes a tenth of a second
  }
  if (at.size === 2) {
    const [other] = [...at].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
    const far = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]);
    zoom(far([x, y]) / Math.max(1, far(before)), (x + other[0]) / 2, (y + other[1]) / 2);
  } else {
    left += x - before[0];
    top_ += y - before[1];
    show(current);
  }
  at.set(event.pointerId, [x, y]);
};
canvas.onpointerup = canvas.onpointercancel = (event) => {
  at.delete(event.pointerId);
  show(nearest(...local(event))); // a tap shows what it touched
};
canvas.onpointerleave = () => { if (!at.size) show(-1); };
canvas.onwheel = (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), ...local(event)); };
canvas.onkeydown = (event) => {
  const step = 60;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) {
    left += moves[event.key][0];
    top_ += moves[event.key][1];
    show(current);
  } else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") { current = -1; tip.hidden = true; fit(); }
  else if (event.key === "Enter" && found.length) go(found[(found.indexOf(current) + 1) % found.length]);
  else return;
  event.preventDefault();
};
const [closer, farther, all] = document.querySelectorAll(".zoom button");
closer.onclick = () => zoom(1.4);
farther.onclick = () => zoom(1 / 1.4);
all.onclick = () => { show(-1); fit(); };
dark.onchange = () => { list(); draw(); };
new ResizeObserver(fit).observe(canvas);
regroup();
fit();
