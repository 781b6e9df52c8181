// Elements from values. Text becomes text nodes, never HTML: what a dataset holds is shown, not run.

const SVG = "http://www.w3.org/2000/svg";
// Characters that turn the direction of what follows; a key could show another name than it has.
const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Write out characters that would turn the direction of the text around them. */
export function plain(text) {
  return text.replace(TURNS, (turn) => `\u2039U+${turn.codePointAt(0).toString(16).toUpperCase()}\u203a`);
}

const SAID = new Set(["title", "alt", "aria-label", "placeholder"]);

/** Make an element: h("a", {href: "?"}, "text", child, [more]); null and undefined are left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : SAID.has(name) ? plain(String(value)) : value);
  }
  append(element, children);
  return element;
}

/** Make an SVG element. */
export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(String(child)));
  }
}

/** A table that scrolls by itself; a head is a text, or an element of its own. */
export function table(label, heads, rows, kind = "scroll") {
  return h("div", { class: kind, tabindex: 0, role: "region", "aria-label": label }, h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head) => (head instanceof Node ? head : h("th", { scope: "col" }, head))))),
    h("tbody", {}, rows)));
}

/** The sign of a colour in a legend. */
export function swatch(colour) {
  return svg("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { width: 1, height: 1, fill: colour }));
}

/** Say something to who listens to the page rather than sees it. */
export function announce(text) {
  document.getElementById("status").textContent = plain(text);
}

/** A button that looks and reads like one. */
export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}

// Numbers as people read them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Bytes with three figures or so: 20.5 kB. */
export function bytes(count) {
  if (count === null || count === undefined) return "size unknown";
  let unit = 0;
  while (count >= 999.95 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit ? count.toFixed(count < 100 ? 1 : 0) : Math.round(count)} ${UNITS[unit]}`;
}

/** Whole numbers with separators, others with four figures. */
export function number(value) {
  if (typeof value !== "number") return /^-?\d+$/.test(value) ? BigInt(value).toLocaleString("en-US") : String(value).replace("Infinity", "∞");
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e19) return value.toLocaleString("en-US"); // time stamps have 19 digits
  return size >= 1e6 || size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

/** 1 sample, 2 samples. */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Seconds as m:ss.t. */
export function seconds(value) {
  if (value < 60) return `${value.toFixed(2)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}

// What this browser keeps: settings and marks.

const unkept = {}; // what lasts until the page is left, where the browser keeps nothing

/** The text that is kept under a name; "" for none. */
export function recall(name) {
  try {
    return unkept[name] ?? localStorage.getItem(`wids-${name}`) ?? "";
  } catch {
    return "";
  }
}

/** Keep a text under a name. */
export function keep(name, text) {
  try {
    localStorage.setItem(`wids-${name}`, text);
    delete unkept[name];
  } catch {
    unkept[name] = text;
  }
}

/** Whether somebody switched on single keys, filled tiles or facets. */
export const isOn = (name) => recall(name) === "on";
export const switchOn = (name, on) => keep(name, on ? "on" : "");

/** Say that shards had to be fetched whole, and what spares one that; null where none had to. */
export function tellWhole(count) {
  if (!count) return null;
  return h("p", { class: "note" },
    `${counted(count, "remote shard")} had no sidecar and came whole into the cache. `,
    "Sidecars, written where the shards lie by ", h("code", {}, "wids create --sidecars"),
    ", spare that: then only what is shown is fetched.");
}

/** How far it is what is read for an answer: the catalogue, or vectors. */
export function built({ what, shards_done: done, num_shards: total }) {
  const [label, text] = what === "vectors" ? ["Reading vectors", "Reading and comparing vectors"]
    : ["Building the catalogue", `${number(done)} of ${counted(total, "shard")} read; what is read is kept in the cache folder`];
  return h("div", { class: "progress" }, h("progress", { max: total, value: done, "aria-label": label }), h("span", {}, text));
}

/** Say which shards a search, a filter or statistics left out, in a few words; "" for none. */
export function leftOut({ skipped, without_sidecar: far }, see = "see Dataset") {
  const parts = [];
  if (far) parts.push(`${counted(far, "remote shard")} without a sidecar left out (\`wids create --sidecars\` writes them; opening a sample fetches its shard)`);
  if (skipped > far) parts.push(`${counted(skipped - far, "shard")} could not be read (${see})`);
  return parts.join(" · ");
}
