// The dataset: its fields, classes and shards.

import { answers } from "./answers.js";
import { ask } from "./api.js";
import { button, h } from "./dom.js";
import { bytes, counted, number } from "./format.js";
import { edges, numbers, oneValue } from "./facets.js";
import { bars, sizeHistogram } from "./plots.js";
import { filterable, go, gridPart, link } from "./state.js";
import { leftOut } from "./waits.js";

const SHARDS = 100;
const STATES = {
  local: "on this machine", cached: "in the cache", remote: "remote", missing: "missing",
  unreachable: "cannot be reached", denied: "no access", damaged: "damaged",
};

/** Show figures of some shards at once, and go on while they grow. */
export async function showDataset({ view, state, dataset, signal, shown }) {
  const places = { answers: h("div", {}), sizes: h("div", { class: "figures-place" }) };
  const shards = h("div", {});
  view.replaceChildren(h("div", { class: "dataset" },
    h("h2", { class: "hidden" }, "Dataset"), checked(dataset), places.answers, shards, places.sizes));
  shown("Dataset");
  await Promise.all([showShards(shards, state, signal), showFigures(places, { all: false }, signal)]);
}

function checked(dataset) {
  const report = dataset.checked;
  const place = h("section", { class: "panel" });
  if (!report) return null;
  const errors = report.num_errors;
  place.append(h("h3", {}, "wids check"),
    h("p", { class: errors ? "problem" : "fine" },
      errors ? `${counted(errors, "fault")} in ${counted(report.num_shards, "shard")}` : `${counted(report.num_shards, "shard")} checked, no faults`));
  if (errors) listFaults(place);
  return place;
}

async function listFaults(place) {
  const { faults } = await ask("faults");
  place.append(h("ul", { class: "faults" }, faults.slice(0, 100).map((fault) => h("li", {},
    h("strong", {}, fault.severity), ` ${fault.shard}: ${fault.place}: ${fault.what} `,
    h("span", { class: "muted" }, fault.cure)))));
}

async function showFigures(places, { all }, signal) {
  let last = "";
  for (;;) {
    const found = await ask("statistics", { all: all ? 1 : null }, signal);
    const now = JSON.stringify(found);
    if (now !== last) {
      const figures = figuresOf(found.figures);
      places.answers.replaceChildren(...[...answers(found, read(found, places, all, signal)), figures].filter(Boolean));
      places.sizes.replaceChildren(sizesOf(found));
    }
    last = now;
    if (found.finished) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
    if (signal.aborted) return;
  }
}

/** Say from which shards the figures are, and offer to read the others. */
function read(found, places, all, signal) {
  const part = found.num_shards < found.all_shards;
  const whole = found.all_shards === 1 ? "From the one shard" : `From all ${counted(found.all_shards, "shard")}`;
  const source = part
    ? `From ${counted(found.shards_done, "shard")} of ${number(found.all_shards)}, at even distances`
    : found.finished ? whole : `From ${number(found.shards_done)} of ${counted(found.all_shards, "shard")}`;
  const beyond = found.beyond_view ? " · of the whole dataset, also of samples that the view leaves out" : "";
  const left = found.skipped ? ` · ${leftOut(found, "see below")}` : "";
  return h("div", { class: "progress" },
    found.finished ? null : h("progress", { max: found.num_shards, value: found.shards_done, "aria-label": "Statistics" }),
    h("span", { class: "muted" }, source + beyond + left),
    part && found.finished && !all ? button("Read all shards", () => showFigures(places, { all: true }, signal).catch(() => {})) : null);
}

/** How large images are, how long texts and sounds; a drag over one shows the samples of a range. */
function figuresOf(figures) {
  if (!figures.length) return null;
  return h("section", { class: "panel" }, h("h3", {}, "Sizes and lengths"),
    h("div", { class: "field-plots" }, figures.map((each) => h("figure", {},
      h("figcaption", {}, h("strong", {}, each.field), ` ${each.fact} `, h("span", { class: "muted" }, `${number(each.count)}${each.missing ? ` · ${number(each.missing)} without` : ""}`)),
      each.name ? numbers({}, each, each, (clauses) => go({ ...filterable({}), where: clauses.join(" and ") || null })) : oneValue(each) ?? plain(each)))));
}

function plain({ bins, low, width, least, most, field, fact }) {
  const place = edges(low, width);
  const edge = (bin) => number(place(bin));
  return bars(bins, { label: `${fact} of ${field}: from ${number(least)} to ${number(most)}`, marks: [[0, number(least)], [1, number(most)]],
    titles: bins.map((count, bin) => `${edge(bin)} to ${edge(bin + 1)}: ${number(count)}`) });
}

function sizesOf(found) {
  const rarer = found.num_fields - found.fields.length;
  return h("section", { class: "panel" },
    h("h3", {}, "Bytes"),
    h("div", { class: "field-plots" }, [...found.fields, found.samples].filter((sizes) => sizes.count).map(fieldPlot)),
    rarer > 0 ? h("p", { class: "muted" }, `and ${counted(rarer, "field")} of fewer samples`) : null);
}

function fieldPlot(sizes) {
  return h("figure", {},
    h("figcaption", {}, h("strong", {}, sizes.name === "sample" ? "whole samples" : sizes.name),
      h("span", { class: "muted" }, ` ${number(sizes.count)} · ${bytes(sizes.nbytes)}`)),
    sizeHistogram(sizes.bins, sizes.name),
    h("p", { class: "muted" }, `${bytes(sizes.smallest)} to ${bytes(sizes.largest)}, ${bytes(sizes.mean)} on average`));
}

async function showShards(place, state, signal) {
  const from = Math.max(0, Number(state.shards ?? 0));
  const { num_shards: total, shards } = await ask("shards", { from, count: SHARDS }, signal);
  const to = (first) => link({ ...gridPart(state), at: state.at, view: "dataset", shards: first || null });
  const largest = Math.max(...shards.map((shard) => shard.nbytes ?? 0), 1);
  const pages = total > SHARDS
    ? h("p", { class: "steps" },
        from > 0 ? h("a", { class: "button", href: to(Math.max(0, from - SHARDS)), "data-key": "p" }, "‹ previous") : null,
        h("span", { class: "muted" }, `${number(from)} to ${number(Math.min(from + SHARDS, total) - 1)} of ${number(total)}`),
        from + SHARDS < total ? h("a", { class: "button", href: to(from + SHARDS), "data-key": "n" }, "next ›") : null)
    : null;
  place.replaceChildren(h("section", { class: "panel" },
    h("h3", {}, "Shards"), pages,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Shards" },
      h("table", {},
        h("thead", {}, h("tr", {}, ["shard", "samples", "size", "state", "location"].map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, shards.map((shard) => shardRow(shard, largest)))))));
}

function shardRow(shard, largest) {
  const first = link({ at: shard.first_index || null });
  return h("tr", {},
    h("td", {}, shard.num_samples ? h("a", { href: first }, number(shard.shard)) : number(shard.shard)),
    h("td", {}, number(shard.num_samples)),
    h("td", {}, bytes(shard.nbytes), h("meter", { min: 0, max: largest, value: shard.nbytes ?? 0, "aria-label": "Size beside the largest" })),
    h("td", {}, h("span", { class: `state ${shard.state}` }, STATES[shard.state] ?? shard.state)),
    h("td", { class: "url" }, shard.url, shard.messages.map((message) => h("div", { class: "problem" }, message))));
}
