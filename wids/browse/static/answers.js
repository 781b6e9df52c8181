// Answers about a dataset: what is missing in it, how its classes are balanced.

import { fieldName, quoted } from "./clauses.js";
import { h } from "./dom.js";
import { counted, number } from "./format.js";
import { classesOverShards, whereMissing } from "./overshards.js";
import { rows } from "./plots.js";
import { link } from "./state.js";

/** What one asks of a dataset first: is it complete, are the classes balanced. */
export function answers(found, source) {
  return [
    h("section", { class: "panel" }, h("h3", {}, "Samples"), source, missing(found),
      found.messages.map((message) => h("p", { class: "problem" }, message))),
    classes(found),
  ].filter(Boolean);
}

function missing(found) {
  const total = found.samples.count;
  const lacking = found.fields.filter((field) => field.count < total);
  const complete = found.fields.length - lacking.length;
  const said = lacking.length
    ? `${counted(complete, "field")} in every sample; ${counted(lacking.length, "field")} missing in some:`
    : found.fields.length === 1 ? "Its one field is in every sample." : `All ${counted(found.fields.length, "field")} in every sample.`;
  return [h("h4", {}, "Missing"), h("p", {}, total ? said : "No samples were read."),
    lacking.length ? rows(lacking.map(({ name, count }) => [`without ${name}`, total - count, link({ where: `${fieldName(name)} == null` })])) : null,
    h("ul", { class: "lacking" }, lacking.map(({ name }) => [name, whereMissing(found.over_shards, name)]).filter(([, where]) => where)
      .map(([name, where]) => h("li", {}, "without ", h("code", {}, name), ": ", where)))];
}

function classes(found) {
  if (!found.classes.length) return null;
  const field = found.class_field;
  const entries = found.classes.map(([label, name, count]) => [
    name ? `${label} ${name}` : label, count, link({ where: `${fieldName(field)} == ${/^[1-9]\d*$|^0$/.test(label) ? label : quoted(label)}` }),
  ]);
  const rest = found.num_classes - found.classes.length;
  return h("section", { class: "panel" },
    h("h3", {}, "Classes in ", h("code", {}, field)),
    h("p", {}, [sizes(found), balance(found), lacking(found)].filter(Boolean).join(" ")),
    classesOverShards(found.over_shards),
    rows(entries),
    rest > 0 ? h("p", { class: "muted" }, `and ${counted(rest, "rarer one")}`) : null);
}

/** How many samples the classes have. */
function sizes({ num_classes: count, counts: { least, median, most } }) {
  const each = count === 1 ? "" : " each";
  const range = least === most ? `${counted(least, "sample")}${each}` : `${number(least)} to ${number(most)} samples each, median ${number(median)}`;
  return `${count === 1 ? "1 class" : `${number(count)} classes`}, ${range}.`;
}

function balance({ num_classes: count, extremes: [[common, most], [rare, least]] }) {
  if (count === 1) return "";
  if (most < 2 * least) return "They are balanced.";
  const times = most / least;
  const about = times < 10 ? Number(times.toPrecision(2)) : Math.round(times);
  return `The commonest, ${common}, has ${number(about)} times as many as the rarest, ${rare}.`;
}

/** How many samples have no class, or an empty one, which is none. */
function lacking({ unclassed: count }) {
  return count ? `${counted(count, "sample")} without a class.` : "";
}
