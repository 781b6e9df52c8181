// A conversation: who says what, turn by turn.

import { ask } from "./api.js";
import { clamped } from "./clamp.js";
import { button, h } from "./dom.js";
import { counted, number } from "./format.js";
import { markdown } from "./markdown.js";
import { chosen, setRaw } from "./settings.js";

const GLYPHS = { image: "▣", video: "▶", audio: "♪" };

/** Show the turns that were found of a conversation, and what brings more of them. */
export function conversation(sample, found, { clamp = false } = {}) {
  const list = h("ol", { class: "chat", "aria-label": `Conversation ${found.extension}` });
  const place = h("div", {}, list);
  add(place, list, sample, found, clamp);
  return place;
}

/** The switch between turns as they are written and as Markdown; of all turns that are shown. */
function rawSwitch() {
  return button("Raw text", () => {
    const on = !chosen("raw");
    setRaw(on);
    for (const each of document.querySelectorAll(".raw-switch")) each.setAttribute("aria-pressed", String(on));
  }, { class: "plain raw-switch", "aria-pressed": String(chosen("raw")), title: "Turns as they are written, without Markdown" });
}

function add(place, list, sample, found, clamp) {
  list.append(...found.turns.map((turn) => turnOf(turn, clamp)));
  if (list.querySelector(".formatted") && !place.querySelector(".raw-switch")) place.prepend(rawSwitch());
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
    ? textOf(text)
    : h("span", { class: "chip" }, h("span", { "aria-hidden": "true" }, `${GLYPHS[kind] ?? "·"} `), kind))));
  if (!parts.length) said.append(h("p", { class: "muted" }, "(nothing)"));
  return h("li", { class: `turn ${side}` }, h("span", { class: "role" }, role), clamp ? clamped(said) : said);
}

/** A text; where it has Markdown, formatted and as it is written, of which one is shown. */
function textOf(text) {
  const formatted = markdown(text);
  return formatted ? [h("div", { class: "formatted" }, formatted), h("p", { class: "raw" }, text)] : h("p", {}, text);
}
