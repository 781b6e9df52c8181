// Two to four samples side by side, field beside field.

import { ask } from "./api.js";
import { announce, h } from "./dom.js";
import { card } from "./fields.js";
import { counted, number } from "./format.js";
import { awaitLate } from "./late.js";
import { markButton } from "./marks.js";
import { gridPart, link } from "./state.js";

const TOLD = new Set(["class", "text", "json"]); // kinds whose summaries tell whether fields are equal
const ORDER = ["image", "video", "audio", "array", "class", "text", "json", "bytes"];

/** Show the samples that the state names by their numbers. */
export async function showCompare({ view, state, signal, shown }) {
  const indexes = state.compare.split(",").map(Number);
  const samples = await Promise.all(indexes.map((index) => ask("sample", { i: index }, signal).catch((error) => {
    if (error.name === "AbortError") throw error;
    return { index, key: null, error: error.message, fields: [] };
  })));
  const draw = () => view.replaceChildren(articleOf(samples, state, signal));
  draw();
  for (const sample of samples) awaitLate(sample, signal, draw);
  shown(`${samples.length} samples side by side`);
  announce(`Samples ${indexes.join(", ")} side by side`);
}

function articleOf(samples, state, signal) {
  const back = link({ ...gridPart(state), at: state.at });
  return h("article", { class: "sample" },
    h("header", { class: "sample-head" },
      h("div", { class: "steps" }, h("a", { class: "button", href: back, "data-key": "Escape" }, "Grid")),
      h("h2", {}, `${counted(samples.length, "sample")} side by side`)),
    h("div", { class: `compared of-${samples.length}` },
      samples.map((sample) => head(sample, state)),
      fieldsOf(samples).map((extension) => rowOf(extension, samples, signal))));
}

function head(sample, state) {
  return h("section", { class: "compared-head" },
    h("h3", {}, h("a", { href: link({ ...gridPart(state), at: state.at, i: sample.index }) }, sample.key || `sample ${number(sample.index)}`)),
    h("span", { class: "muted" }, `sample ${number(sample.index)}`),
    sample.fields_left_out ? h("span", { class: "muted" }, `the first ${counted(sample.fields.length, "field")}, ${number(sample.fields_left_out)} more are not compared`) : null,
    markButton(sample.index, "✓", { class: "compared-mark" }),
    sample.error ? h("p", { class: "problem", role: "alert" }, sample.error) : null);
}

/** All fields that one of the samples has, in the order in which their kinds are looked at. */
function fieldsOf(samples) {
  const kinds = new Map(samples.flatMap((sample) => sample.fields.map((field) => [field.extension, field.kind])));
  return [...kinds.keys()].sort((a, b) => ORDER.indexOf(kinds.get(a)) - ORDER.indexOf(kinds.get(b)));
}

function rowOf(extension, samples, signal) {
  const fields = samples.map((sample) => sample.fields.find((field) => field.extension === extension));
  const there = fields.filter(Boolean);
  const told = there.every((field) => TOLD.has(field.kind) && !field.error && !field.late) && samples.every((sample, place) => fields[place] || !sample.fields_left_out);
  const equal = there.length === samples.length && new Set(there.map((field) => JSON.stringify([field.summary, field.summary.truncated && field.nbytes]))).size === 1;
  const alike = there[0].summary.truncated ? " begins alike" : " is equal"; // what is not shown may differ
  const verdict = told ? h("p", { class: equal ? "verdict muted" : "verdict" }, h("code", {}, extension), equal ? alike : " differs") : null;
  return [verdict, fields.map((field, place) => (field
    ? cardOf(samples[place], field, signal)
    : h("p", { class: "card muted" }, missing(extension, samples[place]))))];
}

/** Of a sample with very many fields, only the first ones are here. */
function missing(extension, { fields, fields_left_out: left }) {
  return left ? `has no ${extension} among its first ${counted(fields.length, "field")}` : `has no ${extension}`;
}

/** A card whose parts have other names than those of the same field beside it. */
function cardOf(sample, field, signal) {
  return card(sample, { ...field, called: `${field.extension} of sample ${sample.index}` }, signal);
}
