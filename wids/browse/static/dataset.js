// The dataset: its fields, classes and shards.

import { ask } from "./api.js";
import { quoted } from "./clauses.js";
import { button, h } from "./dom.js";
import { bytes, counted, number } from "./format.js";
import { rows, sizeHistogram } from "./plots.js";
import { gridPart, link } from "./state.js";
import { leftOut } from "./waits.js";

const SHARDS = 100;
const STATES = {
  local: "on this machine", cached: "in the cache", remote: "remote", missing: "missing",
  unreachable: "cannot be reached", denied: "no access", damaged: "damaged",
};

/** Show figures of some shards at once, and go on while they grow. */
export async function showDataset({ view, state, dataset, signal, shown }) {
  const figures = h("div", { class: "figures-place" });
  const shards = h("div", {});
  view.replaceChildren(h("div", { class: "dataset" },
    h("h2", { class: "hidden" }, "Dataset"), checked(dataset), figures, shards));
  shown("Dataset");
  await Promise.all([showShards(shards, state, signal), showFigures(figures, { all: false }, signal)]);
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

async function showFigures(place, { all }, signal) {
  let last = "";
  for (;;) {
    const found = await ask("statistics", { all: all ? 1 : null }, signal);
    const now = JSON.stringify(found);
    if (now !== last) place.replaceChildren(...figuresOf(found, place, all, signal));
    last = now;
    if (found.finished) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
    if (signal.aborted) return;
  }
}

function figuresOf(found, place, all, signal) {
  const part = found.num_shards < found.all_shards;
  const whole = found.all_shards === 1 ? "From the one shard" : `From all ${counted(found.all_shards, "shard")}`;
  const source = part
    ? `From ${counted(found.shards_done, "shard")} of ${number(found.all_shards)}, at even distances`
    : found.finished ? whole : `From ${number(found.shards_done)} of ${counted(found.all_shards, "shard")}`;
  const rarer = found.num_fields - found.fields.length;
  const beyond = found.beyond_view ? " · of the whole dataset, also of samples that the view leaves out" : "";
  const left = found.skipped ? ` · ${leftOut(found, "see below")}` : "";
  const more = part && found.finished && !all
    ? button("Read all shards", () => showFigures(place, { all: true }, signal).catch(() => {}))
    : null;
  return [
    h("section", { class: "panel" },
      h("h3", {}, "Fields"),
      h("div", { class: "progress" },
        found.finished ? null : h("progress", { max: found.num_shards, value: found.shards_done, "aria-label": "Statistics" }),
        h("span", { class: "muted" }, source + beyond + left), more),
      h("div", { class: "field-plots" }, [...found.fields, found.samples].filter((sizes) => sizes.count).map(fieldPlot)),
      rarer > 0 ? h("p", { class: "muted" }, `and ${counted(rarer, "field")} of fewer samples`) : null,
      found.messages.map((message) => h("p", { class: "problem" }, message))),
    classes(found),
  ].filter(Boolean);
}

function fieldPlot(sizes) {
  return h("figure", {},
    h("figcaption", {}, h("strong", {}, sizes.name === "sample" ? "whole samples" : sizes.name),
      h("span", { class: "muted" }, ` ${number(sizes.count)} · ${bytes(sizes.nbytes)}`)),
    sizeHistogram(sizes.bins, sizes.name),
    h("p", { class: "muted" }, `${bytes(sizes.smallest)} to ${bytes(sizes.largest)}, ${bytes(sizes.mean)} on average`));
}

function classes(found) {
  if (!found.classes.length) return null;
  const field = found.class_field;
  const { least, median, most } = found.counts;
  const entries = found.classes.map(([label, name, count]) => [
    name ? `${label} ${name}` : label, count, link({ where: `${field} == ${quoted(label)}` }),
  ]);
  const rest = found.num_classes - found.classes.length;
  return h("section", { class: "panel" },
    h("h3", {}, "Classes in ", h("code", {}, field)),
    h("p", { class: "muted" }, `${counted(found.num_classes, "class").replace("classs", "classes")}, ${number(least)} to ${number(most)} samples each, median ${number(median)}`),
    rows(entries),
    rest > 0 ? h("p", { class: "muted" }, `and ${number(rest)} rarer ones`) : null);
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
