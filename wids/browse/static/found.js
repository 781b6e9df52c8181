// What is looked for, how far the catalogue is, what was found, and how to take it along.

import { selection } from "./api.js";
import { button, h } from "./dom.js";
import { counted, number } from "./format.js";
import { built, leftOut } from "./waits.js";
import { filterable, gridPart, link, orderPart, picksOf } from "./state.js";

/** What is searched for among the keys, and the way to the sample of that number. */
export function searched(state, dataset) {
  if (state.marks) return [h("div", { class: "progress" }, h("h2", { class: "searched" }, "Marked samples"), h("a", { class: "button", href: link({ ...gridPart(state), marks: null }), "aria-label": "Show all samples" }, "✕"))];
  if (state.near || state.far) {
    if (!state.inside && !state.q) return state.look === "map" ? [h("div", { class: "progress" }, h("h2", { class: "searched" }, state.near ? "Near-duplicates" : "Outliers"), h("a", { href: link({ ...gridPart(state), look: null }) }, "Show them"), h("a", { class: "button", href: link({ ...gridPart(state), near: null, far: null }), "aria-label": "Show all samples" }, "✕"))] : [];
  }
  if (state.inside && !state.q) return [h("div", { class: "progress" }, h("h2", { class: "searched" }, "Inside an outline of the map"), h("a", { href: link({ ...gridPart(state), inside: null, look: "map" }) }, "Back to the map"), state.look === "map" ? null : saving(state), h("a", { class: "button", href: link({ ...gridPart(state), inside: null }), "aria-label": "Show all samples" }, "✕"))];
  if (!state.q) return [];
  const wanted = /^\d{1,15}$/.test(state.q) ? Number(state.q) : Infinity;
  return [h("div", { class: "progress" },
    h("h2", { class: "searched" }, "Keys that contain ", h("code", {}, state.q)),
    wanted < dataset.num_samples ? h("a", { href: link({ ...gridPart(state), q: null, i: String(wanted) }) }, `Sample number ${number(wanted)}`) : null,
    h("a", { class: "button", href: link({ ...filterable(state), q: null }), "aria-label": "Clear the search" }, "✕"))];
}

/** What is picked of columns, each with a link that takes it back. */
function picks(state) {
  const words = { missing: "without ", broken: "unreadable " };
  return ["missing", "broken", ...picksOf(state)].filter((name) => state[name]).map((name) => h("a", { class: "chip", href: link({ ...filterable(state), [name]: null }), "aria-label": `Clear the choice of ${name}` },
    `${words[name] ?? `${name}: `}${state[name].split(",").map((each) => unescaped(each)).join(", ")} ✕`));
}

function unescaped(text) {
  return text === "%" ? "“”" : text.replaceAll(/%(25|2C|2E|6E)/gi, (each) => decodeURIComponent(each));
}

/** What is picked and found, how far that is, and what can be done with it. */
export function filterProgress(page, state) {
  const filtering = page.filtering;
  const chosen = picks(state);
  const told = [];
  if (filtering?.finished) told.push(`${counted(filtering.found, "sample")} found`, leftOut(filtering));
  if (filtering?.full) told.push("more than are kept; narrow the condition");
  if (!filtering && !chosen.length && !page.copies) return [];
  return [h("div", { class: "progress" },
    filtering && !filtering.finished ? built(filtering) : h("span", {}, told.filter(Boolean).join(" · ")),
    chosen,
    filtering?.finished && filtering.found && !filtering.full ? saving(state) : null,
    page.copies && page.total ? copying(page.copies) : null)];
}

/** Code that gives what is shown: for Python, as SQL, and as a command. */
function copying(copies) {
  return h("details", { class: "copies" }, h("summary", {}, "Copy as"),
    h("dl", {}, copies.map(([name, text]) => [h("dt", {}, name), h("dd", {}, h("code", {}, text), button("Copy", async (event) => {
      const pressed = event.currentTarget;
      await navigator.clipboard.writeText(text).catch(() => getSelection().selectAllChildren(pressed.previousSibling));
      pressed.textContent = "Copied";
    }, { "aria-label": `Copy as ${name}` }))])));
}

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
export function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}
