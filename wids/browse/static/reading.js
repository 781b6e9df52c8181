// A page of samples as a list: pictures, sounds, conversations and texts as one reads them.

import { conversation } from "./chat.js";
import { clamped } from "./clamp.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { markButton } from "./marks.js";
import { sound } from "./sounds.js";
import { gridPart, link } from "./state.js";
import { thumbnail } from "./thumbnails.js";
import { labelOf, placeOf } from "./tiles.js";

const SEEN = new Set(["image", "video", "array"]); // kinds whose picture is more than a waveform

/** Make the list of a page. */
export function readingOf(tiles, look, columns, state) {
  const pictures = look !== "text" && tiles.some(hasPicture);
  return h("ul", { class: `reading ${look}${pictures ? " pictured" : ""}`, "aria-label": "Samples" },
    tiles.map((tile) => rowOf(tile, columns, state, pictures)));
}

function hasPicture(tile) {
  return tile.picture !== null && tile.picture !== undefined && SEEN.has(tile.kind);
}

function rowOf(tile, columns, state, pictures) {
  const place = placeOf(tile, state);
  const href = link({ ...gridPart(state), at: state.at, ...place });
  const picture = pictures && hasPicture(tile)
    ? h("a", { class: "row-picture", href, tabindex: -1, "aria-hidden": "true" }, thumbnail(tile, tile.picture, devicePixelRatio > 1.2 ? 960 : 480)) : null;
  return h("li", { class: "row" },
    pictures ? h("div", { class: "row-side" }, picture) : null,
    h("div", { class: "row-main" },
      h("header", {},
        h("a", { class: "key", href, "data-place": place.i ?? place.p, "data-position": tile.position }, h("bdi", {}, tile.key ?? `sample ${tile.index}`)),
        labelOf(tile), h("span", { class: "index" }, number(tile.index)), markButton(tile.index)),
      tile.error ? h("p", { class: "problem" }, tile.error) : null,
      tile.audio ? sound(tile, tile.audio) : null,
      tile.conversation ? conversation(tile, tile.conversation, { clamp: true }) : words(tile, href),
      valuesOf(tile, columns)));
}

/** The text of a sample, or what its tile says in place of one. */
function words(tile, href) {
  if (tile.text) {
    if (!tile.text.text) return h("p", { class: "muted" }, "Empty.");
    const rest = tile.text.more ? h("p", { class: "muted" }, "This is the beginning. ", h("a", { href }, "Open the sample")) : null;
    return clamped(h("p", { class: "prose" }, tile.text.text), { rest });
  }
  const alone = !tile.audio && !hasPicture(tile) && !tile.values;
  const said = tile.values ? null : tile.caption ?? (alone ? tile.fields?.join("  ") : null);
  return said ? h("p", { class: "muted" }, said) : null;
}

function valuesOf(tile, columns) {
  const rows = (tile.values ?? []).map((value, place) => [columns[place], value]).filter(([, value]) => value !== null);
  if (!rows.length) return null;
  return h("dl", { class: "row-values" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, typeof value === "number" ? number(value) : String(value)))));
}
