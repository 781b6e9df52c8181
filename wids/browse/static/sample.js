// One sample: all its fields, where it lies, and the way to its neighbours.

import { ask } from "./api.js";
import { announce, button, h } from "./dom.js";
import { card } from "./fields.js";
import { bytes, counted, number } from "./format.js";
import { markButton } from "./marks.js";
import { countOf } from "./looks.js";
import { gridPart, link, orderPart } from "./state.js";
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
  const main = sample.fields.find((field) => field.number === sample.picture && field.kind === "image" && !field.error);
  const article = h("article", { class: main ? "sample lit" : "sample" },
    head(sample, state, here, total, byPosition), tellWhole(sample.fetched_whole),
    main ? card(sample, main, signal, { main: true }) : null);
  addCards(article, { ...sample, fields: sample.fields.filter((field) => field !== main) }, signal, sample);
  view.replaceChildren(article);
  shown(sample.key || `Sample ${number(sample.index)}`);
  announce(`Sample ${sample.index}, key ${sample.key}`);
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
    cards.querySelector(".cards summary")?.focus();
  });
  cards.append(more);
}

/** A position of a filter that still runs may not be there yet. */
async function askUntilFound(query, signal) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await ask("sample", query, signal);
    } catch (error) {
      if (!query.where || tries > 100 || !error.message.includes("found so far")) throw error;
      await new Promise((resolve) => setTimeout(resolve, 600));
    }
  }
}

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
    copies(sample));
}

/** Buttons that copy how the sample is called: on the page, in a program, on a disk. */
function copies(sample) {
  if (!navigator.clipboard) return null;
  const texts = [["key", sample.key], [`dataset[${sample.index}]`, `dataset[${sample.index}]`], ["link", location.href], ["shard", sample.url]];
  return h("p", { class: "copies" }, h("span", { class: "muted" }, "Copy"), texts.map(([name, text]) => {
    const done = button(name, async () => {
      await navigator.clipboard.writeText(text);
      announce(`Copied ${text}`);
      done.classList.add("done");
    }, { class: "plain", "aria-label": `Copy ${name}`, title: text });
    return done;
  }));
}

/** The page of the grid to go back to: the one that one came from if the sample is on it. */
function pageOf(state, here) {
  const count = countOf(state);
  const at = Number(state.at ?? 0);
  if (here >= at && here < at + count) return state.at ?? null;
  return Math.floor(here / count) * count || null;
}
