// The bar below the grid: links to other pages, and a slider over all of them.

import { h } from "./dom.js";
import { number } from "./format.js";
import { go, gridPart, link } from "./state.js";

/** Make the bar once; `update` leads it on from another page, so that the focus in it stays. */
export function makePager() {
  const steps = [
    ["«", "Home", "First page"], ["‹", "p", "Previous page"], ["›", "n", "Next page"], ["»", "End", "Last page"],
  ].map(([text, key, label]) => h("a", { class: "button", "data-key": key, "aria-label": label }, text));
  const told = h("span", { class: "where" });
  const slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Page", oninput: slide, onchange: settle });
  const [first, previous, next, last] = steps;
  const element = h("nav", { class: "pager", "aria-label": "Pages" }, first, previous, told, next, last, slider);
  let here = null;

  function update(state, at, count, total) {
    here = { grid: gridPart(state), count, total };
    const end = Math.max(0, Math.floor((total - 1) / count) * count);
    lead(first, 0, at > 0);
    lead(previous, Math.max(0, at - count), at > 0);
    lead(next, at + count, at + count < total);
    lead(last, end, at < end);
    slider.max = Math.max(0, Math.ceil(total / count) - 1);
    slider.disabled = total <= count;
    slider.value = Math.floor(at / count);
    tell(at);
  }

  function lead(step, position, enabled) {
    step.classList.toggle("off", !enabled);
    if (enabled) step.href = link({ ...here.grid, at: position || null });
    else step.removeAttribute("href");
    step.toggleAttribute("aria-disabled", !enabled);
  }

  function tell(at) {
    const { count, total } = here;
    told.textContent = range(at, count, total);
    slider.setAttribute("aria-valuetext", told.textContent);
  }

  function slide() {
    tell(Number(slider.value) * here.count);
  }

  function settle() {
    go({ ...here.grid, at: Number(slider.value) * here.count || null });
  }

  return { element, update };
}

/** Say which samples a page holds, counted from 0 as everywhere. */
export function range(at, count, total) {
  if (at >= total) return `0 of ${number(total)}`;
  return `${number(at)}–${number(Math.min(at + count, total) - 1)} of ${number(total)}`;
}
