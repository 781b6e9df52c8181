// The panel of facets: how often values occur, in all samples and in those shown. What is picked is a
// parameter of the URL for each column: values between commas, ranges as 400..600.

import { tray } from "./marks.js";
import { toolbar } from "./toolbar.js";
import { built, button, counted, h, isOn, leftOut, number, svg } from "./ui.js";
import { filterable, follow, go, gridPart, link, orderPart, picksOf, selection } from "./urls.js";

const FEW = 8; // values that are listed at first
const NULL = "null"; // the pick of samples without a value
const opened = new Set(); // columns of which all values are listed
const panel = h("aside", { class: "facets", "aria-label": "Facets" });
let last = null; // what was drawn: the state, and the counts
let waiting = null; // timer for it

// What the grid, the map and the counts are shown in, which stays, with the focus in it.
const side = h("div", { class: "side" });
/** What is shown beside the facets. */
export const found = h("div", { class: "found" });
/** What stays below all: the marks, and the pages of the grid. */
export const foot = h("div", { class: "pager-place" }, tray);
const [head, above] = [h("div", {}), h("div", {})];
const explorer = h("div", {}, head, above, h("div", { class: "explorer" }, side, found), foot);

/** Show the toolbar, the facets if they are wanted, what was found, and the marks; `told` stands above them. */
export function explore(view, state, dataset, signal, ...told) {
  const wanted = isOn("facets") ? facetPanel(state, dataset, signal) : null;
  if (side.firstElementChild !== wanted) side.replaceChildren(...[wanted].filter(Boolean));
  const bar = toolbar(state, dataset);
  // What stays is not moved, as it would lose the focus that is in it.
  if (head.firstChild !== bar) head.replaceChildren(bar);
  above.replaceChildren(...told);
  if (!explorer.isConnected) view.replaceChildren(explorer);
}

/** The panel for a state; it goes on counting until the signal ends it. */
function facetPanel(state, dataset, signal) {
  if (dataset.install) {
    panel.replaceChildren(h("p", { class: "muted" }, "Counts need DuckDB: ", h("code", {}, dataset.install)));
    return panel;
  }
  if (last) draw(state, last[1]); // with the old counts, so that a click adds to what is chosen now
  else panel.replaceChildren(h("p", { class: "muted" }, "Counting…"));
  follow("facets", { ...orderPart(state), sort: null }, signal, (counts) => {
    if (counts.facets) draw(state, counts);
    else if (!last) panel.replaceChildren(built(counts));
  }).catch(() => { if (!last) panel.replaceChildren(h("p", { class: "muted" }, "Nothing is counted for this condition.")); });
  return panel;
}

