// A filter as clauses joined by "and", of which each facet has its own.

const WORDS = /^(true|false|null|none|inf|nan|infinity|and|or|not|in|contains|key|__key__)$/i; // which mean something else
export const QUOTED = /'(?:[^']|'')*'|"(?:[^"]|"")*"/.source; // the same quote within is written twice
/** A quote within a word, such as it's, which begins no text. */
export const WITHIN = /(?<=[^\s(),'"=!<>.:])(?<!\bcontains)['"]/.source;
const PART = new RegExp(`${QUOTED}|(?:[^\\s()'"]|${WITHIN})+|[()'"]|\\s+`, "g");
const LISTED = new RegExp(`${QUOTED}|[^\\s(),'"]+`, "g");

/** Split a filter into its clauses; one of several alternatives becomes a single clause. */
export function split(where = "") {
  const words = where.match(PART) ?? [];
  const clauses = [""];
  let depth = 0;
  let whole = false;
  let before = "";
  for (const word of words) {
    depth += (word === "(") - (word === ")");
    const joins = depth === 0 && !/[=<>]$|^contains$/.test(before); // else it is a value
    if (joins && word === "or") whole = true;
    if (joins && word === "and") clauses.push("");
    else clauses[clauses.length - 1] += word;
    if (word.trim()) before = word;
  }
  if (whole) return [`(${where.trim()})`];
  return clauses.map((clause) => clause.trim()).filter(Boolean);
}

/** Join clauses to a filter; "" for none. */
export function join(clauses) {
  return clauses.length === 1 ? clauses[0].replace(/^\((.*)\)$/, (all, inner) => (balanced(inner) ? inner : all)) : clauses.join(" and ");
}

function balanced(text) {
  let depth = 0;
  for (const letter of text) {
    depth += (letter === "(") - (letter === ")");
    if (depth < 0) return false;
  }
  return depth === 0;
}

/** Whether a clause is one that the facet of a column has written. */
function isOf(clause, column) {
  return clause.startsWith(`${column} `) && /^(==?|in|>=|<=|<|>)[\s(]/.test(clause.slice(column.length + 1));
}

/** The filter without the clauses of a column, and with those given. */
export function withClauses(where, column, own) {
  return join([...split(where).filter((clause) => !isOf(clause, column)), ...own]);
}

/** The values of a column that the filter asks for, as they are written. */
export function chosenValues(where, column) {
  const clause = split(where).find((each) => isOf(each, column));
  const text = clause?.slice(column.length + 1) ?? "";
  if (text.startsWith("=")) return [text.replace(/^==?/, "").trim()];
  if (!text.startsWith("in")) return [];
  return text.slice(2).match(LISTED) ?? [];
}

/** The clause for some values of a column: none, one or several. */
export function clauseOf(column, values) {
  if (!values.length) return [];
  return [values.length === 1 ? `${column} == ${values[0]}` : `${column} in (${values.join(", ")})`];
}

/** The range that the filter asks for, as [from, to), with null for no bound. */
export function chosenRange(where, column) {
  const bounds = [null, null];
  for (const clause of split(where)) {
    if (!isOf(clause, column)) continue;
    const [, sign, value] = clause.slice(column.length + 1).match(/^(>=|<)\s+(\S+)$/) ?? [];
    if (sign) bounds[sign === "<" ? 1 : 0] = Number(value);
  }
  return bounds;
}

/** The clauses for a range. */
export function rangeClauses(column, [from, to]) {
  return [from === null ? null : `${column} >= ${from}`, to === null ? null : `${column} < ${to}`].filter(Boolean);
}

/** A value as a filter writes it: a text that is a number in quotes, else it equals other texts, too. */
export function quoted(value) {
  const text = String(value);
  if (typeof value !== "string" || (/^[A-Za-z_][\w./-]*$/.test(text) && !WORDS.test(text))) return text;
  return inQuotes(text);
}

function inQuotes(text) {
  return text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "''")}'`;
}

/** A value of a facet as a filter writes it: a class by its name, if that means this class alone. */
export function written([value, , name], { by_number: unclear = [] } = {}) {
  return quoted(unclear.includes(value) ? value : name ?? value);
}

/** Whether the box, which is one line, can hold a value. */
export function isWritable(text) {
  return !/[\r\n]/.test(text);
}

/** All that a filter may write for a value of a facet. */
export function formsOf(entry, facet) {
  const [value, , name] = entry;
  const texts = [value, name].filter((each) => typeof each === "string");
  const inEither = texts.flatMap((text) => ["'", '"'].map((quote) => quote + text.replaceAll(quote, quote + quote) + quote));
  return [written(entry, facet), String(value), ...inEither, ...(Number.isNaN(Number(name ?? "0")) ? [name] : [])];
}

/** A field as a filter writes it. */
export function fieldName(name) {
  return /[\s()=!<>'"]/.test(name) ? inQuotes(name) : name;
}
