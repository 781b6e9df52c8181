// The order, the condition, and the ways to look at the samples.

import { button, h, isOn, switchOn } from "./ui.js";
import { current, filterable, follow, go, gridPart, link } from "./urls.js";

// The orders, and which numbers each has, with what they are called and what they are when not given.
const SEED = ["seed", "seed", 0];
const EPOCH = [["epoch", "epoch", 0], ["rank", "rank", 0], ["replicas", "of ranks", 1], SEED];
const ORDERS = {
  "": ["As stored", []],
  shuffled: ["Shuffled", [SEED]],
  shards: ["Epoch of DistributedShardSampler", [...EPOCH, ["interleave", "interleave", 16], ["lanes", "nodes", 1]]],
  chunks: ["Epoch of DistributedChunkedSampler", [...EPOCH, ["chunksize", "chunk size", 1000000]]],
};

let kept = { key: null, bar: null };
let known = { usual: "grid", vectors: [] }; // as the server says of the dataset

/** The toolbar for a state; the one that is there already, with what is being typed into it. */
export function toolbar(state, dataset) {
  const key = link(gridPart(state));
  if (kept.key !== key) {
    const before = kept.bar;
    kept = { key, bar: make(state, dataset) };
    before?.replaceWith(kept.bar); // now, since what is typed until the answer comes would be lost
  }
  showLooks(state);
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
  const facets = button("Facets", () => {
    switchOn("facets", !isOn("facets"));
    facets.setAttribute("aria-pressed", String(isOn("facets")));
    go(current(), { replace: true });
  }, { "aria-pressed": String(isOn("facets")), "data-key": "s", title: "Values and their counts (s)" });
  return h("div", { class: "toolbar" }, facets, orderForm(state), conditionForm(state, dataset), looks, sizes);
}

/** The order, and its numbers, which are taken together: a rank is one of so many. */
function orderForm(state) {
  const kind = Object.hasOwn(ORDERS, state.order) ? state.order : "";
  const select = h("select", {
    "aria-label": "Order",
    onchange: (event) => go({ ...filterable(state), order: event.target.value }),
  }, Object.entries(ORDERS).map(([value, [text]]) => h("option", { value, selected: value === kind }, text)));
  const numbers = ORDERS[kind][1];
  const send = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    for (const [name, , usual] of numbers) if (given[name] === String(usual)) given[name] = null;
    go({ ...gridPart(state), ...given });
  };
  const fields = numbers.map(([name, label, usual]) => h("label", {}, label,
    h("input", { type: "number", name, value: state[name] ?? usual, step: 1, min: name === "seed" || name === "epoch" ? null : name === "rank" ? 0 : 1 })));
  return h("div", { class: "order" }, select, numbers.length
    ? h("details", { class: "numbers" }, h("summary", {}, numbers.slice(0, 3).map(([name, label, usual]) => `${label} ${state[name] ?? usual}`).join(" ")),
        h("form", { onsubmit: send }, fields, button("Show", null, { type: "submit" }))) : null);
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

// The ways to look at samples: tiles of any size, a list, a table, counts, a map.

const LOOKS = {
  grid: ["Tiles", "Tiles of pictures"], list: ["List", "List of pictures, sounds, texts and values"], table: ["Table", "Table of columns"],
  count: ["Count", "Samples counted by a column"], map: ["Map", "Map of a field of vectors"],
};
const COUNTS = { s: 120, m: 60, l: 24, list: 24, table: 60 }; // samples on a page

const SIZES = ["s", "m", "l"];

/** Look in another way at the page that one is on. */
const lookAs = (look, size) => go({ ...gridPart(current()), at: current().at, look: look === known.usual ? null : look, size }, { replace: true });
const looks = h("div", { class: "looks", role: "group", "aria-label": "Ways to look at the samples" }, Object.entries(LOOKS).map(([name, [text, label]]) => (
  button(text, () => lookAs(name, null), { "data-look": name, title: label, "aria-label": label }))));
const slider = h("input", { type: "range", min: 0, max: 2, "aria-label": "Size of the tiles", onchange: () => lookAs("grid", slider.value === "1" ? null : SIZES[slider.value]) });
const sizes = h("label", { class: "sizes" }, slider);

