// Counts of samples: what the dataset has and lacks, its shards, and the values of columns.

import { chosenBy, explore, found, picked } from "./facets.js";
import { wordColour } from "./map.js";
import { completed, markWrong } from "./toolbar.js";
import { built, button, bytes, counted, h, leftOut, number, svg, swatch, table } from "./ui.js";
import { ask, filterable, follow, go, gridPart, link, orderPart } from "./urls.js";

const SHARDS = 100; // on a page
const BARS = 40; // of counts over the shards
const STATES = {
  local: "on this machine", cached: "in the cache", remote: "remote", missing: "missing",
  unreachable: "cannot be reached", denied: "no access", damaged: "damaged",
};

/** Show figures of some shards at once, and go on while they grow. */
export async function showDataset({ view, state, dataset, signal, shown }) {
  const [answers, shards, sizes] = [h("div", {}), h("div", {}), h("div", {})];
  view.replaceChildren(h("div", { class: "dataset" },
    h("h2", { class: "hidden" }, "Dataset"), answers, shards, sizes));
  shown("Dataset");
  const figures = dataset.install ? answers.append(h("p", { class: "muted" }, "Counts need DuckDB: ", h("code", {}, dataset.install))) : showFigures(answers, sizes, signal);
  await Promise.all([showShards(shards, state, signal), figures]);
}

async function showFigures(answers, sizes, signal) {
  await follow("overview", {}, signal, (figures) => {
    if (!figures.fields) return answers.replaceChildren(built(figures));
    answers.replaceChildren(...[missing(figures), classes(figures)].filter(Boolean));
    return sizes.replaceChildren(sizesOf(figures));
  }).catch((error) => answers.replaceChildren(h("p", { class: "problem" }, error.message))); // the shards are shown without them
}

/** What one asks of a dataset first: is it complete? */
function missing(figures) {
  const { fields, total } = figures;
  const lacking = fields.filter((field) => field.missing);
  const broken = fields.filter((field) => field.broken);
  const said = `${number(fields.length - lacking.length)} of ${counted(fields.length, "field")} in every sample.`;
  return h("section", { class: "panel" }, h("h3", {}, "Samples"),
    h("p", { class: "muted" }, [`From all ${counted(figures.num_shards, "shard")}`, leftOut(figures, "see below"), figures.beyond_view ? "of the whole dataset, also of samples that the view leaves out" : "", figures.num_fields > fields.length ? `the ${number(fields.length)} commonest of ${number(figures.num_fields)} fields` : ""].filter(Boolean).join(" · ")),
    h("h4", {}, "Missing"), h("p", {}, total ? said : "No samples were read."),
    lacking.length ? bars(lacking.map(({ name, missing: count }) => ({ name: `without ${name}`, count, href: link({ missing: name }) }))) : null,
    broken.length ? [h("h4", {}, "Unreadable"), bars(broken.map(({ name, broken: count }) => ({ name: `unreadable ${name}`, count, href: link({ broken: name }) })))] : null,
    figures.messages.map((message) => h("p", { class: "problem" }, message)));
}

function classes(figures) {
  if (!figures.classes?.values.length) return null;
  const { name, parameter, values, all, num_values: count, sizes: [least, median, most] } = figures.classes;
  const range = least === most ? `${counted(least, "sample")}${count === 1 ? "" : " each"}` : `${number(least)} to ${number(most)} samples each, median ${number(median)}`;
  const step = Math.ceil(figures.num_shards / BARS);
  return h("section", { class: "panel" },
    h("h3", {}, "Classes in ", h("code", {}, name)),
    h("p", {}, [`${counted(count, "class").replace("classs", "classes")}, ${range}.`, all.missing ? `${counted(all.missing, "sample")} without a class.` : ""].filter(Boolean).join(" ")),
    figures.num_shards > 1 ? h("p", {}, h("a", { href: link({ look: "count", by: step > 1 ? `shard_index // ${step}` : "shard_index", across: name }) }, "How they change over the shards")) : null,
    bars(values.map(([value, label], place) => ({ name: label, count: all.counts[place], href: link({ [parameter]: value }) }))),
    count > values.length ? h("p", { class: "muted" }, `and ${counted(count - values.length, "rarer one")}`) : null);
}

function sizesOf({ fields }) {
  const figures = fields.map((field) => h("tr", {}, h("td", {}, h("code", {}, field.name)), h("td", { class: "figure" }, number(field.count)),
    [field.nbytes, field.smallest, field.mean, field.largest].map((each) => h("td", { class: "figure" }, each === null ? "–" : bytes(each)))));
  return h("section", { class: "panel" }, h("h3", {}, "Bytes"), table("Bytes", ["field", "samples", "in all", "smallest", "mean", "largest"], figures));
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
    table("Shards", ["shard", "samples", "size", "state", "location"], shards.map((shard) => shardRow(shard, largest)))));
}

