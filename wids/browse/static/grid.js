// The grid: a page of samples at some positions of an order.

import { ask, selection } from "./api.js";
import { arrive, turnTo } from "./cursor.js";
import { announce, h } from "./dom.js";
import { counted, number } from "./format.js";
import { makePager, range } from "./pager.js";
import { pixelsFor, sharpen, tileOf } from "./tiles.js";
import { toolbar } from "./toolbar.js";
import { leftOut, tellWhole } from "./waits.js";
import { filterable, go, gridPart, link, orderPart } from "./state.js";

export const COUNTS = { s: 120, m: 60, l: 24 }; // tiles on a page, by their size

const progress = h("div", {});
const list = h("ul", { "aria-label": "Samples" });
const pager = makePager();
const parts = [progress, list, h("div", { class: "pager-place" }, pager.element)];
let known = { key: null, total: 0 }; // samples in the order that was shown last
let drawn = 0; // pixels of the pictures

new ResizeObserver(() => {
  const pixels = pixelsFor(list);
  if (pixels > drawn) sharpen(list, drawn = pixels);
}).observe(list);

/** Show the page that the state asks for; while a filter runs, show what it has found so far. */
export async function showGrid({ view, state, dataset, signal, shown }) {
  const size = COUNTS[state.size] ? state.size : "m";
  const count = COUNTS[size];
  const at = Number(state.at ?? 0);
  const bar = toolbar(state);
  const key = link(orderPart(state));
  turn(state, at, count, key === known.key ? known.total : 0);
  for (let last = ""; ;) {
    let page;
    try {
      page = await ask("page", { ...orderPart(state), at, count }, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      place(view, bar, h("p", { class: "problem", role: "alert" }, error.message));
      shown();
      return;
    }
    place(view, bar, ...parts);
    known = { key, total: page.total };
    turn(state, at, count, page.total);
    progress.replaceChildren(...searched(state, dataset), ...filterProgress(page, state), ...[tellWhole(page.fetched_whole)].filter(Boolean));
    // Tiles that stay the same stay in the document, with the focus that may be on one.
    const now = JSON.stringify(page.tiles);
    if (now !== last) fill(page.tiles, state, size);
    last = now;
    arrive();
    shown(title(state, at, count, page.total));
    if (!page.filtering || page.filtering.finished) {
      tellEmpty(page, state, at);
      announce(`${counted(page.total, "sample")}, from position ${number(at)} on`);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 600));
    if (signal.aborted) return;
  }
}

/** Lead the pager and the keys on from a page, before its tiles are there. */
function turn(state, at, count, total) {
  if (!total) return turnTo(null);
  pager.update(state, at, count, total);
  turnTo({ list, at, count, total, ready: false, open: (to) => go({ ...gridPart(state), at: to || null }) });
}

function fill(tiles, state, size) {
  list.className = `grid ${size}`;
  drawn = pixelsFor(list);
  list.replaceChildren(...tiles.map((tile) => tileOf(tile, state, drawn)));
}

function title(state, at, count, total) {
  const what = state.q ?? state.where ?? (state.order ? `${state.order} order` : "Samples");
  return `${what} ${range(at, count, total)}`;
}

/** Put the parts of the view in place; the toolbar stays where it is, with the focus in it. */
function place(view, bar, ...rest) {
  const now = [...view.children];
  if (now.length === rest.length + 1 && [bar, ...rest].every((part, n) => part === now[n])) return;
  if (view.firstElementChild !== bar) {
    view.replaceChildren(bar, ...rest);
    return;
  }
  while (bar.nextSibling) bar.nextSibling.remove();
  view.append(...rest);
}

/** Give the tile of a sample the focus, so that one goes on where one was; if it is on this page. */
export function focusTile(sample, preventScroll) {
  const place = sample.p ?? sample.i;
  list.querySelector(`.tile[data-place="${CSS.escape(place ?? "")}"]`)?.focus({ preventScroll });
}

function tellEmpty(page, state, at) {
  if (page.tiles.length) return;
  const text = page.total
    ? h("p", {}, `There is nothing at position ${number(at)}. `,
        h("a", { href: link({ ...gridPart(state) }) }, "Go to the first page"))
    : h("p", {}, state.where || state.q ? "No sample fulfils this." : "There are no samples here.");
  list.replaceChildren(h("li", { class: "empty" }, text));
}

/** What is searched for among the keys, and the way to the sample of that number. */
function searched(state, dataset) {
  if (!state.q) return [];
  const exact = state.whole === "1";
  const wanted = /^\d{1,15}$/.test(state.q) ? Number(state.q) : Infinity;
  return [h("div", { class: "progress" },
    h("h2", { class: "searched" }, exact ? "Key " : "Keys that contain ", h("code", {}, state.q)),
    h("a", { href: link({ ...gridPart(state), whole: exact ? null : "1" }) }, exact ? "Keys that contain it" : "Only this very key"),
    wanted < dataset.num_samples ? h("a", { href: link({ ...gridPart(state), q: null, whole: null, i: String(wanted) }) }, `Sample number ${number(wanted)}`) : null,
    h("a", { class: "button", href: link({ ...filterable(state), q: null, whole: null }), "aria-label": "Clear the search" }, "✕"))];
}

function filterProgress(page, state) {
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

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}
