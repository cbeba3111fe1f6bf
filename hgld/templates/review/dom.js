// Builds elements. Every text goes in as text, never as markup: labels come from a public wiki.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function make(tag, facts = {}, ...inside) {
  return fill(document.createElement(tag), facts, inside);
}

function draw(tag, facts = {}, ...inside) {
  return fill(document.createElementNS(SVG, tag), facts, inside);
}

function fill(node, facts, inside) {
  for (const [name, value] of Object.entries(facts)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...inside.flat().filter((part) => part !== null && part !== undefined));
  return node;
}

const button = (kind, deed, ...inside) =>
  make("button", { type: "button", class: kind, onclick: deed }, ...inside);
const span = (...inside) => make("span", {}, ...inside);
const bold = (...inside) => make("b", {}, ...inside);
const small = (...inside) => make("small", {}, ...inside);
const keySign = (key) => make("kbd", { "aria-hidden": "true" }, key); // the button names its key

// A link where there is an address of the web, else the text alone.
function link(text, address) {
  if (!/^https?:\/\//.test(address)) return text;
  return make("a", { href: address, target: "_blank", rel: "noopener" }, text);
}

const numbers = new Intl.NumberFormat("en-GB");
const count = (number) => numbers.format(number);
const plural = (noun) => noun + (noun.endsWith("s") ? "es" : "s");
const counted = (number, noun) => `${count(number)} ${number === 1 ? noun : plural(noun)}`;

// Rounded down, as in the message of a run that waits; never 0 % while there is something.
function percent(part, whole) {
  if (!whole || part === whole) return part ? "100\u00a0%" : "0\u00a0%";
  const share = Math.floor((1000 * part) / whole) / 10;
  return `${(part ? Math.max(0.1, share) : 0).toFixed(1)}\u00a0%`;
}

// Lower case without accents, so that "Schloß" and "eglise" are found.
const fold = (text) =>
  text.normalize("NFD").replace(/\p{Mn}/gu, "").toLowerCase().replaceAll("ß", "ss");

let toastEnds = 0;
function say(text) {
  byId("said").textContent = text;
  const toast = byId("toast");
  toast.textContent = text;
  toast.classList.add("shown");
  clearTimeout(toastEnds);
  toastEnds = setTimeout(() => toast.classList.remove("shown"), 2600);
}

// Runs the work once before the next frame, however often it was asked for.
function once(work) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      work();
    });
  };
}

// Runs the work when nobody has asked for it for a while: quick decisions do not wait for the map.
function settled(work) {
  let ends = 0;
  return () => {
    clearTimeout(ends);
    ends = setTimeout(() => requestAnimationFrame(work), 120);
  };
}
