// The panel of facets: how often values occur, in all samples and in those shown. What is picked is a
// parameter of the URL for each column: values between commas, ranges as 400..600.

import { ask, poll } from "./api.js";
import { button, h, svg } from "./dom.js";
import { counted, number } from "./format.js";
import { histogram } from "./histogram.js";
import { filterable, go, orderPart } from "./state.js";
import { built, leftOut } from "./waits.js";

const FEW = 8; // values that are listed at first
const NULL = "null"; // the pick of samples without a value
const opened = new Set(); // columns of which all values are listed
const panel = h("aside", { class: "facets", "aria-label": "Facets" });
let last = null; // what was drawn: the state, and the counts
let waiting = null; // timer for it

/** The panel for a state; it goes on counting until the signal ends it. */
export function facetPanel(state, dataset, signal) {
  if (dataset.install) {
    panel.replaceChildren(h("p", { class: "muted" }, "Counts need DuckDB: ", h("code", {}, dataset.install)));
    return panel;
  }
  if (last) draw(state, last[1]); // with the old counts, so that a click adds to what is chosen now
  else panel.replaceChildren(h("p", { class: "muted" }, "Counting…"));
  poll(async () => {
    const found = await ask("facets", { ...orderPart(state), sort: null }, signal);
    if (found.facets) draw(state, found);
    else if (!last) panel.replaceChildren(built(found));
    return found.finished;
  }, signal).catch((error) => {
    if (error.name !== "AbortError" && !last) panel.replaceChildren(h("p", { class: "muted" }, "Nothing is counted for this condition."));
  });
  return panel;
}

function draw(state, found) {
  last = [state, found];
  clearTimeout(waiting);
  if (panel.querySelector(".dragged, :active")) { // a button that is replaced while it is pressed loses the click
    waiting = setTimeout(() => draw(...last), 50);
    return;
  }
  const focus = panel.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const left = leftOut(found);
  panel.replaceChildren(...[
    found.finished ? null : built(found),
    left ? h("p", { class: "muted" }, left) : null,
    chips(state, found.fields),
    ...found.facets.map((facet) => facetOf(state, facet)),
    found.by_shard.counts.length > 1 ? shards(state, found) : null,
  ].filter(Boolean));
  if (focus) panel.querySelector(`[data-name="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

/** What is picked of a column. */
export function picked(state, parameter) {
  return state[parameter]?.split(",") ?? [];
}

function toggled(state, parameter, value) {
  const now = picked(state, parameter);
  const next = now.includes(value) ? now.filter((each) => each !== value) : [...now, value];
  return { ...filterable(state), [parameter]: next.join(",") || null };
}

function toggle(state, parameter, value, properties, ...children) {
  return h("button", { type: "button", "aria-pressed": String(picked(state, parameter).includes(value)), "data-name": `${parameter} ${value}`, onclick: () => go(toggled(state, parameter, value)), ...properties }, children);
}

/** Fields that samples lack, and those that cannot be read. */
function chips(state, fields) {
  const all = [["missing", "without"], ["broken", "unreadable"]].flatMap(([kind, word]) => fields
    .filter((field) => field[kind] || picked(state, kind).includes(field.name))
    .map((field) => toggle(state, kind, field.name, { class: "chip" }, `${word} ${field.name} `, h("span", { class: "count" }, number(field[kind])))));
  return all.length ? h("section", { class: "chips" }, all) : null;
}

function facetOf(state, facet) {
  const { name, parameter, all } = facet;
  return h("section", {},
    h("header", {}, h("h2", {}, name),
      all.missing ? toggle(state, parameter, NULL, { class: "plain" }, `${number(facet.now.missing)} without`) : null,
      state[parameter] ? button("clear", () => go({ ...filterable(state), [parameter]: null }), { class: "plain", "data-name": `${parameter} clear`, "aria-label": `Clear the choice of ${name}` }) : null),
    facet.kind === "values" ? values(state, facet) : numbers(state, facet));
}

function values(state, { name, parameter, values: entries, all, now, num_values: total }) {
  const top = Math.max(...all.counts, 1);
  const shown = opened.has(name) ? entries : entries.slice(0, FEW);
  return h("ul", {}, shown.map(([value, label], place) => h("li", {}, toggle(state, parameter, value, {},
    meter(all.counts[place] / top, now.counts[place] / top), h("span", { class: "name" }, label), h("span", { class: "count" }, number(now.counts[place]))))),
  shown.length < entries.length ? h("li", {}, button(`${number(total - shown.length)} more`, () => { opened.add(name); draw(...last); }, { class: "plain", "data-name": `${parameter} more` })) : null);
}

function meter(all, now) {
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "all", width: 100 * all, height: 10 }), svg("rect", { class: "now", width: 100 * now, height: 10 }));
}

/** The histogram of a column, of which a range is chosen. */
function numbers(state, { name, parameter, edges, least, most, all, now }) {
  if (least === most) return h("p", { class: "muted" }, h("strong", {}, number(least)), all.count === 1 ? " in the one sample that has it" : ` in all ${counted(all.count, "sample")} that have it`);
  const bins = all.counts.length;
  const range = picked(state, parameter).find((each) => each.includes(".."));
  const [from, to] = range?.split("..") ?? [];
  const place = (edge, none) => (edge ? Math.max(edges.indexOf(edge), 0) : none);
  // The outermost bins hold what lies far beyond them, so a range up to them has no bound there.
  const choose = (chosen) => go({ ...filterable(state), [parameter]: chosen ? `${chosen[0] ? edges[chosen[0]] : ""}..${chosen[1] < bins ? edges[chosen[1]] : ""}` : null });
  return [histogram({
    all: all.counts, now: now.counts, chosen: range ? [place(from, 0), Math.max(place(to, bins), place(from, 0) + 1)] : null,
    label: `Range of ${name}`, name: `${parameter} range`, onchoose: choose,
    titles: all.counts.map((count, bin) => `${number(Number(edges[bin]))} to ${number(Number(edges[bin + 1]))}: ${number(now.counts[bin])} of ${number(count)}`),
  }), h("p", { class: "ends" }, h("span", {}, number(least)), h("span", {}, number(most)))];
}

function shards(state, { by_shard: { step, counts }, by_shard_now: { counts: now }, num_shards: total }) {
  const [from, to = from] = (state.shard ?? "").split("-").map(Number);
  const chosen = state.shard ? [Math.floor(from / step), Math.floor(to / step) + 1] : null;
  const choose = (range) => go({ ...filterable(state), shard: range ? `${range[0] * step}-${Math.min(range[1] * step, total) - 1}` : null });
  return h("section", {}, h("header", {}, h("h2", {}, "shard"), chosen ? button("clear", () => choose(null), { class: "plain", "aria-label": "Clear the choice of shards" }) : null),
    histogram({ all: counts, now: counts.map((_, bar) => now[bar] ?? 0), chosen, label: "Range of shards", name: "shard range", onchoose: choose,
      titles: counts.map((count, bar) => `shard ${number(bar * step)}${step > 1 ? ` to ${number(bar * step + step - 1)}` : ""}: ${number(now[bar] ?? 0)} of ${number(count)}`) }),
    h("p", { class: "ends" }, h("span", {}, "0"), h("span", {}, number(total - 1))));
}
