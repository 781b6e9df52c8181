// What can come next in a filter that is being typed: its words so far, and the entries that fit.

import { ask, poll } from "./api.js";
import { QUOTED, WITHIN, fieldName, isWritable, written } from "./clauses.js";
import { number } from "./format.js";

const MOST = 50; // entries of the list
const BEGUN = /'(?:[^']|'')*(?:'|$)|"(?:[^"]|"")*(?:"|$)/.source; // perhaps without its end
const STEPS = `(?:[^\\s(),'"=!<>]|(?<=[.:])(?:${BEGUN})|${WITHIN})`;
const TOKEN = new RegExp(`(?:${BEGUN})(?::${STEPS}*)?|[(),]|[=!<>]=?|${STEPS}+`, "g");
const EQUAL = ["==", "!=", "in", "not in"];
const ORDER = [">=", "<", "<=", ">"];
const OPERATORS = { values: [...EQUAL, "contains"], numbers: [...ORDER, ...EQUAL] };

let known = { fields: [], columns: [], finished: false };
let asking = null;

/** Ask the server for the words of filters, and call a function whenever there are more. */
export function learn(then) {
  if (known.finished || asking) return;
  asking = poll(async () => {
    known = await ask("words");
    then();
    return known.finished;
  }, new AbortController().signal).catch(() => {}).finally(() => { asking = null; });
}

/**
 * What may come at the end of the beginning of a filter, and what of it is typed already; `begun`
 * is what is typed since the last field began, which may be a name with a blank.
 */
export function expectedAfter(before) {
  const found = [...before.matchAll(TOKEN)];
  const last = found.at(-1);
  const isTyped = last && last.index + last[0].length === before.length && !/^[(),]$/.test(last[0]);
  const typed = isTyped ? found.pop()[0] : "";
  let [kind, column, operator, inList, depth, begun] = ["field", "", "", false, 0, ""];
  for (const { 0: word, index } of found) {
    if (kind === "open") [kind, inList] = ["value", true];
    else if (word === "(") depth += 1;
    else if (word === ")") [kind, inList, depth] = ["joiner", false, inList ? depth : depth - 1];
    else if (kind === "field") { if (word !== "not") [kind, column, begun] = ["operator", word, before.slice(index)]; }
    else if (kind === "operator" || kind === "in") [kind, operator] = [word === "in" ? "open" : word === "not" ? "in" : "value", word];
    else kind = { value: "joiner", joiner: inList ? "value" : "field" }[kind];
  }
  return { kind, column, operator, typed, inList, depth, begun };
}

/** Where the word ends in which a place of a filter lies; the place itself if it is in none. */
export function endOfWord(value, place) {
  const found = [...value.matchAll(TOKEN)];
  // A quote that is just begun has no end of its own: what lies behind it stays.
  const isOpen = (value.match(new RegExp(`${QUOTED}|['"]`, "g")) ?? []).at(-1)?.length === 1;
  const inside = found.find(({ index, 0: word }) => index < place && place < index + word.length);
  if (!inside || /^[=!<>]/.test(inside[0])) return place;
  return isOpen && /['"]/.test(inside[0]) ? place + value.slice(place).match(/^[^\s(),'"=!<>]*/)[0].length : inside.index + inside[0].length;
}

/**
 * Entries that fit: [what is written, what is shown beside it, what is compared with the typed, what
 * it takes the place of].
 */
export function entriesFor({ kind, column, operator, typed, inList, depth, begun }) {
  const facet = known.columns.find((each) => each.name === column);
  const plain = (words) => words.map((word) => [word, "", word]);
  const all = {
    field: () => plain([...names(), "key", "not"]),
    operator: () => plain(facet ? OPERATORS[facet.kind] : column === "key" ? [...EQUAL, "contains"] : [...EQUAL, ...ORDER, "contains"]),
    in: () => plain(["in"]),
    open: () => plain(["("]),
    value: () => [
      ...(facet?.kind === "values" ? facet.values : [])
        .map((entry) => [written(entry, facet), nameBeside(entry, facet), String(entry[2] ?? entry[0])]).filter(([text]) => isWritable(text)),
      ...(["==", "!="].includes(operator) && column !== "key" ? plain(["null"]) : [])],
    joiner: () => plain(inList ? [",", ")"] : ["and", "or", ...(depth > 0 ? [")"] : [])]),
  }[kind]();
  const quote = typed.match(/^['"]?/)[0];
  const wanted = typed.slice(quote.length).replaceAll(quote + quote || "''", quote || "''").toLowerCase();
  const fits = ([, , text]) => (kind === "field" || kind === "value" ? text.toLowerCase().includes(wanted) : text.startsWith(typed));
  const begins = ([, , text]) => text.toLowerCase().replace(/^['"]?\./, "").startsWith(wanted.replace(/^\./, ""));
  const found = all.filter(fits).filter(([text]) => text !== typed).sort((a, b) => begins(b) - begins(a)).slice(0, MOST);
  return [...withBlanks(begun), ...found].map(([text, beside, , replaced]) => ({ text, beside, replaced: replaced ?? typed }));
}

/** Fields that begin with what looks like a field and more words, as their names have blanks. */
function withBlanks(begun) {
  if (!/\s/.test(begun)) return [];
  const wanted = begun.replaceAll(/['"]/g, "").toLowerCase();
  return names().filter((name) => name.replaceAll(/['"]/g, "").toLowerCase().startsWith(wanted) && !begun.startsWith(name)).map((name) => [name, "", name, begun]);
}

function names() {
  return [...new Set([...known.columns.map((each) => each.name), ...known.fields.map(fieldName)])];
}

/** How often a value occurs, after its name if it is written as a number. */
function nameBeside([value, count, name], { by_number: unclear = [] }) {
  return [unclear.includes(value) ? name : "", count ? number(count) : ""].filter(Boolean).join(" · ");
}
