// The looks at a page of samples: tiles, a table, a list.

import { clamped, conversation } from "./chat.js";
import { audio } from "./fields.js";
import { markButton } from "./marks.js";
import { layerOf, thumbnail } from "./picture.js";
import { announce, button, h, number, seconds, table } from "./ui.js";
import { go, gridPart, link, orderPart, raw } from "./urls.js";

const GLYPHS = { audio: "♪", video: "▶", array: "▦", text: "¶", json: "{ }", class: "#", bytes: "01" };
const DRAWN = [96, 144, 192, 256, 320, 480, 640, 960, 1280]; // pixels that the server draws

// One tile of the grid: its picture or the beginning of its text, its class, key and number.

/** The link to a sample of a grid: by its number as stored, else by its position in the order. */
function linkTo(tile, state) {
  const place = Object.keys(orderPart(state)).length ? { p: tile.position } : { i: tile.index };
  return { href: link({ ...gridPart(state), at: state.at, ...place }), "data-place": place.i ?? place.p, "data-position": tile.position };
}

const nameOf = (tile) => tile.key ?? `sample ${tile.index}`;

/** Make a tile, with a picture of as many pixels as it is shown with. */
export function tileOf(tile, state, pixels) {
  const item = h("li", { class: (tile.singled?.[0] ?? -1) % 2 === 1 ? "odd-group" : null },
    h("a", { class: "tile", title: tile.key ?? "", ...linkTo(tile, state) },
      h("span", { class: "picture" }, pictureOf(tile, pixels), noteOf(tile, state)),
      h("span", { class: "words" }, labelOf(tile), h("span", { class: "key" }, h("bdi", {}, nameOf(tile))), h("span", { class: "index" }, number(tile.index)))),
    markButton(tile.index));
  if (tile.film !== null && !tile.error) playsFilm(item, tile);
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
  if (!Number.isInteger(tile.picture)) {
    return [
      h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[tile.kind] ?? "·"),
      h("span", { class: "excerpt" }, tile.caption ?? tile.fields.join("  ")),
    ];
  }
  const badge = tile.kind === "audio" ? h("span", { class: "badge", "aria-hidden": "true" }, GLYPHS[tile.kind]) : null;
  return [badge, thumbnail(tile, tile.picture, pixels, { "data-pixels": pixels, alt: tile.caption ?? "", onload: (event) => finish(event.target, tile) })];
}

/** Show an image of few pixels, such as a digit, with its pixels as squares; and draw its boxes. */
function finish(image, { boxes, sides }) {
  image.classList.toggle("small", Math.max(image.naturalWidth, image.naturalHeight) * 1.5 < image.parentElement.clientWidth);
  image.parentElement.querySelector(".layer")?.remove();
  // What EXIF turns has its boxes on the page of the sample, where one can say which way.
  if (!boxes || Math.abs((image.naturalWidth * sides[1]) / (image.naturalHeight * sides[0]) - 1) > 0.05) return;
  image.after(layerOf({}, boxes, [], sides, 1));
}

/** The class of a sample, by its name. */
function labelOf({ label }) {
  return label ? h("span", { class: "label" }, label.name ?? String(label.value)) : null;
}

/** Why a tile is shown: how near its nearest neighbour is, or how far its last one. */
function noteOf({ singled }, state) {
  if (!singled) return null;
  const [, value, other] = singled;
  const text = String(Number(value.toFixed(5))); // near to 1, the last digits tell
  return h("span", { class: "singled", title: state.near ? `${text} like sample ${number(other)}` : `${text} from its neighbours, nearest sample ${number(other)}` }, text);
}

// Videos in the grid: a still picture that plays while one points at it or presses its button.

const PATIENCE = 180; // milliseconds that one points at a tile before it plays
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Play a sound or video, or pause it. */
export const playOrPause = (player) => (player.paused ? player.play().catch(() => {}) : player.pause()); // the event of the error says it

/** Let the tile in a list item play its video, without its sound. */
function playsFilm(item, tile) {
  let timer = null;
  const press = button("▶", () => playOrPause(player), { class: "badge", "aria-label": `Play ${nameOf(tile)}`, "aria-pressed": "false" });
  const player = h("video", {
    class: "film", loop: true, playsinline: true, preload: "none", src: raw(tile, tile.film), hidden: true, "aria-hidden": "true", tabindex: -1,
    onplay: tell, onpause: tell, onerror: fail, onloadedmetadata: () => { if (!player.videoWidth) fail(); },
  });
  player.muted = true; // the attribute alone counts for the parser only
  item.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse" && !calm.matches && player.paused) timer = setTimeout(() => playOrPause(player), PATIENCE);
  });
  item.addEventListener("pointerleave", (event) => {
    clearTimeout(timer);
    if (event.pointerType === "mouse") player.pause();
  });
  item.querySelector(".picture").append(player);
  item.append(press);

  function tell() {
    player.hidden = player.paused;
    press.setAttribute("aria-pressed", String(!player.paused));
    press.textContent = player.paused ? "▶" : "❚❚";
  }
  function fail() {
    player.remove();
    Object.assign(press, { disabled: true, textContent: "✕", title: "This browser cannot play it." });
    announce(press.title);
  }
}

