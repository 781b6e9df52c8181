// The head of the page, and which view is shown for which state.

import { ask } from "./api.js";
import { showCount } from "./count.js";
import { showDataset } from "./dataset.js";
import { focusTile, showGrid, turnTo } from "./grid.js";
import { fillHelp, listen } from "./keys.js";
import { showMap } from "./map.js";
import { openMarks } from "./marks.js";
import { showCompare, showSample } from "./sample.js";
import { current, filterable, go, gridPart, link, onChange } from "./state.js";
import { announce, bytes, counted, h, number, plain } from "./ui.js";

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
  const told = tellWaiting();
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
  for (const [id, shown] of [["to-samples", null], ["to-dataset", "dataset"]]) {
    const anchor = document.getElementById(id);
    anchor.href = link({ ...gridPart(state), at: state.at, view: shown });
    anchor.ariaCurrent = (name === "dataset") === (shown !== null) ? "page" : null;
  }
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
}

// A number goes to that sample, unless it is in quotes; another text is looked for in keys.
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = query.value.trim();
  const place = /^(0|-?[1-9][\d,_ ]{0,17})$/.test(text) ? Number(text.replaceAll(/[,_ ]/g, "")) : NaN;
  query.blur();
  if (place < dataset.num_samples && place >= -dataset.num_samples) go({ ...gridPart(current()), q: null, i: place });
  else go({ ...filterable(current()), q: text.replace(/^"(.*)"$/, "$1") });
});

const PATIENCE = 1200; // milliseconds; what comes sooner needs no words

/** Say beside the view why it takes long, until it is there; returns what takes the words away. */
function tellWaiting() {
  const told = h("p", { class: "waiting", role: "status" }, "Still reading… A remote shard without a sidecar beside it is fetched whole first.");
  const timer = setTimeout(() => view.before(told), PATIENCE);
  return () => {
    clearTimeout(timer);
    told.remove();
  };
}

const help = document.getElementById("help");
document.getElementById("to-help").addEventListener("click", () => help.showModal());
fillHelp(help);
listen(help);

try {
  dataset = await ask("dataset");
  openMarks(dataset);
  fillHead();
  await render(onChange(render));
} catch (error) {
  showFailure(error);
}

