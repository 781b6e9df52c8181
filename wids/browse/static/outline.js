// What the pointer and the keys do on a map: move, zoom, outline, and go from point to point.

const CORNERS = 90; // of an outline; it has to fit a URL
const STEP = 60; // pixels that + - and the arrows without a point move

/**
 * Let a canvas be used. `act` learns what is meant: {hover(n, left, top), open(n), mark(n), outline(corners)};
 * `mode()` is "move", "lasso" or "box".
 */
export function listenOn(canvas, plane, mode, act) {
  let drag = null;
  let cursor = -1; // the point that the keys are at
  let box = null; // the corner from which Shift and the arrows widen a box

  const at = (event) => [event.offsetX, event.offsetY];
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    event.preventDefault();
    plane.zoom(1.0015 ** -event.deltaY, ...at(event));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const how = event.shiftKey ? "box" : mode();
    drag = { how, from: at(event), last: at(event), path: [at(event)], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    if (!drag) return act.hover(plane.nearest(...here), ...here);
    if (!drag.moved && Math.hypot(here[0] - drag.from[0], here[1] - drag.from[1]) < 4) return undefined;
    drag.moved = true;
    if (drag.how === "move") plane.move(here[0] - drag.last[0], here[1] - drag.last[1]);
    else {
      drag.path = drag.how === "box" ? corners(drag.from, here) : [...drag.path, here];
      plane.show({ outline: drag.path.map((each) => plane.toPlane(...each)) });
    }
    drag.last = here;
    return undefined;
  });
  canvas.addEventListener("pointerup", (event) => {
    const done = drag;
    drag = null;
    if (!done) return;
    if (!done.moved) {
      const point = plane.nearest(...at(event));
      if (point >= 0) act.open(point);
    } else if (done.how !== "move") act.outline(thinned(done.path).map((each) => plane.toPlane(...each)));
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { if (!drag) act.hover(-1); });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  function press({ key, shiftKey }) {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [0, 0];
    if (dx || dy) step(dx, dy, shiftKey);
    else if (key === "+" || key === "=") plane.zoom(1.4);
    else if (key === "-") plane.zoom(1 / 1.4);
    else if (key === "0") plane.reset();
    else if (key === "Enter" && box) { act.outline(box.corners.map((each) => plane.toPlane(...each))); box = null; }
    else if (key === "Enter" && cursor >= 0) act.open(cursor);
    else if (key === "m" && cursor >= 0) act.mark(cursor);
    else return false;
    return true;
  }

  /** Go to the next point in a direction; with Shift, widen a box instead. */
  function step(dx, dy, widen) {
    const middle = [canvas.clientWidth / 2, canvas.clientHeight / 2];
    const [left, top] = cursor < 0 ? middle : plane.pointAt(cursor);
    if (widen) {
      box ??= { from: [left, top], to: [left, top] };
      box.to = [box.to[0] + dx * STEP / 2, box.to[1] + dy * STEP / 2];
      box.corners = corners(box.from, box.to);
      plane.show({ outline: box.corners.map((each) => plane.toPlane(...each)) });
      return;
    }
    box = null;
    const next = cursor < 0 ? plane.nearest(left, top, Infinity)
      : plane.nearest(left, top, Infinity, (n, x, y) => n !== cursor && dx * (x - left) + dy * (y - top) > Math.abs(dy * (x - left)) + Math.abs(dx * (y - top)));
    if (next < 0) return;
    cursor = next;
    keepInside(plane.pointAt(cursor));
    plane.show({ cursor });
    act.hover(cursor, ...plane.pointAt(cursor), true);
  }

  function keepInside([left, top]) {
    const over = (value, size) => (value < STEP ? STEP - value : value > size - STEP ? size - STEP - value : 0);
    plane.move(over(left, canvas.clientWidth), over(top, canvas.clientHeight));
  }
}

const corners = ([left, top], [right, bottom]) => [[left, top], [right, top], [right, bottom], [left, bottom]];

/** Every so many points of a path, so that few are left. */
function thinned(path) {
  const step = Math.max(1, Math.ceil(path.length / CORNERS));
  return path.filter((_, n) => n % step === 0);
}
