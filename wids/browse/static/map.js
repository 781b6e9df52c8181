// Fields of vectors: their map, a point for each sample, and samples that are alike or alone.

import { chosenBy, explore, found, saving } from "./facets.js";
import { isMarked, mark, toggle } from "./marks.js";
import { thumbnail } from "./picture.js";
import { listenOn, makePlane, rareLast } from "./plane.js";
import { learn, toolbar } from "./toolbar.js";
import { announce, built, button, counted, h, leftOut, number, swatch } from "./ui.js";
import { ask, current, filterable, follow, go, gridPart, link, orderPart } from "./urls.js";

const MODES = [["move", "Move"], ["lasso", "Outline"]]; // Shift and a drag draw a box
const MOST_MARKED = 2000; // more do not fit a link
let mode = "move";

/** Show the map of the field that the state names, or of the first one. */
export async function showMap({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "map-place" });
  found.replaceChildren(h("div", { class: "progress" }, chosenBy(state)), place);
  explore(view, state, dataset, signal);
  shown("Map");
  const read = (colour) => follow("map", { ...orderPart(state), sort: null, field: state.field, colour: colour === "none" ? null : colour }, signal,
    (answer) => { if (!answer.finished) place.replaceChildren(built(answer)); });
  let points = await read(state.colour);
  const usual = points.columns.find((name) => !/[.(]/.test(name)) ?? points.columns.find((name) => name.startsWith("json."));
  const colour = state.colour ?? usual;
  if (colour !== state.colour) points = await read(colour);
  learn(points.looks);
  toolbar(state, dataset);
  drawMap(place, { ...points, colour }, state, dataset, signal);
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
  const hover = cards(card, indexes, signal);
  listenOn(canvas, plane, () => mode, {
    hover, open: (n) => go({ ...gridPart(state), i: indexes[n] }),
    mark: (n) => { toggle(indexes[n]); announce(`Sample ${indexes[n]} ${isMarked(indexes[n]) ? "marked" : "no longer marked"}`); },
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
    found.width > 2 ? singledLinks(state, found.field) : null,
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

// Colours of points: distinct ones for words, a scale for numbers; and their legend.

// Far apart in hue and lightness, and seen on light and dark ground.
const WORDS = ["#3b7dd8", "#e0762f", "#3a9a4b", "#c8403f", "#8d63c9", "#a0724f", "#d062a8", "#5f9ea0", "#b5a125", "#5b6fa8", "#8fae3d", "#b36b85"];
const OTHER = "#8b8f96";
// From dark blue over green to yellow, even to the eye.
const SCALE = [[68, 40, 130], [52, 96, 141], [33, 145, 140], [94, 201, 98], [226, 213, 60]];

export const wordColour = (code) => WORDS[code] ?? OTHER;

/** The colour of a number between the ends of its column; null has that of the others. */
function numberColour(value, [least, most]) {
  if (value === null) return OTHER;
  const place = most > least ? Math.min(Math.max((value - least) / (most - least), 0), 1) * (SCALE.length - 1) : 0;
  const low = Math.min(Math.floor(place), SCALE.length - 2);
  return `rgb(${SCALE[low].map((from, n) => Math.round(from + (SCALE[low + 1][n] - from) * (place - low))).join(" ")})`;
}

/** The colour of each point of a map, as the server has told its values; one colour without any. */
function pointColours(colours, count) {
  if (!colours) return new Array(count).fill(WORDS[0]);
  return colours.values.map((value) => (colours.kind === "words" ? wordColour(value) : numberColour(value, colours.ends)));
}

/** The names of the colours; a press on one lights up its points. */
function legendOf(colours, lit, redraw) {
  if (!colours) return null;
  if (colours.kind === "numbers") {
    const scale = h("div", { class: "scale", role: "img", "aria-label": `Colours from ${number(colours.ends[0])} to ${number(colours.ends[1])}` });
    scale.style.background = `linear-gradient(to right, ${SCALE.map((each) => `rgb(${each.join(" ")})`).join(", ")})`;
    return h("div", { class: "map-legend" }, h("span", {}, number(colours.ends[0])), scale, h("span", {}, number(colours.ends[1])));
  }
  const entries = [...colours.legend.map(([name, count], code) => [code, name, count]), ...(colours.others ? [[-1, "others", colours.others]] : [])];
  return h("div", { class: "map-legend", role: "group", "aria-label": "Light up" }, entries.map(([code, name, count]) => (
    button([swatch(wordColour(code)), h("span", {}, name), h("span", { class: "muted" }, number(count))], (event) => {
      lit[lit.has(code) ? "delete" : "add"](code);
      event.currentTarget.setAttribute("aria-pressed", String(lit.has(code)));
      redraw();
    }, { "aria-pressed": "false" }))));
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
    card.replaceChildren(Number.isInteger(tile.picture) ? thumbnail(tile, tile.picture, 256) : h("p", { class: "muted" }, tile.error ?? tile.caption ?? ""),
      h("p", {}, name === undefined ? null : h("strong", {}, `${name} `), h("span", { class: "key" }, h("bdi", {}, tile.key ?? `sample ${index}`))));
    const room = card.parentElement.clientWidth;
    card.style.left = `${Math.min(Math.max(left + 16, 4), Math.max(room - 212, 4))}px`;
    card.style.top = `${top + 16}px`;
    card.hidden = false;
    if (say) announce([name, tile.key].filter((each) => each !== undefined).join(" "));
  };
}

// Near-duplicates and outliers: what was compared, how alike is alike enough, and the marks of copies.

const USUAL = { near: "1", far: "100" };

/** "near" or "far", the field, and the least likeness or how many; null where neither is asked for. */
function askedBy(state) {
  const kind = ["near", "far"].find((each) => state[each]);
  if (!kind) return null;
  const [, field, bound] = state[kind].match(/^(.*),([^,]*)$/) ?? [null, state[kind], USUAL[kind]];
  return { kind, field, bound };
}

// It stays in the document, with the focus that it may have.
const box = h("input", {
  type: "number", onchange: () => {
    const { kind, field } = askedBy(current());
    go({ ...filterable(current()), [kind]: `${field},${box.value}` }, { replace: true });
  },
});

/** Links from the map to what is alike, and to what lies alone. */
function singledLinks(state, field) {
  const to = (kind) => link({ ...filterable(state), look: null, near: null, far: null, [kind]: `${field},${USUAL[kind]}` });
  return h("div", { class: "singled-links" }, h("a", { class: "button", href: to("near") }, "Near-duplicates"), h("a", { class: "button", href: to("far") }, "Outliers"));
}

/** What is said and chosen above a page of near-duplicates or outliers. */
export function singledOut(page, state, dataset) {
  const asked = askedBy(state);
  if (!asked) return [];
  const { kind, field } = asked;
  const { about, copies } = page.comparing ?? {};
  const other = kind === "near" ? "far" : "near";
  const now = { ...filterable(state), near: null, far: null };
  Object.assign(box, kind === "near" ? { min: -1, max: 1, step: 0.01 } : { min: 1, max: 10000, step: 1 });
  if (document.activeElement !== box) box.value = asked.bound;
  return [h("div", { class: "progress singled-out" },
    h("h2", { class: "searched" }, kind === "near" ? "Near-duplicates by " : "Outliers by ", h("code", {}, field)),
    h("label", {}, kind === "far" ? "The farthest" : "Cosine at least", box),
    copies?.length ? button(`Mark all but the first of each group: ${number(copies.length)}`, () => mark(copies, true)) : null,
    about?.num_found && !page.filtering ? saving(state) : null,
    h("a", { href: link({ ...now, look: "map", [kind]: state[kind] }) }, "On the map"),
    h("a", { href: link({ ...now, [other]: `${field},${USUAL[other]}` }) }, kind === "near" ? "Outliers" : "Near-duplicates"),
    about ? h("p", { class: "singled-facts" }, comparedFacts(about, dataset)) : null)];
}

/** 4 samples; 4 of 13 samples, where a filter, a shard or a bound leaves some. */
function of(shown, all, noun) {
  return shown === all ? counted(all, noun) : `${number(shown)} of ${counted(all, noun)}`;
}

function comparedFacts({ kind, num_groups: groups, num_found: found, num_shown: shown, groups_shown: groupsShown, compared, num_wanted: wanted, neighbours, left_out: left }, dataset) {
  const measure = kind === "near"
    ? `${of(shown, found, "sample")} in ${of(groupsShown, groups, "group")}`
    : `${of(shown, found, "sample")}, by the distance to the ${neighbours > 1 ? `${neighbours}th nearest` : "nearest"} other, of vectors of length 1`;
  const part = wanted < dataset.num_samples ? `, at even distances, of ${number(dataset.num_samples)}; the others are not searched` : "";
  return [measure, `${counted(compared, "sample")} compared${part}`, ...Object.entries(left).map(([why, count]) => `${counted(count, "sample")} ${why} left out`)].join(" · ");
}
