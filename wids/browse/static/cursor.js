// Where one is among the tiles. Presses count while their page is still coming.

const STEPS = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1 };

let page = null; // {list, at, count, total, ready, open}: the page that is shown or on its way
let wanted = null; // the position to focus when its page is there
let columns = 1;

/** Say which page one is going to, or null where there is no grid; `open(at)` goes to another. */
export function turnTo(next) {
  page = next;
  if (!next) wanted = null;
}

/** Say that the tiles of the page are there. */
export function arrive() {
  if (!page) return;
  page.ready = true;
  if (wanted === null) return;
  tile(wanted)?.focus();
  wanted = null;
}

/** Move among the tiles, and on to other pages; returns whether the key is one that moves. */
export function move(key) {
  if (!page || !page.total) return false;
  const delta = STEPS[key] ?? { ArrowDown: rowLength(), ArrowUp: -rowLength() }[key];
  if (delta === undefined) return false;
  const here = wanted ?? focused();
  const to = here === null ? page.at : Math.min(Math.max(here + delta, 0), page.total - 1);
  const inside = to >= page.at && to < page.at + page.count;
  if (inside && page.ready) {
    tile(to)?.focus();
    return true;
  }
  wanted = to;
  if (!inside) page.open(Math.floor(to / page.count) * page.count);
  return true;
}

function tile(position) {
  return page.list.querySelector(`[data-position="${position}"]`);
}

function focused() {
  const place = document.activeElement?.closest("[data-position]")?.dataset.position;
  return place === undefined ? null : Number(place);
}

/** Tiles in a row: as many as there are in the first. */
function rowLength() {
  const tiles = [...page.list.querySelectorAll("[data-position]")];
  if (!tiles.length) return columns;
  const top = tiles[0].getBoundingClientRect().bottom;
  const next = tiles.findIndex((each) => each.getBoundingClientRect().top >= top);
  columns = next < 1 ? tiles.length : next;
  return columns;
}
