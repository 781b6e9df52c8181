// The panel of facets: how often values occur, in all samples and in those shown; a choice filters.

import { ask, poll } from "./api.js";
import { chosenRange, chosenValues, clauseOf, formsOf, rangeClauses, withClauses, written } from "./clauses.js";
import { button, h, svg } from "./dom.js";
import { counted, number } from "./format.js";
import { histogram } from "./histogram.js";
import { filterable, go } from "./state.js";
import { leftOut } from "./waits.js";

const FEW = 8; // values that are listed at first
const opened = new Set(); // columns of which all values are listed
const panel = h("aside", { class: "facets", "aria-label": "Facets" });
let everything = null; // counts of all samples, which stay
let last = null; // what was drawn, or will be
let waiting = null; // timer for it

/** The panel for a state; it goes on counting until the signal ends it. */
export function facetPanel(state, signal) {
  const chosen = { where: state.where, q: state.q, whole: state.whole, shard: state.shard, inside: state.inside, near: state.near, far: state.far };
  const narrowed = Object.values(chosen).some(Boolean);
  if (last) draw(state, last[1], last[2]); // with the old counts, so that a click adds to what is chosen now
  count(state, narrowed ? chosen : {}, narrowed, signal).catch((error) => {
    if (error.name !== "AbortError") panel.replaceChildren(h("p", { class: "muted" }, "Nothing is counted for this filter."));
  });
  return panel;
}

async function count(state, chosen, narrowed, signal) {
  if (!panel.childElementCount) panel.replaceChildren(h("p", { class: "muted" }, "Counting…"));
  await poll(async () => {
    if (!narrowed || !everything?.finished) everything = await ask("facets", {}, signal);
    const now = narrowed ? await ask("facets", chosen, signal) : null; // after that of all, in whose bins it counts
    if (now && now.generation !== everything.generation) everything = await ask("facets", {}, signal); // a shard was replaced
    const all = everything;
    draw(state, all, { ...(now ?? all), first: now ? firstShard(state) : 0 });
    return all.finished && (now ?? all).finished;
  }, signal);
}

function draw(state, all, now) {
  last = [state, all, now];
  clearTimeout(waiting);
  if (panel.querySelector(".dragged, :active")) { // a button that is replaced while it is pressed loses the click
    waiting = setTimeout(() => draw(...last), 50);
    return;
  }
  const focus = [...panel.querySelectorAll("button, [tabindex]")].indexOf(document.activeElement);
  const waits = all.finished ? now : all;
  const found = new Map(now.facets.map((facet) => [facet.name, facet]));
  panel.replaceChildren(...[
    waits.finished ? null : h("div", { class: "progress" },
      h("progress", { max: waits.num_shards, value: waits.shards_done, "aria-label": "Counting" }),
      h("span", {}, `${number(waits.shards_done)} of ${counted(waits.num_shards, "shard")} counted`)),
    Number(state.replicas) > 1 ? h("p", { class: "muted" }, "Counted are the samples of all ranks.") : null,
    waits.skipped ? h("p", { class: "muted" }, leftOut(waits)) : null,
    ...all.facets.map((facet) => facetOf(state, facet, found.get(facet.name))),
    all.by_shard.counts.length > 1 ? shards(state, all.by_shard, now) : null,
  ].filter(Boolean));
  if (focus >= 0) panel.querySelectorAll("button, [tabindex]")[focus]?.focus();
}

function firstShard(state) {
  return state.shard ? Number(state.shard.split("-")[0]) : 0;
}

function facetOf(state, all, now) {
  const chosen = all.kind === "values" ? chosenValues(state.where, all.name).length : chosenRange(state.where, all.name).some((bound) => bound !== null);
  const choose = (clauses) => go({ ...filterable(state), where: withClauses(state.where, all.name, clauses) || null });
  return h("section", {},
    h("header", {}, h("h2", {}, all.name),
      all.missing ? h("span", { class: "muted" }, `${number(all.missing)} without`) : null,
      chosen ? button("clear", () => choose([]), { class: "plain", "aria-label": `Clear the choice of ${all.name}` }) : null),
    all.kind === "values" ? values(state, all, now, choose) : numbers(state, all, now, choose));
}

