// How a dataset changes over its shards: the shares of classes, and where fields are missing.

import { h, svg } from "./dom.js";
import { number } from "./format.js";
import { wordColour } from "./palette.js";
import { link } from "./state.js";

const [WIDTH, HEIGHT] = [640, 96];

/** The shares of the commonest classes in each shard, one column beside the other; null for one shard. */
export function classesOverShards({ shards, step: each, samples, classes: { values, over } }) {
  if (shards.length < 2) return null;
  const step = WIDTH / shards.length;
  const columns = shards.map((shard, bin) => {
    let top = HEIGHT;
    const total = Math.max(samples[bin], 1);
    const parts = over.map((counts, code) => {
      const height = (HEIGHT * counts[bin]) / total;
      top -= height;
      return svg("rect", { x: bin * step + 0.5, y: top, width: Math.max(0.5, step - 1), height, fill: wordColour(code) });
    });
    const said = over.map((counts, code) => [values[code][1], counts[bin]]).filter(([, count]) => count).map(([label, count]) => `${label} ${number(count)}`);
    const name = nameOf(shard, each);
    return svg("a", { href: link({ shard: name }), "aria-label": `Shard ${name}: ${said.join(", ")}` },
      parts, svg("rect", { x: bin * step, y: 0, width: step, height: HEIGHT, fill: "transparent" }),
      svg("title", {}, `shard ${name}: ${said.join(", ")}`));
  });
  return h("figure", { class: "over-shards" },
    h("figcaption", { class: "muted" }, "Shares in each shard"),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "group", "aria-label": "Shares of classes over the shards" }, columns),
    h("p", { class: "ends" }, h("span", {}, `shard ${number(shards[0])}`), h("span", {}, number(shards.at(-1)))),
    h("ul", { class: "legend" }, over.map((_, code) => h("li", {}, swatch(code), values[code][1]))));
}

/** The colour of a word in a legend. */
export function swatch(code) {
  return svg("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, svg("rect", { width: 1, height: 1, fill: wordColour(code) }));
}

/** Which shards lack a field, the worst first, as links to these samples; null for one shard. */
export function whereMissing({ shards, step, samples, missing }, field) {
  const counts = missing[field];
  if (!counts || shards.length < 2) return null;
  const worst = counts.map((count, bin) => [count, bin]).filter(([count]) => count).sort((a, b) => b[0] - a[0]);
  if (worst.length === shards.length && worst.every(([count, bin]) => count === samples[bin])) return ["in all shards"];
  const links = worst.slice(0, 3).flatMap(([count, bin], place) => [place ? ", " : "",
    h("a", { href: link({ shard: nameOf(shards[bin], step), missing: field }) }, `shard ${nameOf(shards[bin], step)}`),
    count === samples[bin] ? " (all)" : ` (${number(count)} of ${number(samples[bin])})`]);
  const rest = worst.length - 3;
  return [...links, rest > 0 ? ` and ${number(rest)} more` : ""];
}

/** A shard, or the range of those that are shown together. */
function nameOf(shard, step) {
  return step > 1 ? `${shard}-${shard + step - 1}` : String(shard);
}
