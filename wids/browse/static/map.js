// The map of a field of vectors: a point for each sample, coloured by a column.

import { ask, poll } from "./api.js";
import { explorer } from "./facets.js";
import { isMarked, mark } from "./marks.js";
import { thumbnail } from "./media.js";
import { listenOn, makePlane, rareLast } from "./plane.js";
import { legendOf, pointColours } from "./plots.js";
import { singledLinks } from "./singled.js";
import { filterable, go, gridPart, link, orderPart } from "./state.js";
import { learn, toolbar } from "./toolbar.js";
import { announce, button, counted, h, leftOut, number } from "./ui.js";

const MODES = [["move", "Move"], ["lasso", "Outline"]]; // Shift and a drag draw a box
const MOST_MARKED = 2000; // more do not fit a link
let mode = "move";

/** Show the map of the field that the state names, or of the first one. */
export async function showMap({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "map-place" });
  view.replaceChildren(toolbar(state, dataset), ...explorer(state, dataset, signal, place));
  shown("Map");
  let colour = state.colour; // of a column that the server has first to name, if the state does not
  await poll(async () => {
    const found = await ask("map", { ...orderPart(state), sort: null, field: state.field, colour: colour === "none" ? null : colour }, signal);
    learn(found.looks);
    if (!found.finished) {
      place.replaceChildren(h("div", { class: "progress" }, h("progress", { max: found.num_shards, value: found.shards_done, "aria-label": "Reading vectors" }),
        h("span", {}, `${number(found.shards_done)} of ${counted(found.num_shards, "shard")} read`)));
      return false;
    }
    const usual = found.columns.find((name) => !/[.(]/.test(name)) ?? found.columns.find((name) => name.startsWith("json."));
    if (!colour && usual) {
      colour = usual;
      return false;
    }
    toolbar(state, dataset);
    drawMap(place, { ...found, colour }, state, dataset, signal);
    return true;
  }, signal, 300);
}

function drawMap(place, found, state, dataset, signal) {
  const { indexes, colours, chosen: left } = found;
  const canvas = h("canvas", { class: "map", tabindex: 0, role: "application", "aria-label": `Map of ${counted(indexes.length, "sample")} by ${found.field}: arrows go from point to point, Enter opens, m marks, plus and minus zoom, Shift and arrows draw a box` });
  const card = h("div", { class: "map-card", hidden: true });
  const selected = h("div", { class: "map-selected", role: "status" });
  const plane = makePlane(canvas, found.places);
  const lit = new Set();
  const pale = (n) => (left !== null && !left[n]) || (lit.size > 0 && !lit.has(colours.values[n]));
  const words = colours?.kind === "words" ? colours.values : new Array(indexes.length).fill(0);
  const drawn = rareLast(found.places, words);
  const ringed = indexes.filter((_, n) => drawn.crowd[n] >= 0 && !pale(n));
  plane.show({ colours: pointColours(colours, indexes.length), ...drawn, pale });
  new ResizeObserver(plane.redraw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plane.redraw, { signal });
  // The canvas draws the cursor and the outline in the colour of the text.
  const theme = new MutationObserver(plane.redraw);
  theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  signal.addEventListener("abort", () => theme.disconnect());
  const hover = cards(card, indexes, signal);
  listenOn(canvas, plane, () => mode, {
    hover, open: (n) => go({ ...gridPart(state), i: indexes[n] }),
    mark: (n) => { mark([indexes[n]], !isMarked(indexes[n])); announce(`Sample ${indexes[n]} ${isMarked(indexes[n]) ? "marked" : "no longer marked"}`); },
    outline: (corners) => tellSelected(selected, found, state, plane, corners),
  });
  place.replaceChildren(controls(found, state, canvas, plane, ringed), h("p", { class: "muted map-facts" }, factsOf(found, dataset)),
    h("div", { class: "map-frame" }, canvas, card), selected, legendOf(colours, lit, () => plane.show({ pale })));
}

