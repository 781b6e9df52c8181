// Completion of a filter while it is typed: fields, operators, names of classes, frequent values.
// A combobox with a list, as ARIA has it: the focus stays in the box, which names the chosen entry.

import { ask, poll } from "./api.js";
import { fieldName, isWritable, written } from "./clauses.js";
import { h } from "./dom.js";
import { number } from "./format.js";

const MOST = 50; // entries of the list
const QUOTED = /'[^']*(?:'|$)|"[^"]*(?:"|$)/.source;
const STEPS = `(?:[^\\s(),'"=!<>]|(?<=[.:])(?:${QUOTED}))`;
const TOKEN = new RegExp(`(?:${QUOTED})(?::${STEPS}*)?|[(),]|[=!<>]=?|${STEPS}+`, "g");
const EQUAL = ["==", "!=", "in", "not in"];
const ORDER = [">=", "<", "<=", ">"];
const OPERATORS = { values: [...EQUAL, "contains"], numbers: [...ORDER, ...EQUAL] };

let known = { fields: [], columns: [], finished: false };
let asking = null;

/** Ask the server for the words of filters, and call a function whenever there are more. */
function learn(then) {
  if (known.finished || asking) return;
  asking = poll(async () => {
    known = await ask("words");
    then();
    return known.finished;
  }, new AbortController().signal).catch(() => {}).finally(() => { asking = null; });
}

/** What may come at the end of the beginning of a filter, and what of it is typed already. */
export function expectedAfter(before) {
  const found = [...before.matchAll(TOKEN)];
  const last = found.at(-1);
  const isTyped = last && last.index + last[0].length === before.length && !/^[(),]$/.test(last[0]);
  const typed = isTyped ? found.pop()[0] : "";
  let [kind, column, operator, inList, depth] = ["field", "", "", false, 0];
  for (const [word] of found) {
    if (kind === "open") [kind, inList] = ["value", true];
    else if (word === "(") depth += 1;
    else if (word === ")") [kind, inList, depth] = ["joiner", false, inList ? depth : depth - 1];
    else if (kind === "field") { if (word !== "not") [kind, column] = ["operator", word]; }
    else if (kind === "operator" || kind === "in") [kind, operator] = [word === "in" ? "open" : word === "not" ? "in" : "value", word];
    else kind = { value: "joiner", joiner: inList ? "value" : "field" }[kind];
  }
  return { kind, column, operator, typed, inList, depth };
}

/** Where the word ends in which a place of a filter lies; the place itself if it is in none. */
function endOfWord(value, place) {
  const found = [...value.matchAll(TOKEN)];
  // A quote that is just begun has no end of its own: what lies behind it stays.
  const isOpen = (value.match(/'[^']*'|"[^"]*"|['"]/g) ?? []).at(-1)?.length === 1;
  const inside = found.find(({ index, 0: word }) => index < place && place < index + word.length);
  if (!inside || /^[=!<>]/.test(inside[0])) return place;
  return isOpen && /['"]/.test(inside[0]) ? place + value.slice(place).match(/^[^\s(),'"=!<>]*/)[0].length : inside.index + inside[0].length;
}

/** Entries that fit: [what is written, what is shown beside it, what is compared with the typed]. */
function entriesFor({ kind, column, operator, typed, inList, depth }) {
  const facet = known.columns.find((each) => each.name === column);
  const plain = (words) => words.map((word) => [word, "", word]);
  const all = {
    field: () => plain([...new Set([...known.columns.map((each) => each.name), ...known.fields.map(fieldName), "key", "not"])]),
    operator: () => plain(facet ? OPERATORS[facet.kind] : column === "key" ? [...EQUAL, "contains"] : [...EQUAL, ...ORDER, "contains"]),
    in: () => plain(["in"]),
    open: () => plain(["("]),
    value: () => [
      ...(facet?.kind === "values" ? facet.values : [])
        .map((entry) => [written(entry, facet), nameBeside(entry, facet), String(entry[2] ?? entry[0])]).filter(([text]) => isWritable(text)),
      ...(["==", "!="].includes(operator) && column !== "key" ? plain(["null"]) : [])],
    joiner: () => plain(inList ? [",", ")"] : ["and", "or", ...(depth > 0 ? [")"] : [])]),
  }[kind]();
  const wanted = typed.replace(/^['"]/, "").toLowerCase();
  const fits = ([, , text]) => (kind === "field" || kind === "value" ? text.toLowerCase().includes(wanted) : text.startsWith(typed));
  const begins = ([, , text]) => text.toLowerCase().replace(/^['"]?\./, "").startsWith(wanted.replace(/^\./, ""));
  return all.filter(fits).filter(([text]) => text !== typed).sort((a, b) => begins(b) - begins(a)).slice(0, MOST);
}

/** How often a value occurs, after its name if it is written as a number. */
function nameBeside([value, count, name], { by_number: unclear = [] }) {
  return [unclear.includes(value) ? name : "", count ? number(count) : ""].filter(Boolean).join(" · ");
}

/** A box with what completes it. */
export function completed(input) {
  const list = h("ul", { id: "filter-words", class: "completions", role: "listbox", "aria-label": "What can come here", hidden: true, onpointerdown: choose });
  let entries = [];
  let active = -1;
  let wanted = false; // until Escape or another place takes the list away
  for (const [name, value] of Object.entries({ role: "combobox", autocomplete: "off", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false" })) input.setAttribute(name, value);
  input.addEventListener("input", open);
  input.addEventListener("click", () => { if (list.hidden) open(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  function open() {
    wanted = true;
    learn(() => { if (wanted && active < 0) open(); });
    const { selectionStart: end, selectionEnd } = input;
    entries = end === selectionEnd ? entriesFor(expectedAfter(input.value.slice(0, end))) : [];
    list.replaceChildren(...entries.map(([text, beside], place) => h("li", { id: `filter-word-${place}`, role: "option", "aria-selected": "false", "data-entry": place },
      h("span", { class: "name" }, text), beside ? h("span", { class: "count" }, beside) : null)));
    list.hidden = entries.length === 0;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    select(-1);
  }

  function close() {
    wanted = false;
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
    if (key === "ArrowDown" && list.hidden) open();
    else if (list.hidden) return false;
    else if (key === "ArrowDown") select((active + 1) % entries.length);
    else if (key === "ArrowUp") select((active < 0 ? entries.length : active) - 1);
    else if (key === "Enter" && active >= 0) accept(active);
    else if (key === "Escape") close();
    else return false;
    return true;
  }

  function choose(event) {
    event.preventDefault(); // the focus stays in the box
    const entry = event.target.closest("[data-entry]");
    if (entry && event.button === 0) accept(Number(entry.dataset.entry));
  }

  /** Write an entry in place of the word at the cursor, and offer what comes next. */
  function accept(place) {
    const [text] = entries[place];
    const { value, selectionStart: end } = input;
    const { typed } = expectedAfter(value.slice(0, end));
    const rest = value.slice(endOfWord(value, end)).trimStart();
    const before = value.slice(0, end - typed.length);
    const begun = `${/^[,)]$/.test(text) ? before.trimEnd() : before}${text}${text === "(" ? "" : " "}`;
    input.value = begun + rest;
    input.setSelectionRange(begun.length, begun.length);
    open();
  }

  return h("div", { class: "completed" }, input, list);
}
