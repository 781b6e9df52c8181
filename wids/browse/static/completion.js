// Completion while one types: columns, operators, frequent values, as the server offers them.
// A combobox with a list, as ARIA has it: the focus stays in the box, which names the chosen entry.

import { ask } from "./api.js";
import { h } from "./dom.js";

const PAUSE = 600; // milliseconds before it asks again, while the catalogue is built
let boxes = 0;

/** A box with what completes it: of a condition, or of an order, which has columns alone. */
export function completed(input, kind = "condition") {
  const name = `words-${boxes += 1}`;
  const list = h("ul", { id: name, class: "completions", role: "listbox", "aria-label": "What can come here", hidden: true, onpointerdown: choose });
  let found = { entries: [], replaces: 0 };
  let active = -1;
  let asked = null; // the question that waits for its answer
  for (const [attribute, value] of Object.entries({ role: "combobox", autocomplete: "off", "aria-autocomplete": "list", "aria-controls": name, "aria-expanded": "false" })) input.setAttribute(attribute, value);
  input.addEventListener("input", () => { active = -1; open(); });
  input.addEventListener("click", () => { if (list.hidden) open(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  async function open() {
    asked?.abort();
    const mine = asked = new AbortController();
    const { selectionStart: end, selectionEnd } = input;
    if (end !== selectionEnd) return close();
    const answer = await ask("words", { before: input.value.slice(0, end), kind }, mine.signal).catch(() => null);
    if (asked !== mine || answer === null) return undefined;
    if (!answer.finished) setTimeout(() => { if (asked === mine) open(); }, PAUSE);
    const chosen = found.entries[active]?.text; // with the arrows, while the answer was on its way
    found = answer;
    list.replaceChildren(...found.entries.map(({ text, beside }, place) => h("li", { id: `${name}-${place}`, role: "option", "aria-selected": "false", "data-entry": place },
      h("span", { class: "name" }, text), beside ? h("span", { class: "count" }, beside) : null)));
    list.hidden = found.entries.length === 0;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    return select(found.entries.findIndex(({ text }) => text === chosen));
  }

  function close() {
    asked?.abort();
    asked = null;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    select(-1);
  }

  function select(place) {
    active = place;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === place)));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[place].id);
    return list.children[place].scrollIntoView({ block: "nearest" });
  }

  /** Do what a key means here; returns whether it means something. */
  function press(key) {
    const count = found.entries.length;
    if (key === "ArrowDown" && list.hidden) open();
    else if (key === "Escape" && asked) close();
    else if (list.hidden) return false;
    else if (key === "ArrowDown") select((active + 1) % count);
    else if (key === "ArrowUp") select((active < 0 ? count : active) - 1);
    else if (key === "Enter" && active >= 0) accept(active);
    else return false;
    return true;
  }

  function choose(event) {
    event.preventDefault(); // the focus stays in the box
    const entry = event.target.closest("[data-entry]");
    if (entry && event.button === 0) accept(Number(entry.dataset.entry));
  }

  /** Write an entry in place of the word before the cursor, and offer what comes next. */
  function accept(place) {
    const { text } = found.entries[place];
    const { value, selectionStart: end } = input;
    const begun = `${value.slice(0, end - found.replaces)}${text}${/[(%]$/.test(text) ? "" : " "}`;
    input.value = begun + value.slice(end).trimStart();
    input.setSelectionRange(begun.length, begun.length);
    active = -1;
    open();
  }

  return h("div", { class: "completed" }, input, list);
}
