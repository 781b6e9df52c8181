// Plots: bars in SVG, drawn by hand, with their figures as text beside them for who cannot see them.

import { h, svg } from "./dom.js";
import { number } from "./format.js";

const WIDTH = 320;
const HEIGHT = 72;

/** Bars of equal width. `marks` are pairs of a place in [0, 1] and its text. */
export function bars(counts, { label, marks = [], titles = [] }) {
  const top = Math.max(...counts, 1);
  const step = WIDTH / counts.length;
  const drawn = counts.map((count, place) => {
    // What is there at all is seen, however few.
    const height = count ? Math.max(1.5, (count / top) * HEIGHT) : 0;
    return svg("rect", {
      x: place * step + 0.5, y: HEIGHT - height, width: Math.max(0.5, step - 1), height, rx: Math.min(1.5, step / 4),
    }, svg("title", {}, titles[place] ?? number(count)));
  });
  const texts = marks.map(([place, text]) => svg("text", {
    x: place * WIDTH, y: HEIGHT + 14,
    "text-anchor": place < 0.1 ? "start" : place > 0.9 ? "end" : "middle",
  }, text));
  return svg("svg", {
    class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: "img", "aria-label": label,
  }, svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }), ...drawn, ...texts);
}

/** The histogram of an array's values. */
export function valueHistogram({ low, high, counts }, name) {
  return bars(counts, {
    label: `Values of ${name} from ${number(low)} to ${number(high)}`,
    marks: [[0, number(low)], [1, number(high)]],
  });
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
  const length = Math.max(...shape);
  return svg("svg", {
    class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: "img",
    "aria-label": `Values of ${name} in their order, from ${number(2 * least)} to ${number(2 * most)}`,
  }, svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }), ...drawn,
  svg("text", { x: 0, y: HEIGHT + 14, "text-anchor": "start" }, "0"),
  svg("text", { x: WIDTH, y: HEIGHT + 14, "text-anchor": "end" }, number(length - 1)));
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
