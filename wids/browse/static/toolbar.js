// The order, the condition, and the ways to look at the samples.

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
export function toolbar(state, dataset) {
  const key = link(gridPart(state));
  if (kept.key !== key) kept = { key, bar: make(state, dataset) };
  // The way to another look keeps the page that one is on.
  kept.at = state.at;
  fillLooks(looks, state);
  return kept.bar;
}

/** Mark the box in which what was wrong is written, and return what is wrong with it. */
export function markWrong(message, state) {
  const name = ["sort", "by", "across"].find((each) => state[each] && message.includes(state[each]) && !message.startsWith(`'${state.where}`)) ?? "where";
  const box = kept.bar.querySelector(`input[name="${name}"]`) ?? document.querySelector(`input[name="${name}"]`);
  box.setAttribute("aria-invalid", "true");
  box.setAttribute("aria-describedby", "wrong");
  return h("p", { id: "wrong", class: "problem", role: "alert" }, message);
}

function make(state, dataset) {
  return h("div", { class: "toolbar" }, facetSwitch(state), orderForm(state), conditionForm(state, dataset), looks);
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
    onchange: (event) => go({ ...filterable(state), order: event.target.value }),
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

/** What samples shall fulfil, and what they are sorted by, both in SQL. */
function conditionForm(state, dataset) {
  const none = Boolean(dataset.install);
  const box = (name, properties) => h("input", { type: "text", name, value: state[name] ?? "", disabled: none, spellcheck: "false", autocapitalize: "off", maxlength: 2000, ...properties });
  const where = box("where", { placeholder: none ? `Conditions: ${dataset.install}` : "where … a condition in SQL", "aria-label": "Condition", "data-key": "f" });
  const sort = box("sort", { placeholder: "order by …", "aria-label": "Order by" });
  const send = (event) => {
    event.preventDefault();
    document.activeElement.blur();
    go({ ...filterable(state), where: where.value.trim(), sort: sort.value.trim() });
  };
  const clear = state.where || state.sort
    ? h("a", { class: "button", href: link({ ...gridPart(state), where: null, sort: null }), "aria-label": "Clear the condition and the order" }, "✕")
    : null;
  return h("form", { class: "filter", onsubmit: send }, completed(where), completed(sort, "order"), button("Find", null, { type: "submit", disabled: none }), clear);
}
