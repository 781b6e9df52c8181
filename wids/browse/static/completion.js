// Completion of a filter while it is typed: fields, operators, names of classes, frequent values.
// A combobox with a list, as ARIA has it: the focus stays in the box, which names the chosen entry.

import { h } from "./dom.js";
import { endOfWord, entriesFor, expectedAfter, learn } from "./expected.js";

/** A box with what completes it. */
export function completed(input) {
  const list = h("ul", { id: "filter-words", class: "completions", role: "listbox", "aria-label": "What can come here", hidden: true, onpointerdown: choose });
  let entries = [];
  let active = -1;
  let wanted = false; // until Escape or another place takes the list away
  for (const [name, value] of Object.entries({ role: "combobox", autocomplete: "off", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false" })) input.setAttribute(name, value);
  input.addEventListener("input", open);
  input.addEventListener("click", () => { if (list.hidden) open(); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  function open() {
    wanted = true;
    learn(() => { if (wanted && active < 0) open(); });
    const { selectionStart: end, selectionEnd } = input;
    entries = end === selectionEnd ? entriesFor(expectedAfter(input.value.slice(0, end))) : [];
    list.replaceChildren(...entries.map(({ text, beside }, place) => h("li", { id: `filter-word-${place}`, role: "option", "aria-selected": "false", "data-entry": place },
      h("span", { class: "name" }, text), beside ? h("span", { class: "count" }, beside) : null)));
    list.hidden = entries.length === 0;
    list.scrollTop = 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    select(-1);
  }

  function close() {
    wanted = false;
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
    if (key === "ArrowDown" && list.hidden) open();
    else if (list.hidden) return false;
    else if (key === "ArrowDown") select((active + 1) % entries.length);
    else if (key === "ArrowUp") select((active < 0 ? entries.length : active) - 1);
    else if (key === "Enter" && active >= 0) accept(active);
    else if (key === "Escape") close();
    else return false;
    return true;
  }

  function choose(event) {
    event.preventDefault(); // the focus stays in the box
    const entry = event.target.closest("[data-entry]");
    if (entry && event.button === 0) accept(Number(entry.dataset.entry));
  }

  /** Write an entry in place of the word at the cursor, and offer what comes next. */
  function accept(place) {
    const { text, replaced } = entries[place];
    const { value, selectionStart: end } = input;
    const rest = value.slice(endOfWord(value, end)).trimStart();
    const before = value.slice(0, end - replaced.length);
    const begun = `${/^[,)]$/.test(text) ? before.trimEnd() : before}${text}${text === "(" ? "" : " "}`;
    input.value = begun + rest;
    input.setSelectionRange(begun.length, begun.length);
    open();
  }

  return h("div", { class: "completed" }, input, list);
}
