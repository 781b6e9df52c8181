// The head of the page, and which view is shown for which state.

import { ask } from "./api.js";
import { showCompare } from "./compare.js";
import { showCount } from "./count.js";
import { showDataset } from "./dataset.js";
import { turnTo } from "./cursor.js";
import { announce, h, plain } from "./dom.js";
import { bytes, counted, number } from "./format.js";
import { focusTile, showGrid } from "./grid.js";
import { fillHelp, listen } from "./keys.js";
import { showMap } from "./map.js";
import { openMarks } from "./marks.js";
import { showSample } from "./sample.js";
import { tellWaiting } from "./waits.js";
import { current, filterable, go, gridPart, link, onChange } from "./state.js";

const view = document.getElementById("view");
const query = document.getElementById("query");

let dataset = null;
let leave = new AbortController();
let shownName = null;
let last = {};

function nameOf(state) {
  if (state.view === "dataset") return "dataset";
  if ("compare" in state) return "compare";
  if ("i" in state || "p" in state) return "sample";
  return ["map", "count"].includes(state.look) ? state.look : "grid";
}

const VIEWS = { count: showCount, map: showMap, compare: showCompare, dataset: showDataset, grid: showGrid, sample: showSample };

/** Show the state; `top` is how far down, in pixels. */
async function render(top = 0) {
  const state = current();
  const name = nameOf(state);
  // What the last view still asks for is of no use any more.
  leave.abort();
  leave = new AbortController();
  markHead(state, name);
  const changed = name !== shownName;
  shownName = name;
  view.setAttribute("aria-busy", "true");
  const told = tellWaiting(view, leave.signal);
  leave.signal.addEventListener("abort", told);
  const before = last;
  last = state;
  let arrived = false;
  if (name !== "grid") turnTo(null);
  const shown = (title = "") => {
    told();
    document.title = plain([title, dataset.title, "wids"].filter(Boolean).join(" · "));
    view.removeAttribute("aria-busy");
    if (arrived) return;
    arrived = true;
    scrollTo(0, top);
    if (name === "grid" && changed) focusTile(before, top > 0);
  };
  try {
    await VIEWS[name]({ view, state, dataset, signal: leave.signal, shown });
  } catch (error) {
    if (error.name === "AbortError") return;
    showFailure(error);
    shown();
  }
}

function showFailure(error) {
  announce(error.message);
  view.replaceChildren(
    h("section", { class: "failure" },
      h("h2", {}, "This cannot be shown"),
      h("p", {}, error.message),
      h("p", {}, h("a", { href: "?" }, "Back to the first samples"))),
  );
}

function markHead(state, name) {
  const samples = document.getElementById("to-samples");
  const inDataset = name === "dataset";
  samples.href = link({ ...gridPart(state), at: state.at });
  samples.toggleAttribute("aria-current", !inDataset);
  document.getElementById("to-dataset").href = link({ ...gridPart(state), at: state.at, view: "dataset" });
  document.getElementById("to-dataset").toggleAttribute("aria-current", inDataset);
  if (document.activeElement !== query) query.value = state.q ?? "";
}

function fillHead() {
  const samples = counted(dataset.num_samples, "sample");
  // Of a saved view, the grid shows its samples alone.
  const shown = dataset.num_chosen === null ? samples : `${number(dataset.num_chosen)} of ${samples}`;
  const facts = [shown, counted(dataset.num_shards, "shard")];
  if (dataset.num_uncounted) facts.push(`${counted(dataset.num_uncounted, "shard")} left out, see Dataset`);
  if (dataset.nbytes) facts.push(bytes(dataset.nbytes));
  document.getElementById("home").textContent = dataset.title;
  document.getElementById("facts").textContent = facts.join(" · ");
  query.disabled = Boolean(dataset.install);
  if (dataset.install) query.placeholder = dataset.install;
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = query.value.trim();
  query.blur();
  go({ ...filterable(current()), q: text || null });
});

const wanted = document.getElementById("number");
document.getElementById("jump").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = wanted.value.replaceAll(/[,_\s]/g, "");
  wanted.setCustomValidity(/^-?\d{1,18}$/.test(text) ? "" : "a whole number, such as 42, or -1 for the last sample");
  if (!wanted.reportValidity()) return;
  wanted.value = "";
  wanted.blur();
  go({ ...gridPart(current()), q: null, i: text });
});
wanted.addEventListener("input", () => wanted.setCustomValidity(""));

const help = document.getElementById("help");
document.getElementById("to-help").addEventListener("click", () => help.showModal());
fillHelp(help);
listen(help, query);

try {
  dataset = await ask("dataset");
  openMarks(dataset);
  fillHead();
  await render(onChange(render));
} catch (error) {
  showFailure(error);
}
