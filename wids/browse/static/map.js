// Fields of vectors: their map, a point for each sample, and samples that are alike or alone.

import { explore, found, saving, searched } from "./facets.js";
import { isMarked, mark, toggle } from "./marks.js";
import { thumbnail } from "./media.js";
import { listenOn, makePlane, rareLast } from "./plane.js";
import { legendOf, pointColours } from "./plots.js";
import { learn, toolbar } from "./toolbar.js";
import { announce, built, button, counted, h, leftOut, number } from "./ui.js";
import { ask, filterable, follow, go, gridPart, link, orderPart } from "./urls.js";

const MODES = [["move", "Move"], ["lasso", "Outline"]]; // Shift and a drag draw a box
const MOST_MARKED = 2000; // more do not fit a link
let mode = "move";

/** Show the map of the field that the state names, or of the first one. */
export async function showMap({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "map-place" });
  found.replaceChildren(...searched(state), place);
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
  // The canvas draws the cursor and the outline in the colour of the text.
  const theme = new MutationObserver(plane.redraw);
  theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  signal.addEventListener("abort", () => theme.disconnect());
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
const STEPS = 100; // of the slider, the finer the nearer to 1
const atStep = (step) => (step >= STEPS ? 1 : Number((1 - 0.5 * 10 ** (-step / 25)).toPrecision(4)));
const stepOf = (value) => (value >= 1 ? STEPS : Math.min(Math.max(Math.round(25 * Math.log10(0.5 / (1 - value))), 0), STEPS));

let kept = { key: null, bar: null };

/** Links from the map to what is alike, and to what lies alone. */
function singledLinks(state, field) {
  const to = (kind) => link({ ...filterable(state), look: null, near: null, far: null, [kind]: `${field},${USUAL[kind]}` });
  return h("div", { class: "singled-links" }, h("a", { class: "button", href: to("near") }, "Near-duplicates"), h("a", { class: "button", href: to("far") }, "Outliers"));
}

/** What is said and chosen above a page of near-duplicates or outliers. */
export function singledOut(page, state, dataset) {
  const kind = state.near ? "near" : state.far ? "far" : null;
  if (!kind) return [];
  const [, field, least] = state[kind].match(/^(.*),([^,]*)$/) ?? [null, state[kind], USUAL[kind]];
  const { about, copies } = page.comparing ?? {};
  const other = kind === "near" ? "far" : "near";
  const now = { ...filterable(state), near: null, far: null };
  // What is chosen with stays in the document, with the focus that it may have.
  const key = `${kind} ${field} ${about?.width}`;
  if (kept.key !== key) kept = { key, bar: bound(kind, field, about?.width) };
  kept.bar.show(least, now);
  return [h("div", { class: "progress singled-out" },
    h("h2", { class: "searched" }, kind === "near" ? "Near-duplicates by " : "Outliers by ", h("code", {}, field)),
    kept.bar.element,
    copies?.length ? markCopies(copies, dataset.num_samples) : null,
    about?.num_found && !page.filtering ? saving(state) : null,
    h("a", { href: link({ ...now, look: "map", [kind]: state[kind] }) }, "On the map"),
    h("a", { href: link({ ...now, [other]: `${field},${USUAL[other]}` }) }, kind === "near" ? "Outliers" : "Near-duplicates"),
    h("a", { class: "button", href: link(now), "aria-label": "Show all samples" }, "✕"),
    about ? h("p", { class: "singled-facts" }, comparedFacts(about, dataset)) : null)];
}

/** A button that marks copies; where they are more than a few of all samples, it asks once more. */
function markCopies(copies, total) {
  let asked = 20 * copies.length <= total;
  const element = button("Mark all but the first of each group", () => {
    if (asked) mark(copies, true);
    else element.textContent = `Mark ${number(copies.length)} of ${counted(total, "sample")}?`;
    asked = true;
  });
  return element;
}

/** 4 samples; 4 of 13 samples, where a filter, a shard or a bound leaves some. */
function of(shown, all, noun) {
  return shown === all ? counted(all, noun) : `${number(shown)} of ${counted(all, noun)}`;
}

function comparedFacts({ kind, num_groups: groups, num_found: found, num_shown: shown, groups_shown: groupsShown, compared, num_wanted: wanted, neighbours, width, left_out: left }, dataset) {
  const measure = kind === "near"
    ? `${of(shown, found, "sample")} in ${of(groupsShown, groups, "group")}`
    : `${of(shown, found, "sample")}, by the distance to the ${neighbours > 1 ? `${neighbours}th nearest` : "nearest"} other${width > 2 ? ", of vectors of length 1" : ""}`;
  const part = wanted < dataset.num_samples ? `, at even distances, of ${number(dataset.num_samples)}; the others are not searched` : "";
  return [measure, `${counted(compared, "sample")} compared${part}`, ...Object.entries(left).map(([why, count]) => `${counted(count, "sample")} ${why} left out`)].join(" · ");
}

/** The least likeness of near-duplicates, or how many outliers are shown. */
function bound(kind, field, width) {
  const name = width === 2 ? "Closeness" : "Cosine";
  const value = h("output", {});
  const input = kind === "near" ? h("input", { type: "range", min: 0, max: STEPS, "aria-label": `${name} at least` })
    : h("input", { type: "number", min: 1, max: 10000, "aria-label": "How many" });
  let now = {};
  const chosen = () => (kind === "near" ? atStep(Number(input.value)) : input.value);
  const tell = (text) => { if (kind === "near") input.setAttribute("aria-valuetext", value.textContent = text); };
  input.addEventListener("input", () => tell(chosen()));
  input.addEventListener("change", () => go({ ...now, [kind]: `${field},${chosen()}` }, { replace: true }));
  return {
    element: h("label", {}, kind === "near" ? `${name} at least ` : "The farthest ", input, value),
    show(text, state) { now = state; tell(text); input.value = kind === "near" ? stepOf(Number(text)) : text; },
  };
}

/** Why a tile is shown: how near its nearest neighbour is, or how far its last one. */
export function noteOf({ singled }, state) {
  if (!singled) return null;
  const [, value, other] = singled;
  const text = String(Number(value.toFixed(5))); // near to 1, the last digits tell
  return h("span", { class: "singled", title: state.near ? `${text} like sample ${number(other)}` : `${text} from its neighbours, nearest sample ${number(other)}` }, text);
}
