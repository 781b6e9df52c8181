// Sound and video: a player, and what is shown of those that the browser cannot play.

import { raw, thumb } from "./api.js";
import { h } from "./dom.js";

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

function unplayable(text) {
  return h("p", { class: "note" }, text);
}
