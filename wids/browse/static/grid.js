// The grid: a page of samples at some positions of an order.

import { explore, filterProgress, foot, found } from "./facets.js";
import { pixelsFor, readingOf, sharpen, tableOf, tileOf } from "./looks.js";
import { singledOut } from "./map.js";
import { dragMarks } from "./marks.js";
import { countOf, learn, lookOf, markWrong, named, toolbar } from "./toolbar.js";
import { announce, counted, h, number, tellWhole } from "./ui.js";
import { follow, go, gridPart, link, orderPart } from "./urls.js";

const progress = h("div", {});
const list = h("ul", { "aria-label": "Samples" });
const pager = makePager();
foot.append(pager.element);
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
  toolbar(state, dataset);
  sorter = document.activeElement?.dataset.sort ?? null;
  const key = link(orderPart(state));
  turn(state, at, count, key === known.key ? known.total : 0);
  let last = null; // the tiles that were drawn
  const draw = (page) => {
    learn(page.looks);
    if (last === null) explore(view, state, dataset, signal); // with the looks, which were not known before
    // A first page is asked for before its look is known, and then may be too long.
    count = countOf(state);
    page.tiles.splice(count);
    const focused = document.activeElement;
    known = { key, total: page.total };
    turn(state, at, count, page.total);
    progress.replaceChildren(...singledOut(page, state, dataset), ...filterProgress(page, state), ...[tellWhole(page.fetched_whole)].filter(Boolean));
    if (progress.contains(focused)) focused.focus({ preventScroll: true }); // it was out of the page
    // Tiles that stay the same stay in the document, with the focus that may be on one.
    const now = JSON.stringify(page.tiles);
    // What was shown stays until there is an answer, which may be that the condition is wrong.
    const waits = page.finished === false && !page.tiles.length && found.contains(progress);
    if (now !== last && !waits) fill(page, state);
    last = waits ? "" : now;
    arrive();
    shown(`${state.q ?? state.where ?? (state.order ? `${state.order} order` : "Samples")} ${range(at, count, page.total)}`);
  };
  try {
    const page = await follow("page", { ...orderPart(state), at, count, look: named(state) }, signal, draw);
    tellEmpty(page, state, at);
    announce(`${counted(page.total, "sample")}, from position ${number(at)} on`);
  } catch (error) {
    // What was shown before stays, so that a slip in a filter does not cost the place.
    explore(view, state, dataset, signal, markWrong(error.message, state));
    shown();
  }
}

/** Lead the pager and the keys on from a page, before its tiles are there. */
function turn(state, at, count, total) {
  if (!total) return turnTo(null);
  pager.update(state, at, count, total);
  turnTo({ list: found, at, count, total, ready: false, open: (to) => go({ ...gridPart(state), at: to || null }) });
}

function fill({ tiles, columns, look }, state) {
  if (look !== "grid" && tiles.length) {
    found.replaceChildren(progress, look === "table" ? tableOf(tiles, columns, state) : readingOf(tiles, columns, state));
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

/** Give the tile of a sample the focus, so that one goes on where one was; if it is on this page. */
export function focusTile(sample) {
  const place = sample.p ?? sample.i;
  found.querySelector(`[data-place="${CSS.escape(place ?? "")}"]`)?.focus();
}

function tellEmpty(page, state, at) {
  if (page.tiles.length) return;
  const text = page.total
    ? h("p", {}, `There is nothing at position ${number(at)}. `,
        h("a", { href: link(gridPart(state)) }, "Go to the first page"))
    : h("p", {}, page.filtering || state.marks || state.near ? "No sample fulfils this." : "There are no samples here.");
  list.replaceChildren(h("li", { class: "empty" }, text));
}

// The bar below the grid: links to other pages.

/** Make the bar once; `update` leads it on from another page, so that the focus in it stays. */
function makePager() {
  const steps = [["«", "Home", "First page"], ["‹", "p", "Previous page"], ["›", "n", "Next page"], ["»", "End", "Last page"]]
    .map(([text, key, label]) => h("a", { class: "button", "data-key": key, "aria-label": label }, text));
  const told = h("span", { class: "where" });
  const element = h("nav", { class: "pager", "aria-label": "Pages" }, steps.slice(0, 2), told, steps.slice(2));

  function update(state, at, count, total) {
    const end = Math.max(0, Math.floor((total - 1) / count) * count);
    [[0, at > 0], [Math.max(0, at - count), at > 0], [at + count, at + count < total], [end, at < end]].forEach(([to, enabled], n) => {
      steps[n].classList.toggle("off", !enabled);
      steps[n].toggleAttribute("aria-disabled", !enabled);
      if (enabled) steps[n].href = link({ ...gridPart(state), at: to || null });
      else steps[n].removeAttribute("href");
    });
    told.textContent = range(at, count, total);
  }

  return { element, update };
}

/** Say which samples a page holds, counted from 0 as everywhere. */
function range(at, count, total) {
  if (at >= total) return `0 of ${number(total)}`;
  return `${number(at)}–${number(Math.min(at + count, total) - 1)} of ${number(total)}`;
}

// Where one is among the tiles. Presses count while their page is still coming.


let page = null; // {list, at, count, total, ready, open}: the page that is shown or on its way
let wanted = null; // the position to focus when its page is there
let columns = 1;

/** Say which page one is going to, or null where there is no grid; `open(at)` goes to another. */
export function turnTo(next) {
  page = next;
  pager.element.hidden = !next;
  if (!next) wanted = null;
}

/** Say that the tiles of the page are there. */
function arrive() {
  if (!page) return;
  page.ready = true;
  if (wanted === null) return;
  tile(wanted)?.focus();
  wanted = null;
}

/** Move among the tiles, and on to other pages; returns whether the key is one that moves. */
export function move(key) {
  if (!page || !page.total) return false;
  const delta = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1, ArrowDown: rowLength(), ArrowUp: -rowLength() }[key];
  if (delta === undefined) return false;
  const here = wanted ?? document.activeElement?.closest("[data-position]")?.dataset.position;
  const to = here === undefined ? page.at : Math.min(Math.max(Number(here) + delta, 0), page.total - 1);
  const inside = to >= page.at && to < page.at + page.count;
  if (inside && page.ready) {
    tile(to)?.focus();
    return true;
  }
  wanted = to;
  if (!inside) page.open(Math.floor(to / page.count) * page.count);
  return true;
}

function tile(position) {
  return page.list.querySelector(`[data-position="${position}"]`);
}

/** Tiles in a row: as many as there are in the first. */
function rowLength() {
  const tiles = [...page.list.querySelectorAll("[data-position]")];
  if (!tiles.length) return columns;
  const top = tiles[0].getBoundingClientRect().bottom;
  const next = tiles.findIndex((each) => each.getBoundingClientRect().top >= top);
  columns = next < 1 ? tiles.length : next;
  return columns;
}
