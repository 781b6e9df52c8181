// Small pictures. The server answers at once for one that takes long to draw, and is asked again.

import { announce, button, h, seconds } from "./ui.js";
import { raw, thumb } from "./urls.js";

const LATER = [3, 2]; // width and height of the picture that stands for one that is still drawn
const BROKEN = [317, 237]; // of the one that stands for what cannot be drawn
const [FIRST_MILLISECONDS, LONGEST_MILLISECONDS] = [500, 8000]; // between the questions

/** The small picture of a field of a sample. */
export function thumbnail(sample, field, pixels, properties = {}) {
  let pause = FIRST_MILLISECONDS;
  const image = h("img", { src: `${thumb(sample, field, pixels)}&soon=1`, alt: "", loading: "lazy", decoding: "async", ...properties });
  image.addEventListener("load", () => {
    if (image.naturalWidth !== LATER[0] || image.naturalHeight !== LATER[1]) return;
    setTimeout(() => {
      // Another URL, since a browser need not load the same one twice.
      if (image.isConnected) image.src = image.src.replace(/soon=(\d+)/, (_, tries) => `soon=${Number(tries) + 1}`);
    }, pause);
    pause = Math.min(2 * pause, LONGEST_MILLISECONDS);
  });
  return image;
}

// Sound and video: a player, and what is shown of those that the browser cannot play.

const INSTALL = "The server shows frames where PyAV is installed: pip install av.";

/** Show a sound with its waveform. */
export function audio(sample, field) {
  const wave = field.wave ? h("img", { class: "wave", src: thumb(sample, field.number, 640), alt: "How loud it is over time" }) : null;
  if (!field.media_type) return [wave, unplayable("No browser plays this format; download it to listen.")];
  const player = h("audio", { controls: true, preload: "metadata", src: raw(sample, field.number), "aria-label": `Sound ${field.extension}` });
  player.addEventListener("error", () => player.replaceWith(unplayable("This browser cannot play it; download it to listen.")));
  return [wave, player];
}

/** Show a video; frames of it if the browser cannot play it. */
export function video(sample, field) {
  if (!field.media_type) return still(sample, field, `No browser plays ${field.summary.unlike ? "a field of this extension" : "this format"}.`);
  const place = h("div", {});
  const give = () => place.replaceChildren(...still(sample, field, "This browser cannot play it.").filter(Boolean));
  const player = h("video", {
    controls: true, preload: "metadata", src: raw(sample, field.number), "aria-label": `Video ${field.extension}`, onerror: give,
    // The sound alone can be played.
    onloadedmetadata: () => { if (!player.videoWidth) give(); },
  });
  place.append(player);
  return place;
}

function still(sample, field, why) {
  const said = unplayable(field.strip ? `${why} These are frames of it, at even distances.` : `${why} ${INSTALL}`);
  if (!field.strip) return [said];
  const size = devicePixelRatio > 1.2 ? 2560 : 1280;
  return [said, h("img", { class: "strip", src: `${thumb(sample, field.number, size)}&strip=1`, alt: `Frames of ${field.extension}` })];
}

const unplayable = (text) => h("p", { class: "note" }, text);

// Sounds that are played in place: waveform, time, and one playing at a time.

const STEPS = 1000; // of the slider
const player = new Audio(); // one for the page, so that one sound plays at a time
let row = null; // what `sound` made, of the sound that it plays

player.addEventListener("timeupdate", follow);
player.addEventListener("ended", follow);
for (const name of ["play", "pause"]) player.addEventListener(name, () => row && tell(row));
player.addEventListener("error", () => {
  if (!row || !player.getAttribute("src")) return;
  refuse(row, "This browser cannot play it.");
  row = null;
});
// A player on the page of a sample silences the others, too.
document.addEventListener("play", (event) => {
  player.pause();
  for (const each of document.querySelectorAll("audio, video")) if (each !== event.target && !each.muted) each.pause();
}, true);

/** Show a sound of a sample with its waveform, to be played in place. */
export function sound(sample, found) {
  const name = `${found.extension} of sample ${sample.index}`;
  const wave = found.wave ? thumbnail(sample, found.field, 1280) : null;
  const played = h("div", { class: "played" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: 0, step: 1, "aria-label": `Place in ${name}`, oninput: () => seek(here) });
  const time = h("span", { class: "time" }, typeof found.duration === "number" ? seconds(found.duration) : "");
  const here = { sample, found, name, played, slider, time, duration: found.duration };
  here.button = button("▶", () => toggle(here), { class: "play", "data-play": "", "aria-label": `Play ${name}` });
  here.element = h("div", { class: "sound" }, here.button, h("div", { class: "track" }, wave, played, slider), time);
  if (!found.media_type) refuse(here, "No browser plays this format.");
  return here.element;
}

