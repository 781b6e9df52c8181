// A page of samples as a table: what headers, classes and JSON state, a column each.

import { button, h } from "./dom.js";
import { number } from "./format.js";
import { markButton } from "./marks.js";
import { go, gridPart, link } from "./state.js";
import { thumbnail } from "./thumbnails.js";
import { placeOf } from "./tiles.js";

/** Make the table of a page. */
export function tableOf(tiles, columns, state) {
  const captions = tiles.some((tile) => tile.caption);
  const heads = ["", "sample", "key", ...columns, ...(captions ? ["text"] : [])];
  return h("div", { class: "scroll samples", tabindex: 0, role: "region", "aria-label": "Samples" },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((name) => (columns.includes(name) ? sortable(name, state) : h("th", { scope: "col" }, name || h("span", { class: "hidden" }, "picture")))))),
      h("tbody", {}, tiles.map((tile) => rowOf(tile, columns, state, captions)))));
}

/** The head of a column that sorts by it: first ascending, then descending, then as stored. */
function sortable(name, state) {
  const now = state.sort === name ? "ascending" : state.sort === `${name} desc` ? "descending" : null;
  const next = { ascending: `${name} desc`, descending: null }[now] ?? (now ? null : name);
  const sign = { ascending: "▲", descending: "▼" }[now] ?? "";
  return h("th", { scope: "col", "aria-sort": now },
    button([name, h("span", { class: "sign", "aria-hidden": "true" }, sign)], () => go({ ...gridPart(state), sort: next }),
      { class: "plain sort", "data-sort": name, title: now ? `Sorted, ${now}` : "Sort by this column" }));
}

function rowOf(tile, columns, state, captions) {
  const place = placeOf(tile, state);
  const href = link({ ...gridPart(state), at: state.at, ...place });
  const values = tile.values ?? [];
  return h("tr", {},
    h("td", { class: "cell-picture" }, pictureOf(tile), markButton(tile.index)),
    h("td", { class: "figure" }, number(tile.index)),
    h("td", {}, h("a", { class: "key", href, "data-place": place.i ?? place.p, "data-position": tile.position }, tile.key ?? `sample ${tile.index}`)),
    columns.map((name, n) => cell(name.includes(".") ? values[n] : classOf(tile, values[n]))),
    captions ? h("td", { class: tile.error ? "problem" : "caption" }, tile.error ?? tile.caption ?? "") : null);
}

/** The class with its name, where it is that of the tile. */
function classOf(tile, value) {
  const label = tile.label;
  return label && String(label.value) === String(value) && label.name ? `${value} ${label.name}` : value;
}

function cell(value) {
  if (value === null || value === undefined) return h("td", { class: "muted" }, "–");
  return h("td", { class: typeof value === "number" ? "figure" : "word" }, typeof value === "number" ? number(value) : String(value));
}

function pictureOf(tile) {
  if (tile.picture === null || tile.picture === undefined) return null;
  return thumbnail(tile, tile.picture, 96);
}