function values(state, all, now, choose) {
  const chosen = chosenValues(state.where, all.name);
  const found = new Map((now?.values ?? []).map(([value, count]) => [value, count]));
  const top = Math.max(...all.values.map(([, count]) => count), 1);
  const shown = opened.has(all.name) ? all.values : all.values.slice(0, FEW);
  const rest = all.num_values - shown.length;
  return h("ul", {}, shown.map((entry) => {
    const [value, count, name] = entry;
    const text = written(entry, all);
    const forms = formsOf(entry, all);
    const kept = chosen.filter((each) => !forms.includes(each));
    const on = kept.length < chosen.length;
    return h("li", {}, h("button", {
      type: "button", "aria-pressed": String(on), onclick: () => choose(clauseOf(all.name, on ? kept : [...kept, text])),
    }, meter(count / top, (found.get(value) ?? 0) / top), h("span", { class: "name" }, name ?? String(value)), h("span", { class: "count" }, number(found.get(value) ?? 0))));
  }), rest > 0 && shown.length < all.values.length ? h("li", {}, button(`${number(rest)} more`, () => { opened.add(all.name); draw(...last); }, { class: "plain" })) : null);
}

function meter(all, now) {
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "all", width: 100 * all, height: 10 }), svg("rect", { class: "now", width: 100 * now, height: 10 }));
}

/** What there is to say of a column of one value, which no histogram tells; null of any other. */
export function oneValue({ least, most, count }) {
  return least === most ? h("p", { class: "muted" }, h("strong", {}, number(least)), ` in ${count === 1 ? "the one sample" : `all ${counted(count, "sample")}`} that ${count === 1 ? "has" : "have"} it`) : null;
}

/** Where the bins begin, as the server cut them: at decimals, and at integers of any length. */
export function edges(low, width) {
  const first = Math.round(low / width); // bins begin at multiples of their width
  const isExact = (value) => Number.isInteger(width) && Number.isSafeInteger(value);
  return (bin) => (isExact((first + bin) * width) ? (first + bin) * width : Number(((first + bin) * width).toPrecision(15)));
}

/** The histogram of a column, of which a range is chosen. */
export function numbers(state, all, now, choose) {
  const { low, width, bins } = all;
  const one = oneValue(all);
  if (one) return one;
  const counts = bins.map(() => 0);
  // They have the same bins, but for the time while all samples are still counted.
  now?.bins?.forEach((count, bin) => {
    const place = Math.floor((now.low + (bin + 0.5) * now.width - low) / width);
    counts[Math.min(Math.max(place, 0), bins.length - 1)] += count;
  });
  const edge = edges(low, width);
  const [from, to] = chosenRange(state.where, all.name);
  const at = (value, none) => (value === null ? none : Math.min(Math.max(Math.round((value - low) / width), 0), bins.length));
  const chosen = from === null && to === null ? null : [at(from, 0), Math.max(at(to, bins.length), at(from, 0) + 1)];
  // The outermost bins hold what lies far beyond them, so a range up to them has no bound there.
  const bounds = ([first, stop]) => [first === 0 ? null : edge(first), stop === bins.length ? null : edge(stop)];
  return [histogram({
    all: bins, now: counts, chosen, label: `Range of ${all.name}`,
    titles: bins.map((count, bin) => `${number(all.least === "-Infinity" && !bin ? all.least : edge(bin))} to ${number(all.most === "Infinity" && bin === bins.length - 1 ? all.most : edge(bin + 1))}: ${number(counts[bin])} of ${number(count)}`),
    onchoose: (range) => choose(range ? rangeClauses(all.name, bounds(range)) : []),
  }), h("p", { class: "ends" }, h("span", {}, number(all.least)), h("span", {}, number(all.most)))];
}

function shards(state, all, now) {
  const { step, counts } = all;
  const here = counts.map(() => 0);
  now.by_shard.counts.forEach((count, place) => { here[Math.min(Math.floor((place * now.by_shard.step + now.first) / step), counts.length - 1)] += count; });
  const [from, to] = (state.shard ?? "").split("-").map(Number);
  const chosen = state.shard ? [Math.floor(from / step), Math.floor((to ?? from) / step) + 1] : null;
  const choose = (range) => go({ ...filterable(state), shard: range ? `${range[0] * step}-${Math.min(range[1] * step, everything.num_shards) - 1}` : null });
  return h("section", {}, h("header", {}, h("h2", {}, "shard"), chosen ? button("clear", () => choose(null), { class: "plain", "aria-label": "Clear the choice of shards" }) : null),
    histogram({ all: counts, now: here, chosen, label: "Range of shards", onchoose: choose,
      titles: counts.map((count, place) => `shard ${number(place * step)}${step > 1 ? ` to ${number(place * step + step - 1)}` : ""}: ${number(here[place])} of ${number(count)}`) }),
    h("p", { class: "ends" }, h("span", {}, "0"), h("span", {}, number(everything.num_shards - 1))));
}
