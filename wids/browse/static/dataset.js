// The dataset: its fields, classes and shards.

import { rows } from "./plots.js";
import { built, bytes, counted, h, leftOut, number, table } from "./ui.js";
import { ask, follow, gridPart, link } from "./urls.js";

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
    h("h2", { class: "hidden" }, "Dataset"), checked(dataset), answers, shards, sizes));
  shown("Dataset");
  const figures = dataset.install ? answers.append(h("p", { class: "muted" }, "Counts need DuckDB: ", h("code", {}, dataset.install))) : showFigures(answers, sizes, signal);
  await Promise.all([showShards(shards, state, signal), figures]);
}

function checked(dataset) {
  if (!dataset.checked) return null;
  const { num_errors: errors, num_shards: total, faults } = dataset.checked;
  return h("section", { class: "panel" }, h("h3", {}, "wids check"),
    h("p", { class: errors ? "problem" : "fine" },
      errors ? `${counted(errors, "fault")} in ${counted(total, "shard")}` : `${counted(total, "shard")} checked, no faults`),
    errors ? h("ul", { class: "faults" }, faults.map((fault) => h("li", {},
      h("strong", {}, fault.severity), ` ${fault.shard}: ${fault.place}: ${fault.what} `, h("span", { class: "muted" }, fault.cure)))) : null);
}

async function showFigures(answers, sizes, signal) {
  await follow("overview", {}, signal, (found) => {
    if (!found.fields) return answers.replaceChildren(built(found));
    answers.replaceChildren(...[missing(found), classes(found)].filter(Boolean));
    return sizes.replaceChildren(sizesOf(found));
  }).catch((error) => answers.replaceChildren(h("p", { class: "problem" }, error.message))); // the shards are shown without them
}

/** What one asks of a dataset first: is it complete? */
function missing(found) {
  const { fields, total } = found;
  const lacking = fields.filter((field) => field.missing);
  const broken = fields.filter((field) => field.broken);
  const said = lacking.length ? `${counted(fields.length - lacking.length, "field")} in every sample; ${counted(lacking.length, "field")} missing in some:`
    : fields.length === 1 ? "Its one field is in every sample." : `All ${counted(fields.length, "field")} in every sample.`;
  return h("section", { class: "panel" }, h("h3", {}, "Samples"),
    h("p", { class: "muted" }, [`From all ${counted(found.num_shards, "shard")}`, leftOut(found, "see below"), found.beyond_view ? "of the whole dataset, also of samples that the view leaves out" : "", found.num_fields > fields.length ? `the ${number(fields.length)} commonest of ${number(found.num_fields)} fields` : ""].filter(Boolean).join(" · ")),
    h("h4", {}, "Missing"), h("p", {}, total ? said : "No samples were read."),
    lacking.length ? rows(lacking.map(({ name, missing: count }) => [`without ${name}`, count, link({ missing: name })])) : null,
    broken.length ? [h("h4", {}, "Unreadable"), rows(broken.map(({ name, broken: count }) => [`unreadable ${name}`, count, link({ broken: name })]))] : null,
    found.messages.map((message) => h("p", { class: "problem" }, message)));
}

function classes(found) {
  if (!found.classes || !found.classes.total) return null;
  const { name, parameter, values, all, num_values: count, sizes: [least, median, most] } = found.classes;
  const entries = values.map(([value, label], place) => [label, all.counts[place], link({ [parameter]: value })]);
  const range = least === most ? `${counted(least, "sample")}${count === 1 ? "" : " each"}` : `${number(least)} to ${number(most)} samples each, median ${number(median)}`;
  const times = most / least;
  const about = times < 10 ? Number(times.toPrecision(2)) : Math.round(times);
  const step = Math.ceil(found.num_shards / BARS);
  const balance = count === 1 ? "" : times < 2 ? "They are balanced." : `The commonest has ${number(about)} times as many as the rarest.`;
  return h("section", { class: "panel" },
    h("h3", {}, "Classes in ", h("code", {}, name)),
    h("p", {}, [`${counted(count, "class").replace("classs", "classes")}, ${range}.`, balance, all.missing ? `${counted(all.missing, "sample")} without a class.` : ""].filter(Boolean).join(" ")),
    found.num_shards > 1 ? h("p", {}, h("a", { href: link({ look: "count", by: step > 1 ? `shard_index // ${step}` : "shard_index", across: name }) }, "How they change over the shards")) : null,
    rows(entries),
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
    h("td", { class: "url" }, shard.url, shard.messages.map((message) => h("div", { class: "problem" }, message))));
}