function toggle(here) {
  if (row === here && !player.paused) return player.pause();
  start(here).catch(() => {}); // the event of the error says it
}

async function start(here) {
  if (row !== here) {
    const old = row;
    row = null;
    player.pause();
    if (old) tell(old);
    player.src = raw(here.sample, here.found.field);
    row = here;
    if (here.duration) player.addEventListener("loadedmetadata", () => seek(here), { once: true });
  }
  for (const each of document.querySelectorAll("audio, video")) if (!each.muted) each.pause();
  await player.play();
}

function seek(here) {
  const share = Number(here.slider.value) / STEPS;
  here.played.style.width = `${100 * share}%`;
  if (row === here && Number.isFinite(player.duration)) player.currentTime = share * player.duration;
}

function follow() {
  if (!row) return;
  // Who goes to another page hears no more of this one.
  if (!row.element.isConnected) return player.pause();
  const share = player.duration ? player.currentTime / player.duration : 0;
  row.slider.value = Math.round(share * STEPS);
  row.played.style.width = `${100 * share}%`;
  row.time.textContent = `${seconds(player.currentTime)} / ${seconds(Number.isFinite(player.duration) ? player.duration : row.duration ?? 0)}`;
  row.slider.setAttribute("aria-valuetext", row.time.textContent);
}

function tell(here) {
  const on = row === here && !player.paused;
  here.button.textContent = on ? "❚❚" : "▶";
  here.button.setAttribute("aria-label", `${on ? "Pause" : "Play"} ${here.name}`);
  here.element.classList.toggle("on", on);
}

function refuse(here, why) {
  here.button.disabled = true;
  here.button.textContent = "▶";
  here.slider.disabled = true;
  here.time.replaceWith(h("span", { class: "problem" }, why));
  announce(`${here.name}: ${why}`);
}

// Videos in the grid: a still picture that plays while one points at it or presses its button.

const PATIENCE = 180; // milliseconds that one points at a tile before it plays

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let playing = null; // {item, end}: one at a time

/** Let the tile in a list item play its video. */
export function playsFilm(item, tile) {
  let timer = null;
  const press = button("▶", () => {
    if (playing?.item === item) stopFilm();
    else startFilm(item, tile, press);
  }, { class: "badge play", "data-play": "", "aria-label": `Play ${tile.key ?? `sample ${tile.index}`}`, "aria-pressed": "false" });
  item.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse" || calm.matches || playing?.item === item) return;
    timer = setTimeout(() => startFilm(item, tile, press), PATIENCE);
  });
  item.addEventListener("pointerleave", (event) => {
    clearTimeout(timer);
    if (event.pointerType === "mouse" && playing?.item === item) stopFilm();
  });
  item.append(press);
}

function stopFilm() {
  playing?.end();
  playing = null;
}

function startFilm(item, tile, press) {
  stopFilm();
  const picture = item.querySelector(".picture");
  if (!picture) return;
  const tell = (on) => {
    press.setAttribute("aria-pressed", String(on));
    press.textContent = on ? "❚❚" : "▶";
  };
  tell(true);
  let shown = tile.film.media_type ? film(tile, () => { shown.replaceWith(shown = frames(tile)); }) : frames(tile);
  picture.append(shown);
  playing = { item, end() {
    // A video that is out of the page would go on loading.
    const player = shown.querySelector("video");
    player?.removeAttribute("src");
    player?.load();
    shown.remove();
    tell(false);
  } };
}

/** The video itself, without its sound; a call where the browser cannot play it. */
function film(tile, give) {
  const player = h("video", {
    muted: true, loop: true, playsinline: true, autoplay: true, src: raw(tile, tile.film.field), "aria-hidden": "true", tabindex: -1, onerror: () => player.getAttribute("src") && give(),
    onloadedmetadata: () => { if (!player.videoWidth) give(); },
  });
  player.muted = true; // the attribute alone counts for the parser only
  return h("span", { class: "film" }, player);
}

/** Frames that the server draws, side by side. */
function frames(tile) {
  const text = tile.film.strip ? null : "This browser cannot play it.";
  const sheet = h("img", { class: "frames", alt: "", src: `${thumb(tile, tile.film.field, 1280)}&strip=1` });
  const place = h("span", { class: text ? "film said" : "film" }, text ?? sheet);
  sheet.addEventListener("load", () => {
    if (sheet.naturalWidth !== BROKEN[0] || sheet.naturalHeight !== BROKEN[1]) return;
    place.replaceChildren("No frame of it can be drawn.");
    place.classList.add("said");
  });
  return place;
}
