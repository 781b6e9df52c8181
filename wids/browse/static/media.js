// Small pictures. The server answers at once for one that takes long to draw, and is asked again.

import { announce, button, h, seconds } from "./ui.js";
import { raw, thumb } from "./urls.js";

const LATER = [3, 2]; // width and height of the picture that stands for one that is still drawn
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

document.addEventListener("play", (event) => {
  for (const each of document.querySelectorAll("audio, video")) if (each !== event.target && !each.muted) each.pause();
}, true);

/** Show a sound of a sample with its waveform, to be played in place. */
export function sound(sample, found) {
  const name = `${found.extension} of sample ${sample.index}`;
  const player = h("audio", { preload: "none", src: raw(sample, found.field), onplay: tell, onpause: tell, ontimeupdate: follow, onerror: () => refuse("This browser cannot play it.") });
  const press = button("▶", () => (player.paused ? player.play().catch(() => {}) : player.pause()), { class: "play", "data-play": "", "aria-label": `Play ${name}` }); // the event of the error says it
  const played = h("div", { class: "played" });
  const slider = h("input", { type: "range", min: 0, max: STEPS, value: 0, step: 1, "aria-label": `Place in ${name}`, oninput: seek });
  const time = h("span", { class: "time" }, typeof found.duration === "number" ? seconds(found.duration) : "");
  const element = h("div", { class: "sound" }, press, h("div", { class: "track" }, found.wave ? thumbnail(sample, found.field, 1280) : null, played, slider), time, player);
  const length = () => (Number.isFinite(player.duration) ? player.duration : found.duration ?? 0);

  function tell() {
    press.textContent = player.paused ? "▶" : "❚❚";
    press.setAttribute("aria-label", `${player.paused ? "Play" : "Pause"} ${name}`);
    element.classList.toggle("on", !player.paused);
  }
  function follow() {
    const share = length() ? player.currentTime / length() : 0;
    slider.value = Math.round(share * STEPS);
    played.style.width = `${100 * share}%`;
    time.textContent = `${seconds(player.currentTime)} / ${seconds(length())}`;
    slider.setAttribute("aria-valuetext", time.textContent);
  }
  function seek() {
    const share = Number(slider.value) / STEPS;
    played.style.width = `${100 * share}%`;
    player.currentTime = share * length(); // before the sound is there, where it begins
  }
  function refuse(why) {
    press.disabled = true;
    slider.disabled = true;
    tell();
    time.replaceWith(h("span", { class: "problem" }, why));
    announce(`${name}: ${why}`);
  }
  if (!found.media_type) refuse("No browser plays this format.");
  return element;
}

// Videos in the grid: a still picture that plays while one points at it or presses its button.

const PATIENCE = 180; // milliseconds that one points at a tile before it plays

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let stopFilm = () => {}; // of the one that plays

/** Let the tile in a list item play its video, without its sound. */
export function playsFilm(item, tile) {
  let timer = null;
  let shown = null;
  const press = button("▶", () => (shown ? stop() : start()), { class: "badge play", "data-play": "", "aria-label": `Play ${tile.key ?? `sample ${tile.index}`}`, "aria-pressed": "false" });
  item.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "mouse" && !calm.matches && !shown) timer = setTimeout(start, PATIENCE);
  });
  item.addEventListener("pointerleave", (event) => {
    clearTimeout(timer);
    if (event.pointerType === "mouse") stop();
  });
  item.append(press);

  function start() {
    stopFilm();
    stopFilm = stop;
    const player = h("video", {
      muted: true, loop: true, playsinline: true, autoplay: true, src: raw(tile, tile.film), "aria-hidden": "true", tabindex: -1,
      onerror: fail, onloadedmetadata: () => { if (!player.videoWidth) fail(); },
    });
    player.muted = true; // the attribute alone counts for the parser only
    shown = h("span", { class: "film" }, player);
    item.querySelector(".picture").append(shown);
    tell();
  }
  function fail() {
    shown?.replaceChildren("This browser cannot play it.");
    shown?.classList.add("said");
  }
  function stop() {
    // A video that is out of the page would go on loading.
    const player = shown?.querySelector("video");
    shown?.remove();
    shown = null;
    player?.removeAttribute("src");
    player?.load();
    tell();
  }
  function tell() {
    press.setAttribute("aria-pressed", String(Boolean(shown)));
    press.textContent = shown ? "❚❚" : "▶";
  }
}
