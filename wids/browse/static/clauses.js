// A filter as clauses joined by "and", of which each facet has its own.

/** Split a filter into its clauses; one of several alternatives becomes a single clause. */
export function split(where = "") {
  const words = where.match(/'[^']*'|"[^"]*"|[()]|[^\s()'"]+|\s+/g) ?? [];
  const clauses = [""];
  let depth = 0;
  let whole = false;
  for (const word of words) {
    depth += (word === "(") - (word === ")");
    if (depth === 0 && word === "or") whole = true;
    if (depth === 0 && word === "and") clauses.push("");
    else clauses[clauses.length - 1] += word;
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
  return clause.startsWith(`${column} `) && /^(==|in|>=|<=|<|>)[\s(]/.test(clause.slice(column.length + 1));
}

/** The filter without the clauses of a column, and with those given. */
export function withClauses(where, column, own) {
  return join([...split(where).filter((clause) => !isOf(clause, column)), ...own]);
}

/** The values of a column that the filter asks for, as they are written. */
export function chosenValues(where, column) {
  const clause = split(where).find((each) => isOf(each, column));
  const text = clause?.slice(column.length + 1) ?? "";
  if (text.startsWith("==")) return [text.slice(2).trim()];
  if (!text.startsWith("in")) return [];
  return text.slice(2).match(/'[^']*'|"[^"]*"|[^\s(),'"]+/g) ?? [];
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

/** A value as a filter writes it. */
export function quoted(value) {
  const text = String(value);
  if (typeof value !== "string" || (/^[A-Za-z_][\w./-]*$/.test(text) && !/^(true|false|null|none|inf|nan|infinity)$/i.test(text)) || /^[1-9]\d*$|^0$/.test(text)) return text;
  return text.includes("'") ? `"${text}"` : `'${text}'`;
}
