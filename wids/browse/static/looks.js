// The ways to look at samples: tiles of three sizes, a list, conversations, texts, sounds, a table.

import { button, h } from "./dom.js";
import { go, gridPart } from "./state.js";

const TILES = { s: "S: small tiles", m: "M: medium tiles", l: "L: large tiles" };
const OTHERS = {
  list: ["List", "List of pictures, texts and values"], chat: ["Chat", "Conversations"], text: ["Text", "Texts to read"],
  audio: ["Audio", "Sounds to listen to"], table: ["Table", "Table of columns"],
  count: ["Count", "Samples counted by a column"], map: ["Map", "Map of a field of vectors"],
};
const COUNTS = { s: 120, m: 60, l: 24, list: 24, chat: 24, text: 24, audio: 24, table: 60 }; // samples on a page

let here = {}; // the state that is shown
let known = { usual: "grid", offered: ["grid", "list", "table"], vectors: [] }; // as the server says of the dataset

/** Learn from the server which looks fit the dataset. */
export function learn(looks) {
  known = looks;
}

/** The look that a state names; null for that which fits the dataset. */
export function named(state) {
  return state.look ?? (state.size ? "grid" : null);
}

export function lookOf(state) {
  return named(state) ?? known.usual;
}

/** How many samples a page of this look has. */
export function countOf(state, look = lookOf(state)) {
  return COUNTS[look === "grid" ? state.size ?? "m" : look] ?? COUNTS.m;
}

/** Fill the place of the buttons that choose a look; they stay, with the focus on one, if nothing is new. */
export function fillLooks(place, state) {
  here = state;
  const now = lookOf(state);
  const size = now === "grid" ? state.size ?? "m" : null;
  const key = JSON.stringify([known, now, size]);
  if (place.dataset.drawn === key) return;
  const focus = [...place.children].indexOf(document.activeElement);
  place.dataset.drawn = key;
  const to = (look, wanted) => () => {
    const usual = look === known.usual && !wanted;
    go({ ...gridPart(here), at: here.at, look: usual ? null : look, size: wanted }, { replace: true });
  };
  const choice = (text, label, on, act) => button(text, act, { "aria-pressed": String(on), title: label, "aria-label": label });
  place.replaceChildren(
    ...Object.entries(TILES).map(([name, label]) => choice(name.toUpperCase(), label, name === size, to("grid", name === "m" ? null : name))),
    ...Object.entries(OTHERS).filter(([name]) => known.offered.includes(name) || name === now || name === "count" || (name === "map" && known.vectors.length))
      .map(([name, [text, label]]) => choice(text, label, name === now, to(name, null))));
  if (focus >= 0) place.children[focus]?.focus();
}
