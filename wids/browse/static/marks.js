// Marked samples: kept by this browser for a dataset, shown as a grid, saved as a selection.

import { button, counted, h, keep, recall } from "./ui.js";
import { current, filterable, go } from "./urls.js";

const MOST_COMPARED = 4; // samples side by side
const MOST = 12_000; // characters of a URL that the server takes in any case

let name = null; // of what is kept
let total = 0; // samples of the dataset
let marks = new Set();
let last = null; // the sample that was marked last, from which Shift marks a range
let before = null; // the marks before many were changed at once
/** The bar that says how many are marked, and what can be done with them. */
export const tray = h("div", { class: "tray", role: "region", "aria-label": "Marked samples", hidden: true });

/** Read the marks of a dataset: of these very shards or copies, since marks are numbers of their samples. */
export function openMarks(dataset) {
  name = `marks ${dataset.identity}`;
  total = dataset.num_samples;
  read();
  fillTray();
}

/** Take over what the browser keeps, which another tab may have changed. */
function read() {
  marks = new Set(decode(recall(name)).filter((index) => index < total));
}

addEventListener("storage", (event) => {
  if (name === null || (event.key !== `wids-${name}` && event.key !== null)) return;
  read();
  showAll();
});

export const isMarked = (index) => marks.has(index);

/** Mark samples, or take their marks back. */
export function mark(indexes, on) {
  read();
  before = indexes.length > 1 ? new Set(marks) : null;
  for (const index of indexes) marks[on ? "add" : "delete"](index);
  last = indexes.at(-1) ?? null;
  keepAll();
}

/** Mark a sample, or take its mark back. */
export const toggle = (index) => mark([index], !isMarked(index));

function keepAll() {
  keep(name, encode([...marks]));
  showAll();
}

function showAll() {
  for (const each of document.querySelectorAll("[data-mark]")) each.setAttribute("aria-pressed", String(isMarked(Number(each.dataset.mark))));
  fillTray();
}

/** The button that marks a sample. */
export function markButton(index, text = "✓", properties = {}) {
  return button(text, (event) => {
    // A click of the pointer has been answered when it went down.
    if (!event.detail || !event.currentTarget.closest("[data-drags]")) toggle(index);
  }, { class: "mark", "data-mark": index, "aria-pressed": String(isMarked(index)), "aria-label": `Mark sample ${index}`, ...properties });
}

/** Let a drag over the buttons of a list mark all it passes; Shift marks from the last on. */
export function dragMarks(list) {
  let on = null;
  list.dataset.drags = "";
  list.addEventListener("pointerdown", (event) => {
    const hit = event.target.closest("[data-mark]");
    if (!hit || event.button !== 0) return;
    event.preventDefault();
    hit.focus();
    const index = Number(hit.dataset.mark);
    on = !isMarked(index);
    mark(event.shiftKey && last !== null ? between(last, index) : [index], on);
  });
  list.addEventListener("pointermove", (event) => {
    if (on === null) return;
    const under = document.elementFromPoint(event.clientX, event.clientY)?.closest("li, tr")?.querySelector("[data-mark]");
    if (under && isMarked(Number(under.dataset.mark)) !== on) toggle(Number(under.dataset.mark));
  });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { on = null; });
  /** Those from one sample to another, in the order in which the page shows them. */
  const between = (one, other) => {
    const shown = [...list.querySelectorAll("[data-mark]")].map((each) => Number(each.dataset.mark));
    const [first, stop] = [shown.indexOf(one), shown.indexOf(other)].sort((a, b) => a - b);
    return first < 0 ? [other] : shown.slice(first, stop + 1);
  };
}

/** Mark the sample whose tile or row has the focus; returns whether there is one. */
export function markFocused() {
  const hit = document.activeElement?.closest("li, tr")?.querySelector("[data-mark]");
  if (hit) toggle(Number(hit.dataset.mark));
  return Boolean(hit);
}

function fillTray() {
  tray.hidden = marks.size === 0 && !before;
  const text = encode([...marks]);
  const fits = text.length <= MOST;
  const saved = (label, query) => h("a", { class: "button", href: `selection.json?${query}=${text}`, download: "" }, label);
  tray.replaceChildren(
    h("strong", {}, `${counted(marks.size, "sample")} marked`),
    ...(fits ? [
      button("Show", () => go({ ...filterable({}), marks: text })),
      marks.size > 1 && marks.size <= MOST_COMPARED
        ? button("Compare", () => { const { i, p, ...grid } = current(); go({ ...grid, view: null, compare: [...marks].sort((a, b) => a - b).join(",") }); })
        : "",
      saved("Save these", "marks"),
      saved("Save all others", "without"),
    ] : [h("span", { class: "muted" }, "too many for a link; filters save more")]),
    before ? button("Undo", () => { [marks, before] = [before, null]; keepAll(); }) : "",
    button("Clear", () => mark([...marks], false)));
}

/** Write numbers as ranges: 3,17,20-29. */
function encode(indexes) {
  const runs = [];
  for (const index of indexes.sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run && index === run[1] + 1) run[1] = index;
    else runs.push([index, index]);
  }
  return runs.map(([first, end]) => (first === end ? `${first}` : `${first}-${end}`)).join(",");
}

function decode(text) {
  return text.split(",").filter(Boolean).flatMap((run) => {
    const [first, end = first] = run.split("-").map(Number);
    return Array.from({ length: end - first + 1 }, (_, place) => first + place);
  });
}
