// An array as a picture, with figures, a curve and a histogram.

import { thumb } from "./api.js";
import { h } from "./dom.js";
import { number } from "./format.js";
import { curve, valueHistogram } from "./plots.js";

/** Show the arrays of a field. */
export function array(sample, field) {
  const { arrays = [], num_arrays: total = arrays.length, picture } = field.summary;
  return [
    picture ? h("div", { class: "frame" }, h("img", { src: thumb(sample, field.number, 1280), alt: `Array ${field.extension} as a picture`, class: "whole array-picture" })) : null,
    arrays.map((one) => describeArray(one, field.extension)),
    total > arrays.length ? h("p", { class: "muted" }, `and ${number(total - arrays.length)} more`) : null,
  ];
}

function describeArray(one, extension) {
  const shape = one.shape.length ? one.shape.map(number).join(" × ") : "one number";
  const figures = ["min", "max", "mean", "std", "nan", "inf"].filter((name) => one[name] !== null && one[name] !== undefined && !(name in ABSENT && one[name] === 0));
  return h("div", { class: "array" },
    h("p", {}, one.name ? h("strong", {}, one.name, " ") : null, h("code", {}, one.dtype), ` ${shape}`),
    figures.length ? h("dl", { class: "figures" }, figures.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, number(one[name]))))) : null,
    one.curve ? curve(one.curve, one.shape, one.name || extension) : null,
    one.histogram && one.histogram.counts.length > 1 ? valueHistogram(one.histogram, one.name || extension) : null,
    one.values?.length ? h("p", { class: "values" }, one.values.map((value) => (typeof value === "number" ? number(value) : String(value))).join(", "), " …") : null,
    one.sampled ? h("p", { class: "muted" }, "figures from a sample of the values") : null);
}

const ABSENT = { nan: true, inf: true };
