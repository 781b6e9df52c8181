// A JSON value as a tree that opens branch by branch; closed branches cost nothing.

import { button, h } from "./dom.js";
import { counted } from "./format.js";

const OPEN_CHILDREN = 20; // a branch of more is closed at first
const STEP = 200; // children that are shown at once
const LONG = 1000; // characters of a text that are

/** Make the tree of a value. */
export function tree(value) {
  return h("div", { class: "tree" }, node(null, value, 0));
}

function node(name, value, depth) {
  const label = name === null ? null : h("span", { class: "name" }, name, ": ");
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, label, leaf(value));
  const entries = Array.isArray(value) ? value.map((child, place) => [String(place), child]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div", { class: "leaf" }, label, h("span", { class: "muted" }, size));
  const branch = h("details", {}, h("summary", {}, label, h("span", { class: "muted" }, size)));
  let filled = false;
  const fill = () => {
    if (filled) return;
    filled = true;
    more(branch, entries, 0, depth);
  };
  branch.addEventListener("toggle", fill);
  if (depth < 2 && entries.length <= OPEN_CHILDREN) {
    fill();
    branch.open = true;
  }
  return branch;
}

function more(branch, entries, start, depth) {
  const stop = Math.min(start + STEP, entries.length);
  for (const [name, child] of entries.slice(start, stop)) branch.append(node(name, child, depth + 1));
  if (stop === entries.length) return;
  const on = button(`${entries.length - stop} more`, () => {
    on.remove();
    more(branch, entries, stop, depth);
  });
  branch.append(on);
}

function leaf(value) {
  if (typeof value === "string") return text(JSON.stringify(value));
  return h("span", { class: "literal" }, String(value));
}

/** A text in quotes; of a long one the beginning, until one asks for all of it. */
function text(quoted) {
  const shown = h("span", { class: "string" }, quoted);
  if (quoted.length <= LONG) return shown;
  shown.textContent = `${quoted.slice(0, LONG)}… `;
  const rest = button(counted(quoted.length - LONG, "more character"), () => {
    shown.textContent = quoted;
  }, { class: "plain" });
  shown.append(rest);
  return shown;
}
