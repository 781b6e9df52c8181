// Small pictures. The server answers at once for one that takes long to draw, and is asked again.

import { thumb } from "./api.js";
import { h } from "./dom.js";

const LATER = [3, 2]; // width and height of the picture that stands for one that is still drawn
const FIRST_MILLISECONDS = 500;
const LONGEST_MILLISECONDS = 8000;

/** The small picture of a field of a sample. */
export function thumbnail(sample, field, pixels, properties = {}) {
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
  return image;
}
