// Samples counted by a column, or by two: bars that lead to the samples.

import { ask, poll } from "./api.js";
import { explorer, picked } from "./facets.js";
import { swatch, wordColour } from "./plots.js";
import { filterable, go, gridPart, link, orderPart } from "./state.js";
import { completed, markWrong, toolbar } from "./toolbar.js";
import { built, button, counted, h, leftOut, number, svg } from "./ui.js";

const COLOURED = 10; // values of the second column that have a colour of their own

/** Show how many samples each value of a column has. */
export async function showCount({ view, state, dataset, signal, shown }) {
  const place = h("div", { class: "groups" });
  view.replaceChildren(toolbar(state, dataset), ...explorer(state, dataset, signal, form(state), place));
  shown("Count");
  try {
    await poll(async () => {
      const found = await ask("groups", { ...orderPart(state), sort: null, by: state.by, across: state.across }, signal);
      place.replaceChildren(...(found.groups ? bars(found, state) : [built(found)]));
      return found.finished;
    }, signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    place.replaceChildren(markWrong(error.message, state));
  }
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
  const rows = new Map();
  const sums = new Map();
  for (const [[value, label], ...others] of groups) {
    const count = others.at(-1);
    const part = across ? others[0] : null;
    if (!rows.has(value)) rows.set(value, { value, label, count: 0, parts: [] });
    const row = rows.get(value);
    row.count += count;
    row.parts.push([part, count]);
    if (part) sums.set(part[0], [part[1], (sums.get(part[0])?.[1] ?? 0) + count]);
  }
  const common = [...sums].sort(([, a], [, b]) => b[1] - a[1]).map(([value]) => value).slice(0, COLOURED);
  const top = Math.max(...[...rows.values()].map((row) => row.count), 1);
  const to = (value, other) => link({ ...filterable(state), look: null, by: null, across: null, [by]: value, ...(across && other !== undefined ? { [across]: other } : {}) });
  const left = leftOut(rest);
  return [
    h("p", { class: "muted" }, [`${counted(total, "sample")} in ${counted(all, "group")}`, hint, left].filter(Boolean).join(" · ")),
    across ? h("ul", { class: "legend" }, common.map((value, code) => h("li", {}, swatch(code), sums.get(value)[0]))) : null,
    h("ul", { class: "bars" }, [...rows.values()].map(({ value, label, count, parts }) => {
      let x = 0;
      const drawn = parts.sort(([a], [b]) => place(common, a?.[0]) - place(common, b?.[0])).map(([part, each]) => {
        const width = (100 * each) / top;
        const rect = svg("rect", { x, y: 0, width: Math.max(width, 0.2), height: 10, ...(part ? { fill: wordColour(common.includes(part[0]) ? common.indexOf(part[0]) : -1) } : {}) }, svg("title", {}, part ? `${part[1]}: ${number(each)}` : number(each)));
        x += width;
        return part ? svg("a", { href: to(value, part[0]), "aria-label": `${label}, ${part[1]}: ${number(each)}`, tabindex: -1 }, rect) : rect;
      });
      const meter = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", ...(across ? {} : { "aria-hidden": "true" }) }, drawn);
      const on = picked(state, by).includes(value);
      return h("li", { class: on ? "picked" : null }, h("a", { href: to(value) }, h("span", { class: "name" }, label), across ? null : meter, h("span", { class: "count" }, number(count))), across ? meter : null);
    })),
  ].filter(Boolean);
}

function place(common, value) {
  return common.includes(value) ? common.indexOf(value) : common.length;
}
