// Near-duplicates and outliers: what was compared, how alike is alike enough, and the marks of copies.

import { saving } from "./facets.js";
import { mark } from "./marks.js";
import { filterable, go, link } from "./state.js";
import { button, counted, h, number } from "./ui.js";

const USUAL = { near: "1", far: "100" };
const STEPS = 100; // of the slider, the finer the nearer to 1
const atStep = (step) => (step >= STEPS ? 1 : Number((1 - 0.5 * 10 ** (-step / 25)).toPrecision(4)));
const stepOf = (value) => (value >= 1 ? STEPS : Math.min(Math.max(Math.round(25 * Math.log10(0.5 / (1 - value))), 0), STEPS));

let kept = { key: null, bar: null };

/** Links from the map to what is alike, and to what lies alone. */
export function singledLinks(state, field) {
  const to = (kind) => link({ ...filterable(state), look: null, near: null, far: null, [kind]: `${field},${USUAL[kind]}` });
  return h("div", { class: "singled-links" }, h("a", { class: "button", href: to("near") }, "Near-duplicates"), h("a", { class: "button", href: to("far") }, "Outliers"));
}

/** What is said and chosen above a page of near-duplicates or outliers. */
export function singledOut(page, state, dataset) {
  const kind = state.near ? "near" : state.far ? "far" : null;
  if (!kind || !page.comparing) return [];
  const [, field, least] = state[kind].match(/^(.*),([^,]*)$/) ?? [null, state[kind], USUAL[kind]];
  const { finished, shards_done: done, num_shards: total, about, copies } = page.comparing;
  const other = kind === "near" ? "far" : "near";
  const now = { ...filterable(state), near: null, far: null };
  // What is chosen with stays in the document, with the focus that it may have.
  const key = `${kind} ${field} ${about?.width}`;
  if (kept.key !== key) kept = { key, bar: bound(kind, field, about?.width) };
  kept.bar.show(least, now);
  return [h("div", { class: "progress singled-out" },
    h("h2", { class: "searched" }, kind === "near" ? "Near-duplicates by " : "Outliers by ", h("code", {}, field)),
    finished ? null : [h("progress", { max: total, value: done, "aria-label": "Comparing vectors" }), h("span", {}, "Comparing vectors")],
    kept.bar.element,
    copies?.length ? markCopies(copies, dataset.num_samples) : null,
    finished && about.num_found && !page.filtering ? saving(state) : null,
    h("a", { href: link({ ...now, look: "map", [kind]: state[kind] }) }, "On the map"),
    h("a", { href: link({ ...now, [other]: `${field},${USUAL[other]}` }) }, kind === "near" ? "Outliers" : "Near-duplicates"),
    h("a", { class: "button", href: link(now), "aria-label": "Show all samples" }, "✕"),
    finished ? h("p", { class: "singled-facts" }, factsOf(about, dataset)) : null)];
}

/** A button that marks copies; where they are more than a few of all samples, it asks once more. */
function markCopies(copies, total) {
  let asked = 20 * copies.length <= total;
  const element = button("Mark all but the first of each group", () => {
    if (asked) mark(copies, true);
    else element.textContent = `Mark ${number(copies.length)} of ${counted(total, "sample")}?`;
    asked = true;
  });
  return element;
}

/** 4 samples; 4 of 13 samples, where a filter, a shard or a bound leaves some. */
function of(shown, all, noun) {
  return shown === all ? counted(all, noun) : `${number(shown)} of ${counted(all, noun)}`;
}

function factsOf({ kind, num_groups: groups, num_found: found, num_shown: shown, groups_shown: groupsShown, compared, num_wanted: wanted, neighbours, width, left_out: left }, dataset) {
  const measure = kind === "near"
    ? `${of(shown, found, "sample")} in ${of(groupsShown, groups, "group")}`
    : `${of(shown, found, "sample")}, by the distance to the ${neighbours > 1 ? `${neighbours}th nearest` : "nearest"} other${width > 2 ? ", of vectors of length 1" : ""}`;
  const part = wanted < dataset.num_samples ? `, at even distances, of ${number(dataset.num_samples)}; the others are not searched` : "";
  return [measure, `${counted(compared, "sample")} compared${part}`, ...Object.entries(left).map(([why, count]) => `${counted(count, "sample")} ${why} left out`)].join(" · ");
}

/** The least likeness of near-duplicates, or how many outliers are shown. */
function bound(kind, field, width) {
  const name = width === 2 ? "Closeness" : "Cosine";
  const value = h("output", {});
  const input = kind === "near" ? h("input", { type: "range", min: 0, max: STEPS, "aria-label": `${name} at least` })
    : h("input", { type: "number", min: 1, max: 10000, "aria-label": "How many" });
  let now = {};
  const chosen = () => (kind === "near" ? atStep(Number(input.value)) : input.value);
  const tell = (text) => { if (kind === "near") input.setAttribute("aria-valuetext", value.textContent = text); };
  input.addEventListener("input", () => tell(chosen()));
  input.addEventListener("change", () => go({ ...now, [kind]: `${field},${chosen()}` }, { replace: true }));
  return {
    element: h("label", {}, kind === "near" ? `${name} at least ` : "The farthest ", input, value),
    show(text, state) { now = state; tell(text); input.value = kind === "near" ? stepOf(Number(text)) : text; },
  };
}

/** Why a tile is shown: how near its nearest neighbour is, or how far its last one. */
export function noteOf({ singled }, state) {
  if (!singled) return null;
  const [, value, other] = singled;
  const text = String(Number(value.toFixed(5))); // near to 1, the last digits tell
  return h("span", { class: "singled", title: state.near ? `${text} like sample ${number(other)}` : `${text} from its neighbours, nearest sample ${number(other)}` }, text);
}
