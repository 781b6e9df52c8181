// A conversation: who says what, turn by turn.

import { ask } from "./api.js";
import { markdown } from "./markdown.js";
import { button, counted, h, number } from "./ui.js";

const GLYPHS = { image: "▣", video: "▶", audio: "♪" };

/** Show the turns that were found of a conversation, and what brings more of them. */
export function conversation(sample, found, { clamp = false } = {}) {
  const list = h("ol", { class: "chat", "aria-label": `Conversation ${found.extension}` });
  const place = h("div", {}, list);
  add(place, list, sample, found, clamp);
  return place;
}

function add(place, list, sample, found, clamp) {
  list.append(...found.turns.map((turn) => turnOf(turn, clamp)));
  if (!found.more) return;
  const next = found.start + found.turns.length;
  const left = found.total === null ? "More turns" : `${number(found.total - next)} more turn${found.total - next === 1 ? "" : "s"}`;
  const more = button(left, async () => {
    more.disabled = true;
    const rest = await ask("turns", { i: sample.index, f: found.field, from: next }).catch((error) => error);
    if (rest instanceof Error || !rest.turns.length) {
      more.replaceWith(h("p", { class: "muted" }, rest.message ?? `Of this document, ${counted(next, "turn")} can be read here; download it for the rest.`));
      return;
    }
    more.remove();
    const before = list.children.length;
    add(place, list, sample, { ...found, ...rest }, clamp);
    list.children[before].tabIndex = -1;
    list.children[before].focus();
  }, { class: "more-turns" });
  place.append(more);
}

function turnOf([role, side, parts], clamp) {
  const said = h("div", { class: "said" }, parts.map(([kind, text]) => (kind === "text"
    ? markdown(text) ?? h("p", {}, text)
    : h("span", { class: "chip" }, h("span", { "aria-hidden": "true" }, `${GLYPHS[kind] ?? "·"} `), kind))));
  if (!parts.length) said.append(h("p", { class: "muted" }, "(nothing)"));
  return h("li", { class: `turn ${side}` }, h("span", { class: "role" }, role), clamp ? clamped(said) : said);
}

// Long texts: their beginning, and a button that shows the rest.

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
