// A histogram of which a range is chosen by a drag, a click or the keyboard.

import { h, svg } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 46;

/**
 * Draw counts of all samples in grey and of those shown in colour.
 * `chosen` is [first, stop) in bins or null; `onchoose` gets such a pair, or null to choose none.
 */
export function histogram({ all, now, label, name, titles, chosen, onchoose }) {
  const top = Math.max(...all, ...now, 1);
  const step = WIDTH / all.length;
  const bar = (counts, place, kind) => {
    const height = counts[place] ? Math.max(1.5, (counts[place] / top) * HEIGHT) : 0;
    return svg("rect", { class: kind, x: place * step + 0.5, y: HEIGHT - height, width: Math.max(0.5, step - 1), height });
  };
  const band = svg("rect", { class: "band", y: 0, height: HEIGHT, x: 0, width: 0 });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    band, all.map((_, place) => svg("g", {}, bar(all, place, "all"), bar(now, place, "now"), svg("rect", { class: "hit", x: place * step, y: 0, width: step, height: HEIGHT }, svg("title", {}, titles[place])))));
  // One place that takes the keyboard: arrows move a range of one bin, with Shift they widen it.
  const place = h("div", { class: "histogram", tabindex: 0, role: "slider", "aria-label": label, "data-name": name, "aria-valuemin": 0, "aria-valuemax": all.length - 1 }, picture);
  let start = null;
  let range = chosen;
  paint();

  function paint() {
    band.setAttribute("x", range ? range[0] * step : 0);
    band.setAttribute("width", range ? (range[1] - range[0]) * step : 0);
    place.setAttribute("aria-valuenow", range ? range[0] : 0);
    place.setAttribute("aria-valuetext", range ? `${titles[range[0]]} to ${titles[range[1] - 1]}` : "no range chosen");
  }

  const binAt = (event) => {
    const box = picture.getBoundingClientRect();
    const bin = Math.floor(((event.clientX - box.left) / box.width) * all.length);
    return Math.min(Math.max(bin, 0), all.length - 1);
  };
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = binAt(event);
    place.setPointerCapture(event.pointerId);
    place.classList.add("dragged");
    drag(event);
  });
  place.addEventListener("pointermove", drag);
  place.addEventListener("pointerup", () => {
    if (start === null) return;
    start = null;
    place.classList.remove("dragged");
    // A click on the one bin that is chosen takes the choice back.
    const again = chosen && range[0] === chosen[0] && range[1] === chosen[1];
    onchoose(again ? null : range);
  });
  place.addEventListener("pointercancel", () => { start = null; range = chosen; place.classList.remove("dragged"); paint(); });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Delete" || event.key === "Backspace") onchoose(null);
    else if (event.key === "Enter" && range) onchoose(range);
    else if (step) range = moved(step, event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
    paint();
  });

  function moved(step, widen) {
    if (!range) return [0, 1];
    const last = Math.min(Math.max(range[1] - 1 + step, widen ? range[0] : 0), all.length - 1);
    return widen ? [range[0], last + 1] : [last, last + 1];
  }

  function drag(event) {
    if (start === null) return;
    const bin = binAt(event);
    range = [Math.min(start, bin), Math.max(start, bin) + 1];
    paint();
  }

  return place;
}
