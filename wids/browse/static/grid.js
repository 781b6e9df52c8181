// The grid: a page of samples at some positions of an order.

import { ask, selection, thumb } from "./api.js";
import { announce, h } from "./dom.js";
import { counted, number } from "./format.js";
import { toolbar } from "./toolbar.js";
import { leftOut, tellWhole } from "./waits.js";
import { go, gridPart, link, orderPart } from "./state.js";

// Tiles on a page, and pixels of their pictures on a screen of usual and of double density.
export const SIZES = {
  s: { count: 120, pixels: [96, 192] },
  m: { count: 60, pixels: [192, 320] },
  l: { count: 24, pixels: [320, 640] },
};
const GLYPHS = { audio: "♪", video: "▶", array: "▦", text: "¶", json: "{ }", class: "#", bytes: "01" };

/** Show the page that the state asks for; while a filter runs, show what it has found so far. */
export async function showGrid({ view, state, signal, shown }) {
  const size = SIZES[state.size] ? state.size : "m";
  const count = SIZES[size].count;
  const at = Math.max(0, Number.parseInt(state.at ?? "0", 10) || 0);
  const bar = toolbar(state);
  const progress = h("div", {});
  const list = h("ul", { class: `grid ${size}`, "aria-label": "Samples" });
  const pages = h("div", { class: "pager-place" });
  let placed = false;
  let last = "";
  for (;;) {
    let page;
    try {
      page = await ask("page", { ...orderPart(state), at, count }, signal);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      place(view, bar, h("p", { class: "problem", role: "alert" }, error.message));
      shown();
      return;
    }
    if (!placed) place(view, bar, progress, list, pages);
    placed = true;
    progress.replaceChildren(...filterProgress(page, state), ...[tellWhole(page.fetched_whole)].filter(Boolean));
    pages.replaceChildren(pager(state, at, count, page.total));
    // Tiles that stay the same stay in the document, with the focus that may be on one.
    const now = JSON.stringify(page.tiles);
    if (now !== last) list.replaceChildren(...page.tiles.map((tile) => tileOf(tile, state, size)));
    last = now;
    shown();
    if (!page.filtering || page.filtering.finished) {
      tellEmpty(list, page, state, at);
      announce(`${counted(page.total, "sample")}, from position ${number(at)} on`);
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 600));
    if (signal.aborted) return;
  }
}

/** Put the parts of the view in place; the toolbar stays where it is, with the focus in it. */
function place(view, bar, ...rest) {
  if (view.firstElementChild !== bar) {
    view.replaceChildren(bar, ...rest);
    return;
  }
  while (bar.nextSibling) bar.nextSibling.remove();
  view.append(...rest);
}

function tellEmpty(list, page, state, at) {
  if (page.tiles.length) return;
  const text = page.total
    ? h("p", {}, `There is nothing at position ${number(at)}. `,
        h("a", { href: link({ ...gridPart(state) }) }, "Go to the first page"))
    : h("p", {}, state.where ? "No sample fulfils the filter." : "There are no samples here.");
  list.replaceChildren(h("li", { class: "empty" }, text));
}

function filterProgress(page, state) {
  const filtering = page.filtering;
  if (!filtering) return [];
  const { shards_done: done, num_shards: total, found, finished, full } = filtering;
  const parts = [`${counted(found, "sample")} found`];
  if (!finished) parts.push(`${number(done)} of ${counted(total, "shard")} read`);
  const left = leftOut(filtering);
  if (left) parts.push(left);
  if (filtering.unknown_fields.length) parts.push(`no shard read so far has the field ${filtering.unknown_fields.join(", ")}; the first has ${filtering.fields.join(", ")}`);
  if (filtering.hint) parts.push(filtering.hint);
  if (full) parts.push("more than are kept; narrow the filter");
  return [
    h("div", { class: "progress" },
      finished ? null : h("progress", { max: total, value: done, "aria-label": "Filter" }),
      h("span", {}, parts.join(" · ")),
      finished && found && !full ? saving(state) : null),
  ];
}

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}

function tileOf(tile, state, size) {
  const stored = !state.order && !state.where;
  const place = stored ? { i: tile.index } : { p: tile.position };
  const href = link({ ...gridPart(state), at: state.at, ...place });
  return h("li", {},
    h("a", { class: "tile", href, title: tile.key ?? "", "data-place": stored ? tile.index : tile.position },
      h("span", { class: "picture" }, pictureOf(tile, size)),
      h("span", { class: "words" },
        labelOf(tile),
        h("span", { class: "key" }, h("bdi", {}, tile.key ?? `sample ${tile.index}`)),
        h("span", { class: "index" }, number(tile.index)))));
}

function pictureOf(tile, size) {
  if (tile.error) return h("span", { class: "excerpt problem" }, tile.error);
  if (tile.picture === null || tile.picture === undefined) {
    return [
      h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[tile.kind] ?? "·"),
      h("span", { class: "excerpt" }, tile.caption ?? tile.fields.join("  ")),
    ];
  }
  const [plain, dense] = SIZES[size].pixels;
  const moves = tile.kind === "audio" || tile.kind === "video";
  const badge = moves ? h("span", { class: "badge", "aria-hidden": "true" }, GLYPHS[tile.kind]) : null;
  return [badge, h("img", {
    src: thumb(tile, tile.picture, devicePixelRatio > 1.2 ? dense : plain),
    alt: tile.caption ?? "",
    loading: "lazy",
    decoding: "async",
    onload: enlarge,
  })];
}

/** Give the tile of a sample the focus, so that one goes on where one was; if it is on this page. */
export function focusTile(view, sample, preventScroll) {
  const place = sample.p ?? sample.i;
  view.querySelector(`.tile[data-place="${CSS.escape(place ?? "")}"]`)?.focus({ preventScroll });
}

/** Show an image of few pixels, such as a digit, as large as its tile, and its pixels as squares. */
function enlarge(event) {
  const image = event.target;
  const small = Math.max(image.naturalWidth, image.naturalHeight) * 1.5 < image.parentElement.clientWidth;
  image.classList.toggle("small", small);
}

function labelOf(tile) {
  if (!tile.label) return null;
  const { value, name } = tile.label;
  return h("span", { class: "label" }, name ?? String(value));
}

function pager(state, at, count, total) {
  const grid = gridPart(state);
  const to = (position) => link({ ...grid, at: position > 0 ? position : null });
  const last = Math.max(0, Math.floor((total - 1) / count) * count);
  const step = (text, position, key, label, enabled) => (enabled
    ? h("a", { class: "button", href: to(position), "data-key": key, "aria-label": label }, text)
    : h("span", { class: "button off", "aria-hidden": "true" }, text));
  const shown = total ? `${number(at + 1)}–${number(Math.min(at + count, total))} of ${number(total)}` : "0";
  const slider = h("input", {
    type: "range", min: 0, max: Math.max(0, total - 1), step: 1, value: at,
    "aria-label": "Position", disabled: total <= count,
    oninput: (event) => { label.textContent = `${number(Number(event.target.value) + 1)} of ${number(total)}`; },
    onchange: (event) => {
      const position = Math.floor(Number(event.target.value) / count) * count;
      go({ ...grid, at: position || null });
    },
  });
  const label = h("span", { class: "where" }, shown);
  return h("nav", { class: "pager", "aria-label": "Pages" },
    step("«", 0, "Home", "First page", at > 0),
    step("‹", Math.max(0, at - count), "p", "Previous page", at > 0),
    label,
    step("›", at + count, "n", "Next page", at + count < total),
    step("»", last, "End", "Last page", at < last),
    slider);
}
