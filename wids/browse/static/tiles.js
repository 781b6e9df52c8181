// One tile of the grid: its picture or the beginning of its text, its class, key and number.

import { h } from "./dom.js";
import { number } from "./format.js";
import { playsFilm } from "./films.js";
import { markButton } from "./marks.js";
import { noteOf } from "./singled.js";
import { gridPart, link, orderPart } from "./state.js";
import { thumbnail } from "./thumbnails.js";

const GLYPHS = { audio: "♪", video: "▶", array: "▦", text: "¶", json: "{ }", class: "#", bytes: "01" };
const DRAWN = [96, 144, 192, 256, 320, 480, 640, 960, 1280]; // pixels that the server draws

/** The link to a sample of a grid: by its number as stored, else by its position in the order. */
export function placeOf(tile, state) {
  const stored = !Object.keys(orderPart(state)).length;
  return stored ? { i: tile.index } : { p: tile.position };
}

/** Make a tile, with a picture of as many pixels as it is shown with. */
export function tileOf(tile, state, pixels) {
  const place = placeOf(tile, state);
  const item = h("li", { class: (tile.singled?.[0] ?? -1) % 2 === 1 ? "odd-group" : null },
    h("a", {
      class: "tile", href: link({ ...gridPart(state), at: state.at, ...place }), title: tile.key ?? "",
      "data-place": place.i ?? place.p, "data-position": tile.position,
    },
      h("span", { class: "picture" }, pictureOf(tile, pixels), noteOf(tile, state)),
      h("span", { class: "words" },
        labelOf(tile),
        h("span", { class: "key" }, h("bdi", {}, tile.key ?? `sample ${tile.index}`)),
        h("span", { class: "index" }, number(tile.index)))),
    markButton(tile.index));
  if (tile.film && !tile.error) playsFilm(item, tile);
  return item;
}

/** Pixels of the longer side that a picture in a tile of the list needs. */
export function pixelsFor(list) {
  const column = Number.parseFloat(getComputedStyle(list).gridTemplateColumns) || 192;
  return DRAWN.find((size) => size >= column * devicePixelRatio - 1) ?? DRAWN.at(-1);
}

/** Ask for sharper pictures where the tiles have become larger than what was drawn for them. */
export function sharpen(list, pixels) {
  for (const image of list.querySelectorAll("img[data-pixels]")) {
    if (Number(image.dataset.pixels) >= pixels) continue;
    image.src = image.src.replace(/([?&]s=)\d+/, `$1${pixels}`);
    image.dataset.pixels = pixels;
  }
}

function pictureOf(tile, pixels) {
  if (tile.error) return h("span", { class: "excerpt problem" }, tile.error);
  if (tile.picture === null || tile.picture === undefined) {
    return [
      h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[tile.kind] ?? "·"),
      h("span", { class: "excerpt" }, tile.caption ?? tile.fields.join("  ")),
    ];
  }
  const badge = tile.kind === "audio" ? h("span", { class: "badge", "aria-hidden": "true" }, GLYPHS[tile.kind]) : null;
  return [badge, thumbnail(tile, tile.picture, pixels, { "data-pixels": pixels, alt: tile.caption ?? "", onload: enlarge })];
}

/** Show an image of few pixels, such as a digit, as large as its tile, and its pixels as squares. */
function enlarge(event) {
  const image = event.target;
  const small = Math.max(image.naturalWidth, image.naturalHeight) * 1.5 < image.parentElement.clientWidth;
  image.classList.toggle("small", small);
}

/** The class of a sample, by its name. */
export function labelOf(tile) {
  if (!tile.label) return null;
  const { value, name } = tile.label;
  return h("span", { class: "label" }, name ?? String(value));
}
