// The keyboard. A view says by data-key on its links and buttons which key presses them, so that
// whatever a key does can be done with the mouse as well, and the other way round.

import { move } from "./cursor.js";
import { button, h } from "./dom.js";
import { markFocused } from "./marks.js";
import { chosen as isChosen, keysOn, setFill, setKeys, setTheme, theme } from "./settings.js";

const KEYS = [
  ["← →  or  j k", "previous and next tile, or sample"],
  ["↑ ↓", "a row of the grid up and down"],
  ["Enter", "open the tile"],
  ["n  p", "next and previous page"],
  ["Home  End", "first and last page"],
  ["g", "go to a sample by its number"],
  ["/", "find a key"],
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
  const chosen = theme();
  dialog.append(
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", {}, rows),
    h("div", { class: "settings" },
      h("label", {}, h("input", { type: "checkbox", checked: keysOn(), onchange: (event) => setKeys(event.target.checked) }), "Single keys act"),
      h("label", {}, h("input", { type: "checkbox", checked: isChosen("fill"), onchange: (event) => setFill(event.target.checked) }), "Pictures fill their tiles"),
      h("label", {}, "Colours ", h("select", { onchange: (event) => setTheme(event.target.value) },
        THEMES.map(([value, text]) => h("option", { value, selected: value === chosen }, text))))),
    button("Close", () => dialog.close()),
  );
}

/** Begin to listen. */
export function listen(dialog, query) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const field = event.target.closest("input, select, textarea, audio, video, [contenteditable]");
    if (event.key === "Escape") return escape(event, field);
    if (field || !keysOn()) return;
    if (event.key === "?") dialog.showModal();
    else if (event.key === "/") choose(query);
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