function draw(state, counts) {
  last = [state, counts];
  clearTimeout(waiting);
  if (panel.querySelector(".dragged, :active")) { // a button that is replaced while it is pressed loses the click
    waiting = setTimeout(() => draw(...last), 50);
    return;
  }
  const focus = panel.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const left = leftOut(counts);
  panel.replaceChildren(...[
    counts.finished ? null : built(counts),
    left ? h("p", { class: "muted" }, left) : null,
    chips(state, counts.fields),
    ...counts.facets.map((facet) => (facet.kind === "shards" ? shards(state, facet, counts.num_shards) : facetOf(state, facet))),
  ].filter(Boolean));
  if (focus) panel.querySelector(`[data-name="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

/** What is picked of a column. */
export function picked(state, parameter) {
  return state[parameter]?.split(",") ?? [];
}

/** A button that picks a value, or takes the pick back. */
function toggle(state, parameter, value, properties, ...children) {
  const now = picked(state, parameter);
  const next = now.includes(value) ? now.filter((each) => each !== value) : [...now, value];
  const onclick = () => go({ ...filterable(state), [parameter]: next.join(",") || null });
  return button(children, onclick, { "aria-pressed": String(now.includes(value)), "data-name": `${parameter} ${value}`, ...properties });
}

/** Fields that samples lack, and those that cannot be read. */
function chips(state, fields) {
  const all = [["missing", "without"], ["broken", "unreadable"]].flatMap(([kind, word]) => fields
    .filter((field) => field[kind] || picked(state, kind).includes(field.name))
    .map((field) => toggle(state, kind, field.name, { class: "chip" }, `${word} ${field.name} `, h("span", { class: "count" }, number(field[kind])))));
  return all.length ? h("section", { class: "chips" }, all) : null;
}

function facetOf(state, facet) {
  const { name, parameter, all } = facet;
  return h("section", {},
    h("header", {}, h("h2", {}, name),
      all.missing ? toggle(state, parameter, NULL, { class: "plain" }, `${number(facet.now.missing)} without`) : null),
    facet.kind === "values" ? values(state, facet) : numbers(state, facet));
}

function values(state, { name, parameter, values: entries, all, now, num_values: total }) {
  const top = Math.max(...all.counts, 1);
  const shown = opened.has(name) ? entries : entries.slice(0, FEW);
  return h("ul", {}, shown.map(([value, label], place) => h("li", {}, toggle(state, parameter, value, {},
    meter(all.counts[place] / top, now.counts[place] / top), h("span", { class: "name" }, label), h("span", { class: "count" }, number(now.counts[place]))))),
  shown.length < entries.length ? h("li", {}, button(`${number(total - shown.length)} more`, () => { opened.add(name); draw(...last); }, { class: "plain", "data-name": `${parameter} more` })) : null);
}

function meter(all, now) {
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "all", width: 100 * all, height: 10 }), svg("rect", { class: "now", width: 100 * now, height: 10 }));
}

/** The histogram of a column, of which a range is chosen. */
function numbers(state, { name, parameter, edges, least, most, all, now }) {
  const bins = all.counts.length;
  const [count] = all.counts;
  if (least === most) return h("p", { class: "muted" }, h("strong", {}, number(least)), count === 1 ? " in the one sample that has it" : ` in all ${counted(count, "sample")} that have it`);
  const range = picked(state, parameter).find((each) => each.includes(".."));
  const [from, to] = range?.split("..") ?? [];
  const place = (edge, none) => (edge ? Math.max(edges.indexOf(edge), 0) : none);
  // The outermost bins hold what lies far beyond them, so a range up to them has no bound there.
  const choose = (bounds) => go({ ...filterable(state), [parameter]: `${bounds[0] ? edges[bounds[0]] : ""}..${bounds[1] < bins ? edges[bounds[1]] : ""}` });
  return [histogram({
    all: all.counts, now: now.counts, chosen: range ? [place(from, 0), Math.max(place(to, bins), place(from, 0) + 1)] : null,
    label: `Range of ${name}`, name: `${parameter} range`, onchoose: choose,
    titles: all.counts.map((_, bin) => `${number(Number(edges[bin]))} to ${number(Number(edges[bin + 1]))}`),
  }), ends(least, most)];
}

function shards(state, { step, all: { counts }, now: { counts: now } }, total) {
  if (counts.length === 1) return null;
  const [from, to = from] = (state.shard ?? "").split("-").map(Number);
  const range = state.shard ? [Math.floor(from / step), Math.floor(to / step) + 1] : null;
  const choose = (bars) => go({ ...filterable(state), shard: `${bars[0] * step}-${Math.min(bars[1] * step, total) - 1}` });
  return h("section", {}, h("header", {}, h("h2", {}, "shard")),
    histogram({ all: counts, now, chosen: range, label: "Range of shards", name: "shard range", onchoose: choose,
      titles: counts.map((_, bar) => `shard ${number(bar * step)}${step > 1 ? ` to ${number(bar * step + step - 1)}` : ""}`) }),
    ends(0, total - 1));
}

function ends(least, most) {
  return h("p", { class: "ends" }, h("span", {}, number(least)), h("span", {}, number(most)));
}

// A histogram of which a range is chosen by a drag, a click or the keyboard.

const RANGE = [240, 46];

/** A bar; what is there at all is seen, however few. */
function bar(counts, place, top, kind) {
  const step = RANGE[0] / counts.length;
  const height = counts[place] ? Math.max(1.5, (counts[place] / top) * RANGE[1]) : 0;
  return svg("rect", { class: kind, x: place * step + 0.5, y: RANGE[1] - height, width: step - 1, height });
}

/**
 * Draw counts of all samples in grey and of those shown in colour.
 * `chosen` is [first, stop) in bins or null; `onchoose` gets such a pair.
 */
function histogram({ all, now, label, name, titles, chosen, onchoose }) {
  const top = Math.max(...all, ...now, 1);
  const step = RANGE[0] / all.length;
  const band = svg("rect", { class: "band", y: 0, height: RANGE[1], x: 0, width: 0 });
  const said = (bin) => `${titles[bin]}: ${number(now[bin] ?? 0)} of ${number(all[bin])}`;
  const picture = svg("svg", { viewBox: `0 0 ${RANGE.join(" ")}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    band, all.map((_, bin) => svg("g", {}, bar(all, bin, top, "all"), bar(now, bin, top, "now"),
      svg("rect", { class: "hit", x: bin * step, y: 0, width: step, height: RANGE[1] }, svg("title", {}, said(bin))))));
  // One place that takes the keyboard: arrows move a range of one bin, with Shift they widen it.
  const place = h("div", { class: "histogram", tabindex: 0, role: "slider", "aria-label": label, "data-name": name, "aria-valuemin": 0, "aria-valuemax": all.length - 1 }, picture);
  let start = null;
  let range = chosen;
  paint();

  function paint() {
    band.setAttribute("x", range ? range[0] * step : 0);
    band.setAttribute("width", range ? (range[1] - range[0]) * step : 0);
    place.setAttribute("aria-valuenow", range ? range[0] : 0);
    place.setAttribute("aria-valuetext", range ? `${said(range[0])} to ${said(range[1] - 1)}` : "no range chosen");
  }

  const binAt = (event) => {
    const box = picture.getBoundingClientRect();
    const bin = Math.floor(((event.clientX - box.left) / box.width) * all.length);
    return Math.min(Math.max(bin, 0), all.length - 1);
  };
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = binAt(event);
    place.setPointerCapture(event.pointerId);
    place.classList.add("dragged");
    drag(event);
  });
  place.addEventListener("pointermove", drag);
  place.addEventListener("pointerup", () => {
    if (start === null) return;
    start = null;
    place.classList.remove("dragged");
    onchoose(range);
  });
  place.addEventListener("pointercancel", () => { start = null; range = chosen; place.classList.remove("dragged"); paint(); });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Enter" && range) onchoose(range);
    else if (step) range = moved(step, event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
    paint();
  });

  function moved(step, widen) {
    if (!range) return [0, 1];
    const last = Math.min(Math.max(range[1] - 1 + step, widen ? range[0] : 0), all.length - 1);
    return widen ? [range[0], last + 1] : [last, last + 1];
  }

  function drag(event) {
    if (start === null) return;
    const bin = binAt(event);
    range = [Math.min(start, bin), Math.max(start, bin) + 1];
    paint();
  }

  return place;
}

