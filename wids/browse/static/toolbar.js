// The order, the filter, and how large the tiles are.

import { completed } from "./completion.js";
import { button, h } from "./dom.js";
import { fillLooks } from "./looks.js";
import { choose, chosen } from "./settings.js";
import { filterable, go, gridPart, link } from "./state.js";

// Which numbers an order has, with what they are called and what they are when not given.
const NUMBERS = {
  "": [],
  shuffled: [["seed", "seed", 0]],
  shards: [["epoch", "epoch", 0], ["rank", "rank", 0], ["replicas", "of ranks", 1], ["seed", "seed", 0],
    ["interleave", "interleave", 16], ["lanes", "nodes", 1]],
  chunks: [["epoch", "epoch", 0], ["rank", "rank", 0], ["replicas", "of ranks", 1], ["seed", "seed", 0],
    ["chunksize", "chunk size", 1000000]],
};
const ORDERS = [
  ["", "As stored"],
  ["shuffled", "Shuffled"],
  ["shards", "Epoch of DistributedShardSampler"],
  ["chunks", "Epoch of DistributedChunkedSampler"],
];

const looks = h("div", { class: "looks", role: "group", "aria-label": "Ways to look at the samples" });
let kept = { key: null, bar: null };

/** The toolbar for a state; the one that is there already, with what is being typed into it. */
export function toolbar(state) {
  const key = link(gridPart(state));
  if (kept.key !== key) kept = { key, bar: make(state) };
  // The way to another look keeps the page that one is on.
  kept.at = state.at;
  fillLooks(looks, state);
  return kept.bar;
}

function make(state) {
  return h("div", { class: "toolbar" }, facetSwitch(state), orderForm(state), filterForm(state), looks);
}

function facetSwitch(state) {
  return button("Facets", (event) => {
    const on = !chosen("facets");
    choose("facets", on);
    event.currentTarget.setAttribute("aria-pressed", String(on));
    go({ ...gridPart(state), at: kept.at }, { replace: true });
  }, { "aria-pressed": String(chosen("facets")), "data-key": "s", title: "Values and their counts (s)" });
}

function orderForm(state) {
  const kind = Object.hasOwn(NUMBERS, state.order) ? state.order : "";
  const select = h("select", {
    "aria-label": "Order",
    onchange: (event) => go({ ...filterable(state), sort: null, seed: state.seed, order: event.target.value }),
  }, ORDERS.map(([value, text]) => h("option", { value, selected: value === kind }, text)));
  const fields = NUMBERS[kind].map(([name, label, usual]) => h("label", {}, label,
    h("input", {
      type: "number", name, value: state[name] ?? usual, step: 1,
      min: name === "seed" || name === "epoch" ? null : name === "rank" ? 0 : 1,
      onchange: (event) => {
        const value = event.target.value;
        go({ ...gridPart(state), [name]: value === String(usual) ? null : value });
      },
    })));
  return h("div", { class: "order" }, select, fields);
}

function filterForm(state) {
  const input = h("input", {
    type: "text", value: state.where ?? "", placeholder: ".cls == 3 or .json:width > 500",
    "aria-label": "Filter", "data-key": "f", spellcheck: "false", autocapitalize: "off",
    maxlength: 1000,
  });
  const clear = state.where
    ? h("a", { class: "button", href: link({ ...gridPart(state), where: null }), "aria-label": "Clear the filter" }, "✕")
    : null;
  return h("form", {
    class: "filter",
    onsubmit: (event) => {
      event.preventDefault();
      input.blur();
      go({ ...filterable(state), where: input.value.trim() });
    },
  }, completed(input), button("Filter", null, { type: "submit" }), clear);
}
