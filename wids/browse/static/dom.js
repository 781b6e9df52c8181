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

/** Say something to who listens to the page rather than sees it. */
export function announce(text) {
  document.getElementById("status").textContent = plain(text);
}

/** A button that looks and reads like one. */
export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}