// A page of samples as a table: what headers, classes and JSON state, a column each.

/** Make the table of a page. */
export function tableOf(tiles, columns, state) {
  const heads = [h("th", { scope: "col" }, h("span", { class: "hidden" }, "picture")), "sample", "key", ...columns.map((name) => sortable(name, state))];
  return table("Samples", heads, tiles.map((tile) => tableRow(tile, columns, state)), "scroll samples");
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

function tableRow(tile, columns, state) {
  return h("tr", {},
    h("td", { class: "cell-picture" }, Number.isInteger(tile.picture) ? thumbnail(tile, tile.picture, 96) : null, markButton(tile.index)),
    h("td", { class: "figure" }, number(tile.index)),
    h("td", {}, h("a", { class: "key", ...linkTo(tile, state) }, nameOf(tile)), tile.error ? h("span", { class: "problem" }, ` ${tile.error}`) : null),
    columns.map((name, n) => cell(name.includes(".") ? tile.values?.[n] : classOf(tile, tile.values?.[n]))));
}

/** The class with its name, where it is that of the tile. */
function classOf(tile, value) {
  const label = tile.label;
  return label && String(label.value) === String(value) && label.name ? `${value} ${label.name}` : value;
}

function cell(value) {
  if (value === null || value === undefined) return h("td", { class: "muted" }, "–");
  return h("td", { class: typeof value === "number" ? "figure" : "word" }, shown(value));
}

const shown = (value) => (typeof value === "number" ? number(value) : String(value));

// A page of samples as a list: pictures, sounds, conversations and texts as one reads them.

const SEEN = new Set(["image", "video", "array"]); // kinds whose picture is more than a waveform

/** Make the list of a page. */
export function readingOf(tiles, columns, state) {
  const pictures = tiles.some(hasPicture);
  return h("ul", { class: pictures ? "reading pictured" : "reading", "aria-label": "Samples" },
    tiles.map((tile) => readingRow(tile, columns, state, pictures)));
}

const hasPicture = (tile) => Number.isInteger(tile.picture) && SEEN.has(tile.kind);

function readingRow(tile, columns, state, pictures) {
  const to = linkTo(tile, state);
  const picture = pictures && hasPicture(tile)
    ? h("a", { class: "row-picture", href: to.href, tabindex: -1, "aria-hidden": "true" }, thumbnail(tile, tile.picture, devicePixelRatio > 1.2 ? 960 : 480)) : null;
  return h("li", { class: "row" },
    pictures ? h("div", { class: "row-side" }, picture) : null,
    h("div", { class: "row-main" },
      h("header", {},
        h("a", { class: "key", ...to }, h("bdi", {}, nameOf(tile))),
        labelOf(tile), h("span", { class: "index" }, number(tile.index)), markButton(tile.index)),
      tile.error ? h("p", { class: "problem" }, tile.error) : null,
      tile.audio ? h("div", {}, audio(tile, tile.audio, "none"), typeof tile.audio.duration === "number" ? h("p", { class: "muted" }, seconds(tile.audio.duration)) : null) : null,
      tile.conversation ? conversation(tile, tile.conversation, { clamp: true }) : words(tile, to.href),
      valuesOf(tile, columns)));
}

/** The text of a sample, or what its tile says in place of one. */
function words(tile, href) {
  if (tile.text) {
    if (!tile.text.text) return h("p", { class: "muted" }, "Empty.");
    const rest = tile.text.more ? h("p", { class: "muted" }, "This is the beginning. ", h("a", { href }, "Open the sample")) : null;
    return clamped(h("p", { class: "prose" }, tile.text.text), { rest });
  }
  const isAlone = !tile.audio && !hasPicture(tile) && !tile.values?.some((value) => value !== null);
  return isAlone && !tile.error ? h("p", { class: "muted" }, tile.caption ?? tile.fields.join("  ")) : null;
}

function valuesOf(tile, columns) {
  const rows = (tile.values ?? []).map((value, place) => [columns[place], value]).filter(([, value]) => value !== null);
  if (!rows.length) return null;
  return h("dl", { class: "row-values" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(value)))));
}
