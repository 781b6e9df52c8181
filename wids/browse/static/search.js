// Samples by key. The server searches a slice of the shards at a time; the page asks on.

import { ask } from "./api.js";
import { announce, h } from "./dom.js";
import { counted, number } from "./format.js";
import { gridPart, link } from "./state.js";
import { leftOut } from "./waits.js";

const MOST = 1000;

/** Show what is found, as it is found. */
export async function showSearch({ view, state, dataset, signal, shown }) {
  const text = state.q;
  const grid = gridPart(state);
  const list = h("ol", { class: "hits" });
  const told = h("span", {});
  const bar = h("progress", { max: dataset.num_shards, value: 0, "aria-label": "Search" });
  const exact = state.whole === "1";
  const other = h("a", { href: link({ ...grid, q: text, whole: exact ? null : "1" }) },
    exact ? "Keys that begin so" : "Only this very key");
  view.replaceChildren(h("section", { class: "narrow" },
    h("h2", {}, exact ? "Key " : "Keys that begin with ", h("code", {}, text)),
    numberHint(text, grid, dataset),
    h("div", { class: "progress" }, bar, told, other),
    list));
  shown();
  let from = [0, 0];
  let hits = 0;
  const left = { skipped: 0, without_sidecar: 0 };
  while (from && hits < MOST) {
    const found = await ask("search", { q: text, whole: exact ? 1 : null, shard: from[0], place: from[1] }, signal);
    for (const hit of found.hits) {
      list.append(h("li", {}, h("a", { href: link({ ...grid, i: hit.index }) }, h("span", { class: "key" }, hit.key),
        h("span", { class: "index" }, number(hit.index)))));
    }
    hits += found.hits.length;
    left.skipped += found.skipped;
    left.without_sidecar += found.without_sidecar;
    bar.value = found.shards_done;
    told.textContent = `${counted(hits, "sample")}${found.next ? ` · ${number(found.shards_done)} of ${counted(found.num_shards, "shard")} searched` : ""}`;
    from = found.next;
  }
  bar.remove();
  finish({ told, hits, more: Boolean(from), left });
}

function finish({ told, hits, more, left }) {
  const parts = [more ? `the first ${counted(hits, "sample")}` : hits ? counted(hits, "sample") : "nothing found"];
  if (left.skipped) parts.push(leftOut(left));
  told.textContent = parts.join(" · ");
  announce(told.textContent);
}

function numberHint(text, grid, dataset) {
  if (!/^\d{1,15}$/.test(text) || Number(text) >= dataset.num_samples) return null;
  return h("p", {}, h("a", { href: link({ ...grid, i: String(Number(text)) }) }, `Go to sample number ${number(Number(text))}`));
}
