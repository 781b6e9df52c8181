// Sounds that are played in place: waveform, time, and one playing at a time.

import { raw } from "./api.js";
import { announce, button, h } from "./dom.js";
import { seconds } from "./format.js";
import { thumbnail } from "./thumbnails.js";

const STEPS = 1000; // of the slider
const player = new Audio(); // one for the page, so that one sound plays at a time
let row = null; // {button, slider, time, shown}: the sound that it plays

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
  const wave = found.wave ? thumbnail({ ...sample, film: null }, found.field, 1280) : null;
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
  mark(here, share);
  if (row === here && Number.isFinite(player.duration)) player.currentTime = share * player.duration;
}

function follow() {
  if (!row) return;
  // Who goes to another page hears no more of this one.
  if (!row.element.isConnected) return player.pause();
  const share = player.duration ? player.currentTime / player.duration : 0;
  row.slider.value = Math.round(share * STEPS);
  mark(row, share);
  row.time.textContent = `${seconds(player.currentTime)} / ${seconds(Number.isFinite(player.duration) ? player.duration : row.duration ?? 0)}`;
  row.slider.setAttribute("aria-valuetext", row.time.textContent);
}

function mark(here, share) {
  here.played.style.width = `${100 * share}%`;
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
