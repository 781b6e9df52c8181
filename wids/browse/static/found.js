// What a search or a filter looks for, how far it is, and what it has found.

import { selection } from "./api.js";
import { h } from "./dom.js";
import { counted, number } from "./format.js";
import { leftOut } from "./waits.js";
import { filterable, gridPart, link, orderPart } from "./state.js";

/** What is searched for among the keys, and the way to the sample of that number. */
export function searched(state, dataset) {
  if (state.marks) return [h("div", { class: "progress" }, h("h2", { class: "searched" }, "Marked samples"), h("a", { class: "button", href: link({ ...gridPart(state), marks: null }), "aria-label": "Show all samples" }, "✕"))];
  if (state.near || state.far) {
    if (!state.inside && !state.q) return state.look === "map" ? [h("div", { class: "progress" }, h("h2", { class: "searched" }, state.near ? "Near-duplicates" : "Outliers"), h("a", { href: link({ ...gridPart(state), look: null }) }, "Show them"), h("a", { class: "button", href: link({ ...gridPart(state), near: null, far: null }), "aria-label": "Show all samples" }, "✕"))] : [];
  }
  if (state.inside && !state.q) return [h("div", { class: "progress" }, h("h2", { class: "searched" }, "Inside an outline of the map"), h("a", { href: link({ ...gridPart(state), inside: null, look: "map" }) }, "Back to the map"), state.look === "map" ? null : saving(state), h("a", { class: "button", href: link({ ...gridPart(state), inside: null }), "aria-label": "Show all samples" }, "✕"))];
  if (!state.q) return [];
  const exact = state.whole === "1";
  const wanted = /^\d{1,15}$/.test(state.q) ? Number(state.q) : Infinity;
  return [h("div", { class: "progress" },
    h("h2", { class: "searched" }, exact ? "Key " : "Keys that contain ", h("code", {}, state.q)),
    h("a", { href: link({ ...gridPart(state), whole: exact ? null : "1" }) }, exact ? "Keys that contain it" : "Only this very key"),
    wanted < dataset.num_samples ? h("a", { href: link({ ...gridPart(state), q: null, whole: null, i: String(wanted) }) }, `Sample number ${number(wanted)}`) : null,
    h("a", { class: "button", href: link({ ...filterable(state), q: null, whole: null }), "aria-label": "Clear the search" }, "✕"))];
}

/** How far a filter is, what it found, and a link that saves it. */
export function filterProgress(page, state) {
  const filtering = page.filtering;
  if (!filtering) return [];
  const { shards_done: done, num_shards: total, found, finished, full } = filtering;
  const told = [`${counted(found, "sample")} found`];
  if (!finished) told.push(`${number(done)} of ${counted(total, "shard")} read`);
  const left = leftOut(filtering);
  if (left) told.push(left);
  if (filtering.unknown_fields.length) told.push(`no shard read so far has the field ${filtering.unknown_fields.join(", ")}; the first has ${filtering.fields.join(", ")}`);
  if (filtering.hint) told.push(filtering.hint);
  if (full) told.push("more than are kept; narrow the filter");
  return [
    h("div", { class: "progress" },
      finished ? null : h("progress", { max: total, value: done, "aria-label": "Filter" }),
      h("span", {}, told.join(" · ")),
      finished && found && !full ? saving(state) : null),
  ];
}

/** How far the values are read by which the samples are sorted, and how to leave that order. */
export function sortProgress(page, state) {
  if (!page.sorting) return [];
  const { shards_done: done, num_shards: total, finished } = page.sorting;
  const name = state.sort.replace(/^-/, "");
  const told = finished ? [] : [`${number(done)} of ${counted(total, "shard")} read; what is read is kept in the cache folder`];
  const left = leftOut(page.sorting);
  return [h("div", { class: "progress" },
    finished ? null : h("progress", { max: total, value: done, "aria-label": "Sorting" }),
    h("span", {}, ["Sorted by ", h("code", {}, name), state.sort.startsWith("-") ? ", greatest first" : ", least first", [...told, left].filter(Boolean).map((each) => ` · ${each}`)]),
    h("a", { class: "button", href: link({ ...gridPart(state), sort: null }), "aria-label": "Clear the order" }, "✕"))];
}

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
export function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}
