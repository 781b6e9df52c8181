// The keyboard. A view says by data-key on its links and buttons which key presses them, so that
// whatever a key does can be done with the mouse as well, and the other way round.

import { move } from "./grid.js";
import { markFocused } from "./marks.js";
import { button, choose, chosen, h } from "./ui.js";

const KEYS = [
  ["← →  or  j k", "previous and next tile, or sample"],
  ["↑ ↓", "a row of the grid up and down"],
  ["Enter", "open the tile"],
  ["n  p", "next and previous page"],
  ["Home  End", "first and last page"],
  ["/  or  g", "find a key, or go to a sample by its number"],
  ["f", "a condition in SQL"],
  ["s", "facets: values and their counts"],
  ["m", "mark the tile or sample, or take the mark back"],
  ["Space", "play the sound or video of the tile, or pause it"],
  ["z", "zoom an image to its pixels, and back; so do the wheel and a drag"],
  ["o", "boxes and masks on the image"],
  ["d", "the dataset: shards and statistics"],
  ["Esc", "back: from a sample to the grid"],
  ["?", "this help"],
];
const THEMES = [["", "As the system"], ["light", "Light"], ["dark", "Dark"]];

/** Write the list of keys and the settings into the dialog. */
export function fillHelp(dialog) {
  const rows = KEYS.map(([keys, text]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, text)]);
  dialog.append(
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", {}, rows),
    h("div", { class: "settings" },
      h("label", {}, h("input", { type: "checkbox", checked: chosen("keys") !== "off", onchange: (event) => choose("keys", event.target.checked ? "" : "off") }), "Single keys act"),
      h("label", {}, h("input", { type: "checkbox", checked: chosen("fill") === "on", onchange: (event) => choose("fill", event.target.checked ? "on" : "") }), "Pictures fill their tiles"),
      h("label", {}, "Colours ", h("select", { onchange: (event) => choose("theme", event.target.value) },
        THEMES.map(([value, text]) => h("option", { value, selected: value === chosen("theme") }, text))))),
    button("Close", () => dialog.close()),
  );
}

/** Begin to listen. */
export function listen(dialog) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const field = event.target.closest("input, select, textarea, audio, video, [contenteditable]");
    if (event.key === "Escape" && field) field.blur();
    if (field || (chosen("keys") === "off" && event.key !== "Escape")) return;
    if (event.key === "?") dialog.showModal();
    else if (!press(event.key) && !move(event.key) && !(event.key === "m" && markFocused()) && !(event.key === " " && playFocused())) return;
    event.preventDefault();
  });
}

/** Play the sound or video of the tile or row whose link has the focus. */
function playFocused() {
  const target = document.activeElement?.matches("a") && document.activeElement.closest("li, tr")?.querySelector("[data-play]");
  target?.click();
  return Boolean(target);
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