function shardRow(shard, largest) {
  const first = link({ at: shard.first_index || null });
  return h("tr", {},
    h("td", {}, shard.num_samples ? h("a", { href: first }, number(shard.shard)) : number(shard.shard)),
    h("td", {}, number(shard.num_samples)),
    h("td", {}, bytes(shard.nbytes), h("meter", { min: 0, max: largest, value: shard.nbytes ?? 0, "aria-label": "Size beside the largest" })),
    h("td", {}, h("span", { class: `state ${shard.state}` }, STATES[shard.state] ?? shard.state)),
    h("td", { class: "url" }, shard.url, h("div", { class: "problem" }, shard.message)));
}

// Samples counted by a column, or by two: bars that lead to the samples.

const COLOURED = 10; // values of the second column that have a colour of their own

/** Show how many samples each value of a column has. */
export async function showCount({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "groups" });
  found.replaceChildren(h("div", { class: "progress" }, chosenBy(state)), form(state), place);
  explore(view, state, dataset, signal);
  shown("Count");
  await follow("groups", { ...orderPart(state), sort: null, by: state.by, across: state.across }, signal,
    (counts) => place.replaceChildren(...(counts.groups ? grouped(counts, state) : [built(counts)])))
    .catch((error) => place.replaceChildren(markWrong(error.message, state)));
}

function form(state) {
  const box = (name, label, placeholder) => h("label", {}, label, completed(h("input", { type: "text", name, value: state[name] ?? "", placeholder, "aria-label": label.trim(), spellcheck: "false", autocapitalize: "off", maxlength: 300 }), "order"));
  return h("form", {
    class: "count-by", onsubmit: (event) => {
      event.preventDefault();
      const { by, across } = Object.fromEntries(new FormData(event.target));
      go({ ...gridPart(state), by: by.trim(), across: across.trim() });
    },
  }, box("by", "Count by ", "a column"), box("across", " and by ", "another, or none"), button("Count", null, { type: "submit" }));
}

function grouped({ parameters: [by, across], groups, total, num_groups: all, hint, ...rest }, state) {
  const rows = [...Map.groupBy(groups, ([[value]]) => value).values()];
  const sum = (row) => row.reduce((count, group) => count + group.at(-1), 0);
  const common = across ? [...Map.groupBy(groups, ([, [value]]) => value).values()].sort((a, b) => sum(b) - sum(a)).slice(0, COLOURED) : [];
  const codes = new Map(common.map(([[, [value]]], code) => [value, code]));
  const codeOf = ([, [value]]) => codes.get(value) ?? Infinity; // of a colour, which all others share
  const to = (picks) => link({ ...filterable(state), look: null, by: null, across: null, ...picks });
  return [
    h("p", { class: "muted" }, [`${counted(total, "sample")} in ${counted(all, "group")}`, hint, leftOut(rest)].filter(Boolean).join(" · ")),
    ...(across ? [h("ul", { class: "legend" }, common.map(([[, [, name]]], code) => h("li", {}, swatch(wordColour(code)), name)))] : []),
    bars(rows.map((row) => {
      const [[value, name]] = row[0];
      const parts = across && row.sort((a, b) => codeOf(a) - codeOf(b)).map((group) => {
        const [, [other, label], count] = group;
        return { count, colour: wordColour(codeOf(group)), label: `${name}, ${label}: ${number(count)}`, href: to({ [by]: value, [across]: other }) };
      });
      return { name, count: sum(row), href: to({ [by]: value }), on: picked(state, by).includes(value), parts };
    })),
  ];
}

/** Horizontal bars that lead to what they count: each with its name, count and link, and parts with links of their own. */
function bars(rows) {
  const top = Math.max(...rows.map(({ count }) => count), 1);
  return h("ul", { class: "bars" }, rows.map(({ name, count, href, on, parts }) => {
    let x = 0;
    const drawn = (parts || [{ count }]).map((part) => {
      const rect = svg("rect", { x, y: 0, width: Math.max((100 * part.count) / top, 0.2), height: 10, ...(parts ? { fill: part.colour } : {}) });
      x += (100 * part.count) / top;
      return parts ? svg("a", { href: part.href, "aria-label": part.label, tabindex: -1 }, svg("title", {}, part.label), rect) : rect;
    });
    const meter = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", ...(parts ? {} : { "aria-hidden": "true" }) }, drawn);
    return h("li", { class: on ? "picked" : null },
      h("a", { href }, h("span", { class: "name" }, name), parts ? null : meter, h("span", { class: "count" }, number(count))), parts ? meter : null);
  }));
}
