// The head of the page, which view is shown for which state, and the keyboard.

import { showCount, showDataset } from "./dataset.js";
import { focusTile, move, showGrid, turnTo } from "./grid.js";
import { playOrPause } from "./looks.js";
import { showMap } from "./map.js";
import { markFocused, openMarks } from "./marks.js";
import { showCompare, showSample } from "./sample.js";
import { announce, bytes, counted, h, isOn, number, plain, switchOn } from "./ui.js";
import { ask, current, filterable, go, gridPart, link, onChange } from "./urls.js";

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

/** Show the state; a `fresh` one from its top, another one as far down as the browser was. */
async function render(fresh = false) {
  const state = current();
  const name = nameOf(state);
  // What the last view still asks for is of no use any more.
  leave.abort();
  leave = new AbortController();
  markHead(state, name);
  const changed = name !== shownName;
  shownName = name;
  view.setAttribute("aria-busy", "true");
  const before = last;
  last = state;
  let arrived = false;
  if (name !== "grid") turnTo(null);
  const shown = (title = "") => {
    document.title = plain([title, dataset.title, "wids"].filter(Boolean).join(" · "));
    view.removeAttribute("aria-busy");
    if (arrived) return;
    arrived = true;
    if (fresh) scrollTo(0, 0);
    if (name === "grid" && changed) focusTile(before);
  };
  try {
    await VIEWS[name]({ view, state, dataset, signal: leave.signal, shown });
  } catch (error) {
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

// The keyboard. A view says by data-key on its links and buttons which key presses them, so that
// whatever a key does can be done with the mouse as well, and the other way round.

const help = document.getElementById("help");
document.getElementById("to-help").addEventListener("click", () => help.showModal());
for (const box of help.querySelectorAll("input")) {
  box.checked = isOn(box.id);
  box.addEventListener("change", () => switchOn(box.id, box.checked));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const field = event.target.closest("input, select, textarea, audio, video, [contenteditable]");
  if (event.key === "Escape" && field) field.blur();
  if (field || (isOn("keys-off") && event.key !== "Escape")) return;
  if (event.key === "?") help.showModal();
  else if (!press(event.key) && !move(event.key) && !(event.key === "m" && markFocused()) && !(event.key === " " && playFocused())) return;
  event.preventDefault();
});

/** Play the sound or video of the tile or row whose link has the focus, or pause it. */
function playFocused() {
  const player = document.activeElement?.matches("a") && document.activeElement.closest("li, tr")?.querySelector("audio, video");
  if (player) playOrPause(player);
  return Boolean(player);
}

/** Press what a view declared for a key; a field is selected to be typed in. */
function press(key) {
  const name = { j: "ArrowRight", k: "ArrowLeft", g: "/" }[key] ?? key;
  const target = document.querySelector(`[data-key="${CSS.escape(name)}"]`);
  if (!target || target.disabled) return false;
  if (target.matches("input")) {
    target.focus();
    target.select();
  } else target.click();
  return true;
}

try {
  dataset = await ask("dataset");
  openMarks(dataset);
  fillHead();
  onChange(render);
  await render();
} catch (error) {
  showFailure(error);
}
