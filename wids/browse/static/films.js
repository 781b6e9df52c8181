// Videos in the grid: a still picture that plays while one points at it or presses its button.

import { raw, thumb } from "./api.js";
import { button, h } from "./dom.js";
import { isBroken, otherFilm } from "./thumbnails.js";

const PATIENCE = 180; // milliseconds that one points at a tile before it plays
const FRAME = 400; // milliseconds of a frame of a strip
const [ROWS, COLUMNS] = [2, 4]; // of a strip

const still = matchMedia("(prefers-reduced-motion: reduce)");
let playing = null; // {item, stop}: one at a time

/** Let the tile in a list item play its video. */
export function playsFilm(item, tile) {
  let timer = null;
  const press = button("▶", () => {
    if (playing?.item === item) stop();
    else start(item, tile, press);
  }, { class: "badge play", "data-play": "", "aria-label": `Play ${tile.key ?? `sample ${tile.index}`}`, "aria-pressed": "false" });
  item.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse" || still.matches || playing?.item === item) return;
    timer = setTimeout(() => start(item, tile, press), PATIENCE);
  });
  item.addEventListener("pointerleave", (event) => {
    clearTimeout(timer);
    if (event.pointerType === "mouse" && playing?.item === item) stop();
  });
  item.append(press);
}

function stop() {
  playing?.end();
  playing = null;
}

function start(item, tile, press) {
  stop();
  const picture = item.querySelector(".picture");
  if (!picture) return;
  press.setAttribute("aria-pressed", "true");
  press.textContent = "❚❚";
  const give = () => otherFilm(tile) && start(item, tile, press);
  const shown = tile.film.media_type ? film(tile, give) : frames(tile, give);
  picture.append(shown.element);
  playing = { item, end() {
    shown.end();
    shown.element.remove();
    press.setAttribute("aria-pressed", "false");
    press.textContent = "▶";
  } };
}

/** The video itself, without its sound; frames of it where the browser cannot play it. */
function film(tile, giveUp) {
  const place = h("span", { class: "film" });
  let inner = null;
  const give = () => {
    if (inner) return;
    inner = frames(tile, giveUp);
    place.replaceChildren(inner.element);
  };
  const player = h("video", {
    muted: true, loop: true, playsinline: true, autoplay: true, src: raw(tile, tile.film.field), "aria-hidden": "true", tabindex: -1, onerror: give,
    onloadedmetadata: () => { if (!player.videoWidth) give(); },
  });
  player.muted = true; // the attribute alone counts for the parser only
  place.append(player);
  return { element: place, end() { player.pause(); player.removeAttribute("src"); player.load(); inner?.end(); } };
}

/** Frames that the server draws, one after the other; a call if there are none. */
function frames(tile, giveUp) {
  if (!tile.film.strip) return { element: h("span", { class: "film said" }, "This browser cannot play it."), end() {} };
  const sheet = h("img", { class: "frames", alt: "", src: `${thumb(tile, tile.film.field, 1280)}&strip=1` });
  const window = h("span", { class: "film" }, h("span", { class: "window" }, sheet));
  let number = 0;
  sheet.addEventListener("load", () => {
    if (!sheet.isConnected) return;
    if (isBroken(sheet)) {
      if (!giveUp()) window.replaceChildren("No frame of it can be drawn.");
      window.classList.add("said");
      return;
    }
    sheet.parentElement.style.aspectRatio = String(sheet.naturalWidth / COLUMNS / (sheet.naturalHeight / ROWS));
  });
  const timer = setInterval(() => {
    number = (number + 1) % (ROWS * COLUMNS);
    sheet.style.transform = `translate(${(-100 * (number % COLUMNS)) / COLUMNS}%, ${(-100 * Math.floor(number / COLUMNS)) / ROWS}%)`;
  }, FRAME);
  return { element: window, end: () => clearInterval(timer) };
}
