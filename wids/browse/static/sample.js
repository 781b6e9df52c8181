// One sample: all its fields.

import { copying } from "./facets.js";
import { card } from "./fields.js";
import { markButton } from "./marks.js";
import { countOf } from "./toolbar.js";
import { announce, bytes, counted, h, number, tellWhole } from "./ui.js";
import { ask, follow, gridPart, link, orderPart } from "./urls.js";

// The field one came to see stands first.
const ORDER = ["image", "video", "audio", "array", "class", "text", "json", "vector", "bytes"];
const rank = ({ kind, summary }) => ORDER.indexOf(kind === "array" && !summary.picture ? "vector" : kind);

let kept = { key: null, total: 0 }; // samples in the order of the last position shown

/** Let the steps lead on from where one goes, before the sample is there: every press counts. */
function stepAtOnce(view, state, byPosition, dataset) {
  const here = Number((byPosition ? state.p : state.i) ?? NaN);
  const total = byPosition ? (kept.key === link(orderPart(state)) ? kept.total : 0) : dataset.num_samples;
  const old = view.querySelector(".sample .steps");
  if (old && here >= 0 && here < total) old.replaceWith(steps(state, here, total, byPosition));
}

/** Show the sample that the state names by its number or by its position in an order. */
export async function showSample({ view, state, dataset, signal, shown }) {
  const byPosition = "p" in state;
  const query = byPosition ? { ...orderPart(state), p: state.p } : { i: state.i };
  stepAtOnce(view, state, byPosition, dataset);
  const sample = await follow("sample", query, signal);
  const here = byPosition ? sample.position : sample.index;
  const total = byPosition ? sample.total : dataset.num_samples;
  kept = { key: link(orderPart(state)), total: sample.total };
  if (sample.error) {
    view.replaceChildren(damagedArticle(sample, state, here, total, byPosition));
    shown(`Sample ${number(sample.index)}`);
    return;
  }
  let main = null;
  const draw = () => {
    main = mainOf(sample);
    view.replaceChildren(articleOf(sample, main, state, here, total, byPosition));
  };
  draw();
  awaitLate(sample, signal, (come) => {
    if (main !== mainOf(sample)) return draw();
    // What lies over the main picture comes from other fields.
    if (main) cardIn(view, main).replaceWith(card(sample, main, { main: true }));
    for (const field of come) if (field !== main) cardIn(view, field)?.replaceWith(card(sample, field));
    return undefined;
  });
  shown(sample.key || `Sample ${number(sample.index)}`);
  announce(`Sample ${sample.index}, key ${sample.key}`);
}

/** The field that is shown as large as it can be, if the sample has one. */
function mainOf(sample) {
  return sample.fields.find((field) => field.number === sample.picture && field.kind === "image" && !field.error && !field.late);
}

function articleOf(sample, main, state, here, total, byPosition) {
  return h("article", { class: main ? "sample lit" : "sample" },
    head(sample, state, here, total, byPosition), tellWhole(sample.fetched_whole),
    main ? card(sample, main, { main: true }) : null, cardsOf(sample, main));
}

/** A sample that cannot be read is no dead end: its neighbours are where they always are. */
function damagedArticle(sample, state, here, total, byPosition) {
  return h("article", { class: "sample" },
    h("header", { class: "sample-head" }, steps(state, here, total, byPosition), h("h2", {}, `Sample ${number(sample.index)}`)),
    h("section", { class: "failure" }, h("h3", {}, "This sample cannot be read"), h("p", { class: "problem", role: "alert" }, sample.error)));
}

/** The fields but for the main one. */
function cardsOf(sample, main) {
  const fields = sample.fields.filter((field) => field !== main).sort((a, b) => rank(a) - rank(b));
  const left = sample.fields_left_out;
  return h("div", { class: "cards" }, fields.map((field) => card(sample, field)),
    left ? h("p", { class: "note" }, `${counted(left, "more field")}; in Python, `, h("code", {}, `dataset[${sample.index}]`), " has them") : null);
}

function cardIn(view, field) {
  return view.querySelector(`[data-field="${field.number}"]`);
}

// The head of the page of a sample: where it lies, what it is called, and its neighbours.

/** The links to the grid, to the sample before and to the one behind. */
function steps(state, here, total, byPosition) {
  const grid = gridPart(state);
  const to = (place) => link({ ...grid, at: state.at, [byPosition ? "p" : "i"]: place });
  const step = (text, place, key, label) => (place >= 0 && place < total
    ? h("a", { class: "button", href: to(place), "data-key": key, "aria-label": label }, text)
    : h("span", { class: "button off", "aria-hidden": "true" }, text));
  return h("div", { class: "steps" },
    h("a", { class: "button", href: link({ ...grid, at: pageOf(state, here) }), "data-key": "Escape" }, "Grid"),
    step("‹", here - 1, "ArrowLeft", "Previous sample"),
    step("›", here + 1, "ArrowRight", "Next sample"));
}

