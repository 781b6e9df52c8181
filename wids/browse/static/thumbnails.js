// Small pictures. The server answers at once for one that takes long to draw, and is asked again.

import { thumb } from "./api.js";
import { h } from "./dom.js";

const LATER = [3, 2]; // width and height of the picture that stands for one that is still drawn
const BROKEN = [317, 237]; // of the one that stands for what cannot be drawn
const FIRST_MILLISECONDS = 500;
const LONGEST_MILLISECONDS = 8000;

/** Whether an image is the one that stands for what cannot be drawn. */
export function isBroken(image) {
  return image.naturalWidth === BROKEN[0] && image.naturalHeight === BROKEN[1];
}

/** Let the next video of a sample take the place of one that cannot be drawn; false if it is the last. */
export function otherFilm(sample) {
  if (!sample.more_films?.length) return false;
  sample.film = sample.more_films.shift();
  return true;
}

/** The small picture of a field of a sample; where that is a broken video, of its next one. */
export function thumbnail(sample, field, pixels, properties = {}) {
  let drawn = field;
  let pause = FIRST_MILLISECONDS;
  const again = (event) => {
    const image = event.target;
    if (image.naturalWidth !== LATER[0] || image.naturalHeight !== LATER[1]) return;
    setTimeout(() => {
      // Another URL, since a browser need not load the same one twice.
      if (image.isConnected) image.src = image.src.replace(/soon=(\d+)/, (_, tries) => `soon=${Number(tries) + 1}`);
    }, pause);
    pause = Math.min(2 * pause, LONGEST_MILLISECONDS);
  };
  const image = h("img", { src: `${thumb(sample, field, pixels)}&soon=1`, alt: "", loading: "lazy", decoding: "async", ...properties });
  image.addEventListener("load", again);
  image.addEventListener("load", () => {
    if (!sample.film || !isBroken(image) || (drawn === sample.film.field && !otherFilm(sample))) return;
    image.src = image.src.replace(`&f=${drawn}&`, `&f=${sample.film.field}&`);
    drawn = sample.film.field;
  });
  return image;
}