/** Learn from the server which looks fit the dataset. */
export function learn(looks) {
  known = looks;
}

/** The look that a state names; null for that which fits the dataset. */
export function named(state) {
  return state.look ?? (state.size ? "grid" : null);
}

export function lookOf(state) {
  return named(state) ?? known.usual;
}

/** How many samples a page of this look has. */
export function countOf(state, look = lookOf(state)) {
  return COUNTS[look === "grid" ? state.size ?? "m" : look] ?? COUNTS.m;
}

/** Show which looks there are, and which one it is. */
function showLooks(state) {
  const now = lookOf(state);
  sizes.hidden = now !== "grid";
  slider.value = SIZES.indexOf(state.size ?? "m");
  slider.setAttribute("aria-valuetext", { s: "small", l: "large" }[state.size] ?? "medium");
  for (const each of looks.children) {
    each.hidden = each.dataset.look === "map" && now !== "map" && !known.vectors.length;
    each.setAttribute("aria-pressed", String(each.dataset.look === now));
  }
}

// Completion while one types: columns, operators, frequent values, as the server offers them.
// A combobox with a list, as ARIA has it: the focus stays in the box, which names the chosen entry.

let boxes = 0;

/** A box with what completes it: of a condition, or of an order, which has columns alone. */
export function completed(input, kind = "condition") {
  const name = `words-${boxes += 1}`;
  const list = h("ul", { id: name, class: "completions", role: "listbox", "aria-label": "What can come here", hidden: true, onpointerdown: choose });
  let found = { entries: [], replaces: 0, end: 0 }; // `end` is where the cursor was
  let active = -1;
  let asked = null; // the question that waits for its answer
  for (const [attribute, value] of Object.entries({ role: "combobox", autocomplete: "off", "aria-autocomplete": "list", "aria-controls": name, "aria-expanded": "false" })) input.setAttribute(attribute, value);
  input.addEventListener("input", () => { active = -1; open(); });
  input.addEventListener("click", () => { if (list.hidden) open(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  async function open() {
    asked?.abort();
    const mine = asked = new AbortController();
    const { selectionStart: end, selectionEnd } = input;
    if (end !== selectionEnd) return close();
    const answer = await follow("words", { before: input.value.slice(0, end), kind }, mine.signal).catch(() => null);
    if (asked !== mine || answer === null) return undefined;
    const chosen = found.entries[active]?.text; // with the arrows, while the answer was on its way
    found = { ...answer, end };
    list.replaceChildren(...found.entries.map(({ text, beside }, place) => h("li", { id: `${name}-${place}`, role: "option", "aria-selected": "false", "data-entry": place },
      h("span", { class: "name" }, text), beside ? h("span", { class: "count" }, beside) : null)));
    list.hidden = found.entries.length === 0;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    return select(found.entries.findIndex(({ text }) => text === chosen));
  }

  function close() {
    asked?.abort();
    asked = null;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    select(-1);
  }

  function select(place) {
    active = place;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === place)));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    return list.children[place].scrollIntoView({ block: "nearest" });
  }

  /** Do what a key means here; returns whether it means something. */
  function press(key) {
    const count = found.entries.length;
    if (key === "ArrowDown" && list.hidden) open();
    else if (key === "Escape" && asked) close();
    else if (list.hidden) return false;
    else if (key === "ArrowDown") select((active + 1) % count);
    else if (key === "ArrowUp") select((active < 0 ? count : active) - 1);
    else if (key === "Enter" && active >= 0) accept(active);
    else return false;
    return true;
  }

  function choose(event) {
    event.preventDefault(); // the focus stays in the box
    const entry = event.target.closest("[data-entry]");
    if (entry && event.button === 0) accept(Number(entry.dataset.entry));
  }

  /** Write an entry in place of the word before the cursor, and offer what comes next. */
  function accept(place) {
    const { text } = found.entries[place];
    const { value, selectionStart: end } = input;
    // What was typed since the offers were asked for belongs to the same word.
    const begun = `${value.slice(0, found.end - found.replaces)}${text}${/[(%]$/.test(text) ? "" : " "}`;
    input.value = begun + value.slice(end).trimStart();
    input.setSelectionRange(begun.length, begun.length);
    active = -1;
    open();
  }

  return h("div", { class: "completed" }, input, list);
}
