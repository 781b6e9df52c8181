// The panel of facets: how often values occur, in all samples and in those shown. What is picked is a
// parameter of the URL for each column: values between commas, ranges as 400..600.

import { tray } from "./marks.js";
import { histogram, swatch, wordColour } from "./plots.js";
import { completed, markWrong, toolbar } from "./toolbar.js";
import { built, button, chosen, counted, h, leftOut, number, svg } from "./ui.js";
import { filterable, follow, go, gridPart, link, orderPart, picksOf, selection } from "./urls.js";

const FEW = 8; // values that are listed at first
const NULL = "null"; // the pick of samples without a value
const opened = new Set(); // columns of which all values are listed
const panel = h("aside", { class: "facets", "aria-label": "Facets" });
let last = null; // what was drawn: the state, and the counts
let waiting = null; // timer for it

// What the grid, the map and the counts are shown in, which stays, with the focus in it.
const side = h("div", { class: "side" });
/** What is shown beside the facets. */
export const found = h("div", { class: "found" });
/** What stays below all: the marks, and the pages of the grid. */
export const foot = h("div", { class: "pager-place" }, tray);
const explorer = h("div", { class: "explorer" }, side, found);

/** Show the toolbar, the facets if they are wanted, what was found, and the marks; `told` stands above them. */
export function explore(view, state, dataset, signal, ...told) {
  const wanted = chosen("facets") === "on" ? facetPanel(state, dataset, signal) : null;
  if (side.firstElementChild !== wanted) side.replaceChildren(...[wanted].filter(Boolean));
  const parts = [toolbar(state, dataset), ...told, explorer, foot];
  // What stays is not moved, as it would lose the focus that is in it.
  for (const each of [...view.children]) if (!parts.includes(each)) each.remove();
  parts.forEach((part, n) => { if (view.children[n] !== part) view.insertBefore(part, view.children[n] ?? null); });
}

/** The panel for a state; it goes on counting until the signal ends it. */
function facetPanel(state, dataset, signal) {
  if (dataset.install) {
    panel.replaceChildren(h("p", { class: "muted" }, "Counts need DuckDB: ", h("code", {}, dataset.install)));
    return panel;
  }
  if (last) draw(state, last[1]); // with the old counts, so that a click adds to what is chosen now
  else panel.replaceChildren(h("p", { class: "muted" }, "Counting…"));
  follow("facets", { ...orderPart(state), sort: null }, signal, (counts) => {
    if (counts.facets) draw(state, counts);
    else if (!last) panel.replaceChildren(built(counts));
  }).catch(() => { if (!last) panel.replaceChildren(h("p", { class: "muted" }, "Nothing is counted for this condition.")); });
  return panel;
}

