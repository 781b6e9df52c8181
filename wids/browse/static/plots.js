// Plots: bars in SVG, drawn by hand, with their figures as text beside them for who cannot see them.

import { button, h, number, svg } from "./ui.js";

const WIDTH = 320;
const HEIGHT = 72;

/** A drawing over a line, with texts below its ends. */
function plot(label, [least, most], drawn) {
  return svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }), drawn,
    svg("text", { x: 0, y: HEIGHT + 14, "text-anchor": "start" }, number(least)),
    svg("text", { x: WIDTH, y: HEIGHT + 14, "text-anchor": "end" }, number(most)));
}

/** A bar of a histogram; what is there at all is seen, however few. */
function bar(counts, place, top, [width, most], kind = "bar", ...children) {
  const step = width / counts.length;
  const height = counts[place] ? Math.max(1.5, (counts[place] / top) * most) : 0;
  return svg("rect", { class: kind, x: place * step + 0.5, y: most - height, width: Math.max(0.5, step - 1), height }, children);
}

/** The histogram of an array's values. */
export function valueHistogram({ low, high, counts }, name) {
  const top = Math.max(...counts, 1);
  return plot(`Values of ${name} from ${number(low)} to ${number(high)}`, [low, high],
    counts.map((count, place) => bar(counts, place, top, [WIDTH, HEIGHT], "bar", svg("title", {}, number(count)))));
}

/** The values of an array along its one axis: a band from the least to the greatest of each part. */
export function curve({ low, high }, shape, name) {
  const known = [...low, ...high].filter((value) => value !== null);
  if (!known.length) return null;
  // Halved, as the difference of the extremes may be beyond a float.
  const least = Math.min(...known) / 2;
  const most = Math.max(...known) / 2;
  const step = WIDTH / low.length;
  // What differs by no more than rounding does is a level line in the middle, not a mountain range.
  const level = most - least <= 1e-9 * Math.max(Math.abs(least), Math.abs(most));
  const y = (value) => (level ? HEIGHT / 2 : HEIGHT - ((value / 2 - least) / (most - least)) * (HEIGHT - 2) - 1);
  const drawn = low.flatMap((value, place) => {
    if (value === null) return [];
    // Up to where the next part begins, so that steps do not tear the line apart.
    const next = place + 1 < low.length && low[place + 1] !== null ? place + 1 : place;
    const top = Math.min(y(high[place]), y(low[next]));
    const bottom = Math.max(y(value), y(high[next]));
    return [svg("rect", { x: place * step, y: top, width: step, height: Math.max(1.5, bottom - top) })];
  });
  return plot(`Values of ${name} in their order, from ${number(2 * least)} to ${number(2 * most)}`, [0, Math.max(...shape) - 1], drawn);
}

/** Horizontal bars with their names and counts: rows of [name, count, href]. */
export function rows(entries) {
  const top = Math.max(...entries.map(([, count]) => count), 1);
  return h("ul", { class: "bars" }, entries.map(([name, count, href]) => {
    const meter = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { x: 0, y: 0, width: Math.max(0.5, (100 * count) / top), height: 10 }));
    return h("li", {}, h("a", { href }, h("span", { class: "name" }, name), meter, h("span", { class: "count" }, number(count))));
  }));
}

// A histogram of which a range is chosen by a drag, a click or the keyboard.

const RANGE = [240, 46];

/**
 * Draw counts of all samples in grey and of those shown in colour.
 * `chosen` is [first, stop) in bins or null; `onchoose` gets such a pair, or null to choose none.
 */
export function histogram({ all, now, label, name, titles, chosen, onchoose }) {
  const top = Math.max(...all, ...now, 1);
  const step = RANGE[0] / all.length;
  const band = svg("rect", { class: "band", y: 0, height: RANGE[1], x: 0, width: 0 });
  const said = (bin) => `${titles[bin]}: ${number(now[bin] ?? 0)} of ${number(all[bin])}`;
  const picture = svg("svg", { viewBox: `0 0 ${RANGE.join(" ")}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    band, all.map((_, bin) => svg("g", {}, bar(all, bin, top, RANGE, "all"), bar(now, bin, top, RANGE, "now"),
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
    // A click on the one bin that is chosen takes the choice back.
    const again = chosen && range[0] === chosen[0] && range[1] === chosen[1];
    onchoose(again ? null : range);
  });
  place.addEventListener("pointercancel", () => { start = null; range = chosen; place.classList.remove("dragged"); paint(); });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") onchoose(null);
    else if (event.key === "Enter" && range) onchoose(range);
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
export function pointColours(colours, count) {
  if (!colours) return new Array(count).fill(WORDS[0]);
  return colours.values.map((value) => (colours.kind === "words" ? wordColour(value) : numberColour(value, colours.ends)));
}

/** The names of the colours; a press on one lights up its points. */
export function legendOf(colours, lit, redraw) {
  if (!colours) return null;
  if (colours.kind === "numbers") {
    const scale = h("div", { class: "scale", role: "img", "aria-label": `Colours from ${number(colours.ends[0])} to ${number(colours.ends[1])}` });
    scale.style.background = `linear-gradient(to right, ${SCALE.map((each) => `rgb(${each.join(" ")})`).join(", ")})`;
    return h("div", { class: "map-legend" }, h("span", {}, number(colours.ends[0])), scale, h("span", {}, number(colours.ends[1])));
  }
  const entries = [...colours.legend.map(([name, count], code) => [code, name, count]), ...(colours.others ? [[-1, "others", colours.others]] : [])];
  return h("div", { class: "map-legend", role: "group", "aria-label": "Light up" }, entries.map(([code, name, count]) => (
    button([swatch(code), h("span", {}, name), h("span", { class: "muted" }, number(count))], (event) => {
      lit[lit.has(code) ? "delete" : "add"](code);
      event.currentTarget.setAttribute("aria-pressed", String(lit.has(code)));
      redraw();
    }, { "aria-pressed": "false" }))));
}

/** The colour of a word in a legend. */
export function swatch(code) {
  return svg("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { width: 1, height: 1, fill: wordColour(code) }));
}