// What is chosen, how far the catalogue is, what was found, and how to take it along.

const WORDS = { missing: "without ", broken: "unreadable ", shard: "shard ", q: "key contains ", marks: "marked", inside: "inside an outline of the map", near: "near-duplicates", far: "outliers" };

/** All that chooses samples beside the condition, each with a link that takes it back. */
export function chosenBy(state) {
  return [...Object.keys(WORDS), ...picksOf(state)].filter((name) => state[name]).map((name) => {
    const value = { q: state.q, marks: "", inside: "", near: "", far: "" }[name] ?? picked(state, name).map(unescaped).join(", ");
    return h("a", { class: "chip", href: link({ ...gridPart(state), [name]: null }), "aria-label": `Clear the choice of ${name}` }, `${WORDS[name] ?? `${name}: `}${value} ✕`);
  });
}

function unescaped(text) {
  return text === "%" ? "“”" : text.replaceAll(/%(25|2C|2E|6E)/gi, (each) => decodeURIComponent(each));
}

/** What is chosen and found, how far that is, and what can be done with it. */
export function filterProgress({ filtering, copies, total }, state) {
  const chosen = chosenBy(state);
  if (!filtering && !chosen.length && !copies) return [];
  const told = filtering?.finished ? [`${counted(filtering.found, "sample")} found`, leftOut(filtering), filtering.full ? "more than are kept; narrow the condition" : ""] : [];
  const saved = filtering ? filtering.finished && filtering.found && !filtering.full : state.inside;
  return [h("div", { class: "progress" },
    filtering && !filtering.finished ? built(filtering) : h("span", {}, told.filter(Boolean).join(" · ")),
    chosen, saved ? saving(state) : null, copies && total ? copying(copies) : null)];
}

/** Texts to take along, each after its name, such as the code that gives what is shown. */
export function copying(copies) {
  return h("details", { class: "copies" }, h("summary", {}, "Copy as"),
    h("dl", {}, copies.map(([name, text]) => [h("dt", {}, name), h("dd", {}, h("code", {}, text), button("Copy", async (event) => {
      const pressed = event.currentTarget;
      // Without encryption, a browser has no clipboard for a page from another machine.
      await navigator.clipboard?.writeText(text);
      if (!navigator.clipboard) getSelection().selectAllChildren(pressed.previousSibling);
      pressed.textContent = navigator.clipboard ? "Copied" : "Selected";
    }, { "aria-label": `Copy as ${name}` }))])));
}

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
export function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}
