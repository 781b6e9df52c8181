// Colours of points: distinct ones for words, a scale for numbers; and their legend.

import { button, h } from "./dom.js";
import { number } from "./format.js";

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

/** The scale as the stops of a gradient. */
const scaleStops = () => SCALE.map((_, n) => numberColour(n / (SCALE.length - 1), [0, 1]));

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
    scale.style.background = `linear-gradient(to right, ${scaleStops().join(", ")})`;
    return h("div", { class: "map-legend" }, h("span", {}, number(colours.ends[0])), scale, h("span", {}, number(colours.ends[1])));
  }
  const entries = [...colours.legend.map(([name, count], code) => [code, name, count]), ...(colours.others ? [[-1, "others", colours.others]] : [])];
  return h("div", { class: "map-legend", role: "group", "aria-label": "Light up" }, entries.map(([code, name, count]) => {
    const dot = h("span", { class: "dot" });
    dot.style.background = wordColour(code);
    return button([dot, h("span", {}, name), h("span", { class: "muted" }, number(count))], (event) => {
      lit[lit.has(code) ? "delete" : "add"](code);
      event.currentTarget.setAttribute("aria-pressed", String(lit.has(code)));
      redraw();
    }, { "aria-pressed": "false" });
  }));
}
