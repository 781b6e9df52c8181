// Long texts: their beginning, and a button that shows the rest.

import { button, h } from "./dom.js";

/** Show some lines of an element, and all of it on request. */
export function clamped(element, { rest = null } = {}) {
  const more = button("Show more", () => {
    const on = element.classList.toggle("open");
    more.setAttribute("aria-expanded", String(on));
    more.textContent = on ? "Show less" : "Show more";
    watch();
  }, { class: "plain more", "aria-expanded": "false", hidden: true });
  element.classList.add("clamped");
  /** Whether a text is cut depends on the width that it has. */
  const watch = () => {
    const open = element.classList.contains("open");
    more.hidden = !open && element.scrollHeight <= element.clientHeight + 2;
    if (rest) rest.hidden = !open && !more.hidden;
  };
  new ResizeObserver(watch).observe(element);
  return h("div", {}, element, more, rest);
}
