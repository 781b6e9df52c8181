// The head of the page of a sample: where it lies, what it is called, and its neighbours.

import { announce, button, h } from "./dom.js";
import { bytes, number } from "./format.js";
import { countOf } from "./looks.js";
import { markButton } from "./marks.js";
import { gridPart, link } from "./state.js";

/** The links to the grid, to the sample before and to the one behind. */
export function steps(state, here, total, byPosition) {
  const grid = gridPart(state);
  const to = (place) => link({ ...grid, at: state.at, [byPosition ? "p" : "i"]: place });
  const step = (text, place, key, label) => (place >= 0 && place < total
    ? h("a", { class: "button", href: to(place), "data-key": key, "aria-label": label }, text)
    : h("span", { class: "button off", "aria-hidden": "true" }, text));
  return h("div", { class: "steps" },
    h("a", { class: "button", href: link({ ...grid, at: pageOf(state, here) }), "data-key": "Escape" }, "Grid"),
    step("‹", here - 1, "ArrowLeft", "Previous sample"),
    step("›", here + 1, "ArrowRight", "Next sample"));
}

/** Where a sample lies, what it is called, and its mark. */
export function head(sample, state, here, total, byPosition) {
  const place = byPosition
    ? `position ${number(here)} of ${number(total)}, sample ${number(sample.index)}`
    : `sample ${number(sample.index)} of ${number(total)}`;
  return h("header", { class: "sample-head" },
    steps(state, here, total, byPosition),
    h("h2", {}, sample.key || "(no key)"),
    markButton(sample.index, "Mark", { class: "", "data-key": "m", title: "Mark (m)" }),
    h("p", { class: "muted" }, `${place} · ${bytes(sample.nbytes)} · sample ${number(sample.local_index)} of `,
      h("a", { href: link({ ...gridPart(state), at: state.at, view: "dataset", shards: Math.floor(sample.shard / 100) * 100 || null }) }, `shard ${number(sample.shard)}`),
      ", ", h("span", { class: "url" }, sample.url)),
    copies(sample));
}

/** Buttons that copy how the sample is called: on the page, in a program, on a disk. */
function copies(sample) {
  if (!navigator.clipboard) return null;
  const texts = [["key", sample.key], [`dataset[${sample.index}]`, `dataset[${sample.index}]`], ["link", location.href], ["shard", sample.url]];
  return h("p", { class: "copies" }, h("span", { class: "muted" }, "Copy"), texts.map(([name, text]) => {
    const done = button(name, async () => {
      await navigator.clipboard.writeText(text);
      announce(`Copied ${text}`);
      done.classList.add("done");
    }, { class: "plain", "aria-label": `Copy ${name}`, title: text });
    return done;
  }));
}

/** The page of the grid to go back to: the one that one came from if the sample is on it. */
function pageOf(state, here) {
  const count = countOf(state);
  const at = Number(state.at ?? 0);
  if (here >= at && here < at + count) return state.at ?? null;
  return Math.floor(here / count) * count || null;
}