function controls(found, state, canvas, plane, ringed) {
  const select = (label, names, now, name) => h("label", {}, label, h("select", { onchange: (event) => go({ ...gridPart(state), field: state.field, colour: state.colour, [name]: event.target.value }, { replace: true }) },
    names.map((each) => h("option", { value: each, selected: each === now }, each))));
  const modes = MODES.map(([name, text]) => button(text, (event) => {
    mode = name;
    canvas.dataset.mode = name;
    for (const each of event.currentTarget.parentElement.children) each.setAttribute("aria-pressed", String(each === event.currentTarget));
  }, { "aria-pressed": String(name === mode) }));
  canvas.dataset.mode = mode;
  return h("div", { class: "map-controls" },
    h("div", { class: "looks", role: "group", "aria-label": "What a drag does" }, modes),
    h("div", { class: "looks", role: "group", "aria-label": "Zoom" }, button("+", () => plane.zoom(1.4), { "aria-label": "Zoom in" }), button("−", () => plane.zoom(1 / 1.4), { "aria-label": "Zoom out" }), button("Fit", () => plane.reset())),
    select("Colour ", ["none", ...found.columns], found.colour ?? "none", "colour"),
    singledLinks(state, found.field),
    ringed.length && ringed.length <= MOST_MARKED ? button(`Mark the ${number(ringed.length)} ringed`, () => mark(ringed, true), { title: "Points of another class than those around them" }) : null,
    found.looks.vectors.length > 1 ? select("Field ", found.looks.vectors, found.field, "field") : null);
}

/** What is on the map, and what is not, and why. */
function factsOf(found, dataset) {
  const part = found.num_wanted < dataset.num_samples ? ` of ${number(dataset.num_samples)}, at even distances` : "";
  const far = found.num_shortened;
  const shortened = far ? ` after ${counted(far, "vector")} beyond 100 times the median length ${far === 1 ? "is" : "are"} shortened to it` : "";
  const how = found.width === 2 ? "the two numbers of each vector" : `${number(found.width)} numbers each, by their two principal components, which show ${(100 * found.share).toFixed(0)} % of the variance${shortened}`;
  const without = Object.entries(found.left_out).map(([why, count]) => `${counted(count, "sample")} ${why} left out`);
  return [found.indexes.length ? `${counted(found.indexes.length, "sample")}${part}: ${how}` : "No sample has a vector here", ...without, leftOut(found)].filter(Boolean).join(" · ");
}

/** Say how many points an outline holds, and what can be done with them. */
function tellSelected(place, found, state, plane, corners) {
  const held = plane.inside(corners).filter((n) => found.chosen === null || found.chosen[n]);
  plane.show({ outline: corners });
  const inside = [found.field, ...corners.flat().map((value) => Number(value.toPrecision(5)))].join(",");
  const indexes = held.map((n) => found.indexes[n]);
  place.replaceChildren(h("strong", {}, `${counted(held.length, "sample")} inside`),
    ...(held.length ? [
      h("a", { class: "button", href: link({ ...filterable(state), look: null, inside }) }, "Show them"),
      held.length <= MOST_MARKED ? button("Mark them", () => mark(indexes, true)) : "",
    ] : []),
    button("Clear", () => { plane.show({ outline: null }); place.replaceChildren(); }));
}

// The card of a point of the map: picture, class and key of its sample.

/** A card beside the point that one points at. */
function cards(card, indexes, signal) {
  const known = new Map();
  let wanted = -1;
  return async (point, left, top, say = false) => {
    if (point === wanted) return;
    wanted = point;
    card.hidden = true;
    if (point < 0) return;
    const index = indexes[point];
    if (!known.has(index)) {
      await new Promise((resolve) => setTimeout(resolve, 70));
      if (wanted !== point) return;
      known.set(index, (await ask("page", { marks: index, count: 1, look: "grid" }, signal).catch(() => ({ tiles: [] }))).tiles[0]);
    }
    const tile = known.get(index);
    if (wanted !== point || !tile) return;
    const name = tile.label?.name ?? tile.label?.value;
    card.replaceChildren(...[Number.isInteger(tile.picture) ? thumbnail(tile, tile.picture, 256) : h("p", { class: "muted" }, tile.error ?? tile.caption ?? ""),
      h("p", {}, name === undefined ? null : h("strong", {}, `${name} `), h("span", { class: "key" }, h("bdi", {}, tile.key ?? `sample ${index}`)))]);
    const room = card.parentElement.clientWidth;
    card.style.left = `${Math.min(Math.max(left + 16, 4), Math.max(room - 212, 4))}px`;
    card.style.top = `${top + 16}px`;
    card.hidden = false;
    if (say) announce([name, tile.key].filter((each) => each !== undefined).join(" "));
  };
}