function draw(state, counts) {
  last = [state, counts];
  clearTimeout(waiting);
  if (panel.querySelector(".dragged, :active")) { // a button that is replaced while it is pressed loses the click
    waiting = setTimeout(() => draw(...last), 50);
    return;
  }
  const focus = panel.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  const left = leftOut(counts);
  panel.replaceChildren(...[
    counts.finished ? null : built(counts),
    left ? h("p", { class: "muted" }, left) : null,
    chips(state, counts.fields),
    ...counts.facets.map((facet) => facetOf(state, facet)),
    counts.by_shard.counts.length > 1 ? shards(state, counts) : null,
  ].filter(Boolean));
  if (focus) panel.querySelector(`[data-name="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

/** What is picked of a column. */
function picked(state, parameter) {
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
  const choose = (bounds) => go({ ...filterable(state), [parameter]: bounds ? `${bounds[0] ? edges[bounds[0]] : ""}..${bounds[1] < bins ? edges[bounds[1]] : ""}` : null });
  return [histogram({
    all: all.counts, now: now.counts, chosen: range ? [place(from, 0), Math.max(place(to, bins), place(from, 0) + 1)] : null,
    label: `Range of ${name}`, name: `${parameter} range`, onchoose: choose,
    titles: all.counts.map((_, bin) => `${number(Number(edges[bin]))} to ${number(Number(edges[bin + 1]))}`),
  }), ends(least, most)];
}

function shards(state, { by_shard: { step, counts }, by_shard_now: { counts: now }, num_shards: total }) {
  const [from, to = from] = (state.shard ?? "").split("-").map(Number);
  const range = state.shard ? [Math.floor(from / step), Math.floor(to / step) + 1] : null;
  const choose = (bars) => go({ ...filterable(state), shard: bars ? `${bars[0] * step}-${Math.min(bars[1] * step, total) - 1}` : null });
  return h("section", {}, h("header", {}, h("h2", {}, "shard"), range ? button("clear", () => choose(null), { class: "plain", "aria-label": "Clear the choice of shards" }) : null),
    histogram({ all: counts, now, chosen: range, label: "Range of shards", name: "shard range", onchoose: choose,
      titles: counts.map((_, bar) => `shard ${number(bar * step)}${step > 1 ? ` to ${number(bar * step + step - 1)}` : ""}`) }),
    ends(0, total - 1));
}

function ends(least, most) {
  return h("p", { class: "ends" }, h("span", {}, number(least)), h("span", {}, number(most)));
}

// What is looked for, how far the catalogue is, what was found, and how to take it along.

const LOOKED_FOR = { marks: "Marked samples", inside: "Inside an outline of the map", near: "Near-duplicates", far: "Outliers", q: "Keys that contain " };

/** What chooses samples beside conditions; near-duplicates say it themselves, but on the map. */
export function searched(state) {
  const onMap = state.look === "map";
  return Object.keys(LOOKED_FOR).filter((name) => state[name] && (onMap || !["near", "far"].includes(name))).map((name) => h("div", { class: "progress" },
    h("h2", { class: "searched" }, LOOKED_FOR[name], name === "q" ? h("code", {}, state.q) : null),
    onMap && name !== "q" ? h("a", { href: link({ ...gridPart(state), look: null }) }, "Show them") : null,
    name === "inside" && !onMap ? [h("a", { href: link({ ...gridPart(state), inside: null, look: "map" }) }, "Back to the map"), saving(state)] : null,
    h("a", { class: "button", href: link({ ...gridPart(state), [name]: null }), "aria-label": name === "q" ? "Clear the search" : "Show all samples" }, "✕")));
}

/** What is picked of columns, each with a link that takes it back. */
function picks(state) {
  const words = { missing: "without ", broken: "unreadable " };
  return ["missing", "broken", ...picksOf(state)].filter((name) => state[name]).map((name) => h("a", { class: "chip", href: link({ ...filterable(state), [name]: null }), "aria-label": `Clear the choice of ${name}` },
    `${words[name] ?? `${name}: `}${state[name].split(",").map((each) => unescaped(each)).join(", ")} ✕`));
}

function unescaped(text) {
  return text === "%" ? "“”" : text.replaceAll(/%(25|2C|2E|6E)/gi, (each) => decodeURIComponent(each));
}

/** What is picked and found, how far that is, and what can be done with it. */
export function filterProgress(page, state) {
  const filtering = page.filtering;
  const chosen = picks(state);
  const told = [];
  if (filtering?.finished) told.push(`${counted(filtering.found, "sample")} found`, leftOut(filtering));
  if (filtering?.full) told.push("more than are kept; narrow the condition");
  if (!filtering && !chosen.length && !page.copies) return [];
  return [h("div", { class: "progress" },
    filtering && !filtering.finished ? built(filtering) : h("span", {}, told.filter(Boolean).join(" · ")),
    chosen,
    filtering?.finished && filtering.found && !filtering.full ? saving(state) : null,
    page.copies && page.total ? copying(page.copies) : null)];
}

/** Code that gives what is shown: for Python, as SQL, and as a command. */
function copying(copies) {
  return h("details", { class: "copies" }, h("summary", {}, "Copy as"),
    h("dl", {}, copies.map(([name, text]) => [h("dt", {}, name), h("dd", {}, h("code", {}, text), button("Copy", async (event) => {
      const pressed = event.currentTarget;
      await navigator.clipboard.writeText(text).catch(() => getSelection().selectAllChildren(pressed.previousSibling));
      pressed.textContent = "Copied";
    }, { "aria-label": `Copy as ${name}` }))])));
}

/** A link that saves the samples found as a document, which every command takes in place of a spec. */
export function saving(state) {
  return h("a", { class: "button", href: selection(orderPart(state)), download: "" }, "Save as a selection");
}

// Samples counted by a column, or by two: bars that lead to the samples.

const COLOURED = 10; // values of the second column that have a colour of their own

/** Show how many samples each value of a column has. */
export async function showCount({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "groups" });
  found.replaceChildren(...searched(state), form(state), place);
  explore(view, state, dataset, signal);
  shown("Count");
  await follow("groups", { ...orderPart(state), sort: null, by: state.by, across: state.across }, signal,
    (counts) => place.replaceChildren(...(counts.groups ? bars(counts, state) : [built(counts)])))
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

function bars({ parameters: [by, across], groups, total, num_groups: all, hint, ...rest }, state) {
  const rows = [...Map.groupBy(groups, ([[value]]) => value).values()];
  const sum = (row) => row.reduce((count, group) => count + group.at(-1), 0);
  const parts = across ? [...Map.groupBy(groups, ([, [value]]) => value).values()].sort((a, b) => sum(b) - sum(a)).slice(0, COLOURED) : [];
  const codes = new Map(parts.map(([[, [value]]], code) => [value, code]));
  const codeOf = ([, [value]]) => codes.get(value) ?? Infinity; // of a colour, which all others share
  const top = Math.max(...rows.map(sum), 1);
  const to = (value, other) => link({ ...filterable(state), look: null, by: null, across: null, [by]: value, ...(across && other !== undefined ? { [across]: other } : {}) });
  const left = leftOut(rest);
  return [
    h("p", { class: "muted" }, [`${counted(total, "sample")} in ${counted(all, "group")}`, hint, left].filter(Boolean).join(" · ")),
    across ? h("ul", { class: "legend" }, parts.map(([[, [, name]]], code) => h("li", {}, swatch(code), name))) : null,
    h("ul", { class: "bars" }, rows.map((row) => {
      const [[value, label]] = row[0];
      let x = 0;
      const drawn = row.sort((a, b) => (across ? codeOf(a) - codeOf(b) : 0)).map((group) => {
        const count = group.at(-1);
        const [other, name] = across ? group[1] : [];
        const rect = svg("rect", { x, y: 0, width: Math.max((100 * count) / top, 0.2), height: 10, ...(across ? { fill: wordColour(codeOf(group)) } : {}) }, svg("title", {}, across ? `${name}: ${number(count)}` : number(count)));
        x += (100 * count) / top;
        return across ? svg("a", { href: to(value, other), "aria-label": `${label}, ${name}: ${number(count)}`, tabindex: -1 }, rect) : rect;
      });
      const meter = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", ...(across ? {} : { "aria-hidden": "true" }) }, drawn);
      const on = picked(state, by).includes(value);
      return h("li", { class: on ? "picked" : null }, h("a", { href: to(value) }, h("span", { class: "name" }, label), across ? null : meter, h("span", { class: "count" }, number(sum(row)))), across ? meter : null);
    })),
  ].filter(Boolean);
}
