// One sample: all its fields.

import { ask } from "./api.js";
import { announce, button, h } from "./dom.js";
import { card } from "./fields.js";
import { counted, number } from "./format.js";
import { awaitLate } from "./late.js";
import { head, steps } from "./samplehead.js";
import { link, orderPart } from "./state.js";
import { tellWhole } from "./waits.js";

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
  const sample = await askUntilFound(query, signal).catch((error) => {
    if (!("index" in (error.answer ?? {}))) throw error;
    return error.answer;
  });
  const here = byPosition ? sample.position : sample.index;
  const total = byPosition ? sample.total : dataset.num_samples;
  kept = { key: link(orderPart(state)), total: sample.total };
  if (sample.error) {
    showDamaged({ view, state, sample, here, total, byPosition });
    shown(`Sample ${number(sample.index)}`);
    return;
  }
  const draw = () => view.replaceChildren(articleOf(sample, state, here, total, byPosition, signal));
  draw();
  awaitLate(sample, signal, (come) => {
    const main = mainOf(sample);
    if (come.includes(main)) {
      draw();
      return;
    }
    replaceCards(view, sample, come, signal);
    // What lies over the main picture comes from other fields.
    if (main) cardIn(view, main)?.replaceWith(card(sample, main, signal, { main: true }));
  });
  shown(sample.key || `Sample ${number(sample.index)}`);
  announce(`Sample ${sample.index}, key ${sample.key}`);
}

/** The field that is shown as large as it can be, if the sample has one. */
function mainOf(sample) {
  return sample.fields.find((field) => field.number === sample.picture && field.kind === "image" && !field.error && !field.late);
}

function articleOf(sample, state, here, total, byPosition, signal) {
  const main = mainOf(sample);
  const article = h("article", { class: main ? "sample lit" : "sample" },
    head(sample, state, here, total, byPosition), tellWhole(sample.fetched_whole),
    main ? card(sample, main, signal, { main: true }) : null);
  addCards(article, { ...sample, fields: sample.fields.filter((field) => field !== main) }, signal, sample);
  return article;
}

/** A sample that cannot be read is no dead end: its neighbours are where they always are. */
function showDamaged({ view, state, sample, here, total, byPosition }) {
  view.replaceChildren(h("article", { class: "sample" },
    h("header", { class: "sample-head" },
      steps(state, here, total, byPosition),
      h("h2", {}, `Sample ${number(sample.index)}`)),
    h("section", { class: "failure" },
      h("h3", {}, "This sample cannot be read"),
      h("p", { class: "problem", role: "alert" }, sample.error))));
}

/** Show fields, and what brings more of a sample that has very many. */
function addCards(article, sample, signal, whole = sample) {
  const fields = [...sample.fields].sort((a, b) => rank(a) - rank(b));
  const cards = h("div", { class: "cards" }, fields.map((field) => card(sample, field, signal)));
  article.append(cards);
  const left = sample.fields_left_out;
  if (!left) return;
  const next = whole.fields.at(-1).number + 1;
  const more = button(counted(left, "more field"), async () => {
    const rest = await ask("sample", { i: sample.index, from: next }, signal).catch((error) => error);
    if (rest instanceof Error) {
      more.after(h("p", { class: "problem", role: "alert" }, rest.message));
      return;
    }
    more.remove();
    addCards(cards, rest, signal);
    awaitLate(rest, signal, (come) => replaceCards(cards, rest, come, signal));
    cards.querySelector(".cards summary")?.focus();
  });
  cards.append(more);
}

function cardIn(view, field) {
  return view.querySelector(`[data-field="${field.number}"]`);
}

function replaceCards(view, sample, fields, signal) {
  for (const field of fields) cardIn(view, field)?.replaceWith(card(sample, field, signal));
}

/** A position of a filter that still runs may not be there yet. */
async function askUntilFound(query, signal) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await ask("sample", query, signal);
    } catch (error) {
      if (tries > 100 || !error.message.includes("found so far")) throw error;
      await new Promise((resolve) => setTimeout(resolve, 600));
    }
  }
}
