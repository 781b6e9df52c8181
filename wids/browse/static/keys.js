// The keyboard. A view says by data-key on its links and buttons which key presses them, so that
// whatever a key does can be done with the mouse as well, and the other way round.

import { button, h } from "./dom.js";

const KEYS = [
  ["← →  or  j k", "previous and next tile, or sample"],
  ["↑ ↓", "a row of the grid up and down"],
  ["Enter", "open the tile"],
  ["n  p", "next and previous page"],
  ["Home  End", "first and last page"],
  ["g", "go to a sample by its number"],
  ["/", "find a key"],
  ["f", "filter"],
  ["z", "zoom an image to its pixels"],
  ["d", "the dataset: shards and statistics"],
  ["Esc", "back: from a sample to the grid"],
  ["?", "this help"],
];

const STEPS = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1 };

/** Write the list of keys into the dialog. */
export function fillHelp(dialog) {
  const rows = KEYS.map(([keys, text]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, text)]);
  dialog.append(
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", {}, rows),
    button("Close", () => dialog.close()),
  );
}

/** Begin to listen. */
export function listen(dialog, query) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const field = event.target.closest("input, select, textarea, audio, video, [contenteditable]");
    if (event.key === "Escape") return escape(event, field);
    if (field) return;
    if (event.key === "?") dialog.showModal();
    else if (event.key === "/") choose(query);
    else if (!press(event.key) && !move(event.key)) return;
    event.preventDefault();
  });
}

function escape(event, field) {
  if (field) field.blur();
  else if (press("Escape")) event.preventDefault();
}

/** Press what a view declared for a key; a field is selected to be typed in. */
function press(key) {
  const name = key === "j" ? "ArrowRight" : key === "k" ? "ArrowLeft" : key;
  const target = document.querySelector(`[data-key="${CSS.escape(name)}"]`);
  if (!target || target.disabled) return false;
  if (target.matches("input")) choose(target);
  else target.click();
  return true;
}

function choose(input) {
  input.focus();
  input.select();
}

/** Move among the tiles of the grid. */
function move(key) {
  const tiles = [...document.querySelectorAll(".grid .tile")];
  if (!tiles.length) return false;
  const here = tiles.indexOf(document.activeElement);
  let to;
  if (key in STEPS) to = here < 0 ? 0 : here + STEPS[key];
  else if (key === "ArrowDown" || key === "ArrowUp") to = beside(tiles, here, key === "ArrowDown");
  else return false;
  if (to >= 0 && to < tiles.length) tiles[to].focus();
  else press(to < 0 ? "p" : "n");
  return true;
}

/** The tile above or below: as many on as there are in the first row. */
function beside(tiles, here, down) {
  const top = tiles[0].offsetTop;
  const columns = tiles.findIndex((tile) => tile.offsetTop > top);
  const width = columns < 1 ? tiles.length : columns;
  if (here < 0) return 0;
  return here + (down ? width : -width);
}
