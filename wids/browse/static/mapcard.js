// The card of a point of the map: picture, class and key of its sample.

import { ask } from "./api.js";
import { announce, h } from "./dom.js";
import { thumbnail } from "./thumbnails.js";

/** A card beside the point that one points at. */
export function cards(card, indexes, signal) {
  const known = new Map();
  let wanted = -1;
  return async (point, left, top, say = false) => {
    if (point === wanted) return;
    wanted = point;
    card.hidden = true;
    if (point < 0) return;
    const index = indexes[point];
    if (!known.has(index)) {
      await new Promise((resolve) => setTimeout(resolve, 70));
      if (wanted !== point) return;
      known.set(index, (await ask("page", { marks: index, count: 1, look: "grid" }, signal).catch(() => ({ tiles: [] }))).tiles[0]);
    }
    const tile = known.get(index);
    if (wanted !== point || !tile) return;
    const name = tile.label?.name ?? tile.label?.value;
    card.replaceChildren(...[tile.picture === null || tile.picture === undefined ? h("p", { class: "muted" }, tile.error ?? tile.caption ?? "") : thumbnail(tile, tile.picture, 256),
      h("p", {}, name === undefined ? null : h("strong", {}, `${name} `), h("span", { class: "key" }, h("bdi", {}, tile.key ?? `sample ${index}`)))]);
    const room = card.parentElement.clientWidth;
    card.style.left = `${Math.min(Math.max(left + 16, 4), Math.max(room - 212, 4))}px`;
    card.style.top = `${top + 16}px`;
    card.hidden = false;
    if (say) announce([name, tile.key].filter((each) => each !== undefined).join(" "));
  };
}