/** Where a sample lies, what it is called, and its mark. */
function head(sample, state, here, total, byPosition) {
  const place = byPosition
    ? `position ${number(here)} of ${number(total)}, sample ${number(sample.index)}`
    : `sample ${number(sample.index)} of ${number(total)}`;
  return h("header", { class: "sample-head" },
    steps(state, here, total, byPosition),
    h("h2", {}, sample.key || "(no key)"),
    markButton(sample.index, "Mark", { class: "", "data-key": "m", title: "Mark (m)" }),
    h("p", { class: "muted" }, `${place} · ${bytes(sample.nbytes)} · sample ${number(sample.local_index)} of `,
      h("a", { href: link({ ...gridPart(state), at: state.at, view: "dataset", shards: Math.floor(sample.shard / 100) * 100 || null }) }, `shard ${number(sample.shard)}`),
      ", ", h("span", { class: "url" }, sample.url)),
    copying([["key", sample.key], ["Python", `dataset[${sample.index}]`], ["link", location.href], ["shard", sample.url]]));
}

/** The page of the grid to go back to: the one that one came from if the sample is on it. */
function pageOf(state, here) {
  const count = countOf(state);
  const at = Number(state.at ?? 0);
  if (here >= at && here < at + count) return state.at ?? null;
  return Math.floor(here / count) * count || null;
}

// Fields that the server could not describe or draw at once: they are asked for until they are there.

const [FIRST_MILLISECONDS, LONGEST_MILLISECONDS] = [50, 4000]; // between the questions

/** Ask for the fields of a sample that are late; `oncome` gets those that have come, each time some have. */
async function awaitLate(sample, signal, oncome) {
  let pause = FIRST_MILLISECONDS;
  for (;;) {
    const late = sample.fields.filter((field) => field.late || field.picture === null);
    if (!late.length) return;
    await new Promise((resolve) => setTimeout(resolve, pause));
    const answer = await ask("sample", { i: sample.index, from: late[0].number }, signal).catch((error) => ({ error: error.message }));
    const come = late.filter((field) => {
      // It may be that it failed.
      const found = answer.error ? { error: answer.error, late: false, picture: undefined } : answer.fields.find(({ number: n }) => n === field.number);
      return found && (found.late !== field.late || found.picture !== field.picture) && Object.assign(field, found);
    });
    if (come.length) oncome(come);
    pause = come.length ? FIRST_MILLISECONDS : Math.min(2 * pause, LONGEST_MILLISECONDS);
  }
}

// Two to four samples side by side, field beside field.

const TOLD = new Set(["class", "text", "json"]); // kinds whose summaries tell whether fields are equal

/** Show the samples that the state names by their numbers. */
export async function showCompare({ view, state, signal, shown }) {
  const indexes = state.compare.split(",").map(Number);
  const samples = await Promise.all(indexes.map((index) => ask("sample", { i: index }, signal)));
  const draw = () => view.replaceChildren(comparedArticle(samples, state));
  draw();
  for (const sample of samples) awaitLate(sample, signal, draw);
  shown(`${samples.length} samples side by side`);
  announce(`Samples ${indexes.join(", ")} side by side`);
}

function comparedArticle(samples, state) {
  return h("article", { class: "sample" },
    h("header", { class: "sample-head" },
      h("div", { class: "steps" }, h("a", { class: "button", href: link({ ...gridPart(state), at: state.at }), "data-key": "Escape" }, "Grid")),
      h("h2", {}, `${counted(samples.length, "sample")} side by side`)),
    h("div", { class: `compared of-${samples.length}` },
      samples.map((sample) => comparedHead(sample, state)),
      fieldsOf(samples).map((extension) => comparedRow(extension, samples))));
}

function comparedHead(sample, state) {
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

function comparedRow(extension, samples) {
  const fields = samples.map((sample) => sample.fields.find((field) => field.extension === extension));
  const there = fields.filter(Boolean);
  const told = there.every((field) => TOLD.has(field.kind) && !field.error && !field.late) && samples.every((sample, place) => fields[place] || !sample.fields_left_out);
  const equal = there.length === samples.length && new Set(there.map((field) => JSON.stringify([field.summary, field.summary.truncated && field.nbytes]))).size === 1;
  const alike = there[0].summary.truncated ? " begins alike" : " is equal"; // what is not shown may differ
  const verdict = told ? h("p", { class: equal ? "verdict muted" : "verdict" }, h("code", {}, extension), equal ? alike : " differs") : null;
  return [verdict, fields.map((field, place) => (field
    ? card(samples[place], { ...field, called: `${extension} of sample ${samples[place].index}` }) // parts side by side have names of their own
    : h("p", { class: "card muted" }, `has no ${extension}`, samples[place].fields_left_out ? ` among its first ${counted(samples[place].fields.length, "field")}` : "")))];
}
