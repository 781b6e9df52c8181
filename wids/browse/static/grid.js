// The grid: a page of samples at some positions of an order.

import { ask } from "./api.js";
import { arrive, turnTo } from "./cursor.js";
import { announce, h } from "./dom.js";
import { facetPanel } from "./facets.js";
import { counted, number } from "./format.js";
import { filterProgress, searched } from "./found.js";
import { dragMarks, marksTray } from "./marks.js";
import { countOf, learn, lookOf, named } from "./looks.js";
import { makePager, range } from "./pager.js";
import { readingOf } from "./reading.js";
import { tableOf } from "./table.js";
import { singledOut } from "./singled.js";
import { pixelsFor, sharpen, tileOf } from "./tiles.js";
import { chosen } from "./settings.js";
import { markWrong, toolbar } from "./toolbar.js";
import { tellWhole } from "./waits.js";
import { go, gridPart, link, orderPart } from "./state.js";

const progress = h("div", {});
const list = h("ul", { "aria-label": "Samples" });
const pager = makePager();
const found = h("div", { class: "found" }, progress, list);
const side = h("div", { class: "side" });
const parts = [h("div", { class: "explorer" }, side, found), h("div", { class: "pager-place" }, marksTray(), pager.element)];
dragMarks(found);
let known = { key: null, total: 0 }; // samples in the order that was shown last
let sorter = null; // the column whose head had the focus
let drawn = 0; // pixels of the pictures

new ResizeObserver(() => {
  const pixels = pixelsFor(list);
  if (pixels > drawn) sharpen(list, drawn = pixels);
}).observe(list);

/** Show the page that the state asks for; while a filter runs, show what it has found so far. */
export async function showGrid({ view, state, dataset, signal, shown }) {
  let count = countOf(state);
  const at = Number(state.at ?? 0);
  const bar = toolbar(state, dataset);
  sorter = document.activeElement?.dataset.sort ?? null;
  const key = link(orderPart(state));
  turn(state, at, count, key === known.key ? known.total : 0);
  let placed = false;
  for (let last = ""; ;) {
    let page;
    try {
      page = await ask("page", { ...orderPart(state), at, count, look: named(state) }, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      // What was shown before stays, so that a slip in a filter does not cost the place.
      place(view, bar, markWrong(error.message, state), ...(known.key === null ? [] : parts));
      fillSide(state, dataset, signal);
      shown();
      return;
    }
    learn(page.looks);
    if (!placed) {
      toolbar(state, dataset); // which did not know the looks before
      fillSide(state, dataset, signal);
    }
    // A first page is asked for before its look is known, and then may be too long.
    count = countOf(state);
    page.tiles.splice(count);
    placed = true;
    const focused = document.activeElement;
    if (!parts[1].contains(marksTray())) parts[1].prepend(marksTray()); // the map has taken it
    place(view, bar, ...parts);
    known = { key, total: page.total };
    turn(state, at, count, page.total);
    progress.replaceChildren(...singledOut(page, state, dataset), ...searched(state, dataset), ...filterProgress(page, state), ...[tellWhole(page.fetched_whole)].filter(Boolean));
    if (progress.contains(focused)) focused.focus({ preventScroll: true }); // it was out of the page
    // Tiles that stay the same stay in the document, with the focus that may be on one.
    const now = JSON.stringify(page.tiles);
    if (now !== last) fill(page, state);
    last = now;
    arrive();
    shown(title(state, at, count, page.total));
    if ([page.filtering, page.comparing].every((each) => each?.finished ?? true)) {
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
  pager.element.hidden = !total;
  if (!total) return turnTo(null);
  pager.update(state, at, count, total);
  turnTo({ list: found, at, count, total, ready: false, open: (to) => go({ ...gridPart(state), at: to || null }) });
}

/** Show the facets, or none; the panel stays where it is, with the focus in it. */
function fillSide(state, dataset, signal) {
  const panel = chosen("facets") ? facetPanel(state, dataset, signal) : null;
  if (side.firstElementChild !== panel) side.replaceChildren(...[panel].filter(Boolean));
}

function fill({ tiles, columns, look }, state) {
  if (look !== "grid" && look !== "table" && tiles.length) {
    found.replaceChildren(progress, readingOf(tiles, look, columns, state));
    return;
  }
  if (look === "table" && tiles.length) {
    found.replaceChildren(progress, tableOf(tiles, columns, state));
    // Who sorts by the keyboard goes on at the head of the column.
    if (sorter && document.activeElement === document.body) found.querySelector(`[data-sort="${CSS.escape(sorter)}"]`)?.focus();
    sorter = null;
    return;
  }
  if (!list.isConnected) found.replaceChildren(progress, list);
  list.className = `grid ${lookOf(state) === "grid" ? state.size ?? "m" : "m"}`;
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
  // What stays is not moved, as it would lose the focus that is in it.
  for (const each of now) if (each !== bar && !rest.includes(each)) each.remove();
  [bar, ...rest].forEach((part, n) => { if (view.children[n] !== part) view.insertBefore(part, view.children[n] ?? null); });
}

/** Give the tile of a sample the focus, so that one goes on where one was; if it is on this page. */
export function focusTile(sample, preventScroll) {
  const place = sample.p ?? sample.i;
  found.querySelector(`[data-place="${CSS.escape(place ?? "")}"]`)?.focus({ preventScroll });
}

function tellEmpty(page, state, at) {
  if (page.tiles.length) return;
  const text = page.total
    ? h("p", {}, `There is nothing at position ${number(at)}. `,
        h("a", { href: link({ ...gridPart(state) }) }, "Go to the first page"))
    : h("p", {}, page.filtering || state.marks || state.near ? "No sample fulfils this." : "There are no samples here.");
  list.replaceChildren(h("li", { class: "empty" }, text));
}
