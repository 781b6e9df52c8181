// Points on a canvas: drawn, moved, zoomed, and found again under the pointer.

const NEAR = 14; // pixels from a point that one points at
const [LEAST, MOST] = [0.5, 4000]; // magnification

/** A canvas of points; `places` are x and y of each in turn. */
export function makePlane(canvas, places) {
  const count = places.length / 2;
  const context = canvas.getContext("2d");
  const home = fitted(places);
  let view = { x: home.x, y: home.y, scale: 1 }; // what is in the middle, and how large
  let shown = { colours: [], order: [], crowd: [], pale: () => false, outline: null, cursor: -1 };
  let drawing = 0;

  const unit = () => (Math.min(canvas.clientWidth, canvas.clientHeight) / home.size) * view.scale;
  const toScreen = (x, y) => [canvas.clientWidth / 2 + (x - view.x) * unit(), canvas.clientHeight / 2 - (y - view.y) * unit()];
  const toPlane = (left, top) => [view.x + (left - canvas.clientWidth / 2) / unit(), view.y - (top - canvas.clientHeight / 2) / unit()];
  const pointAt = (n) => toScreen(places[2 * n], places[2 * n + 1]);

  function draw() {
    drawing = 0;
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const size = Math.min(Math.max(0.18 * Math.sqrt((width * height) / count), 2), 7) * Math.min(1 + Math.log2(Math.max(view.scale, 1)) / 6, 2);
    const style = getComputedStyle(canvas);
    const stands = [];
    // Pale ones first, so that they hide none.
    for (const pale of [true, false]) {
      context.globalAlpha = pale ? 0.13 : 0.78;
      for (const n of shown.order) {
        if (shown.pale(n) !== pale) continue;
        const [left, top] = pointAt(n);
        if (left < -9 || top < -9 || left > width + 9 || top > height + 9) continue;
        if (shown.crowd[n] >= 0 && !pale) stands.push([n, left, top]);
        context.fillStyle = shown.colours[n];
        context.fillRect(left - size / 2, top - size / 2, size, size);
      }
    }
    context.globalAlpha = 1;
    // In a ring of the ground, since a crowd has no gaps around them; and in one of the crowd, which may be as small.
    const side = Math.max(Math.round(size) + 1, 4);
    for (const edge of [2, 1, 0]) {
      for (const [n, left, top] of stands) {
        context.fillStyle = [shown.colours[n], style.backgroundColor, shown.colours[shown.crowd[n]]][edge];
        context.fillRect(Math.round(left - side / 2) - edge, Math.round(top - side / 2) - edge, side + 2 * edge, side + 2 * edge);
      }
    }
    context.strokeStyle = style.color;
    context.lineWidth = 2;
    if (shown.cursor >= 0) {
      const [left, top] = pointAt(shown.cursor);
      context.strokeRect(left - size / 2 - 4, top - size / 2 - 4, size + 8, size + 8);
    }
    if (!shown.outline) return;
    const outline = pathOf(shown.outline);
    context.globalAlpha = 0.12;
    context.fillStyle = style.color;
    context.fill(outline);
    context.globalAlpha = 1;
    context.setLineDash([6, 4]);
    context.stroke(outline);
    context.setLineDash([]);
  }
  function pathOf(corners) {
    const path = new Path2D();
    for (const [x, y] of corners) path.lineTo(...toScreen(x, y));
    path.closePath();
    return path;
  }
  function redraw() {
    drawing ||= requestAnimationFrame(draw);
  }

  return {
    redraw, toPlane, pointAt,
    show(more) { shown = { ...shown, ...more }; redraw(); },
    zoom(factor, left = canvas.clientWidth / 2, top = canvas.clientHeight / 2) {
      const [x, y] = toPlane(left, top);
      const scale = Math.min(Math.max(view.scale * factor, LEAST), MOST);
      const kept = view.scale / scale;
      view = { x: x + (view.x - x) * kept, y: y + (view.y - y) * kept, scale };
      redraw();
    },
    move(dx, dy) { view = { ...view, x: view.x - dx / unit(), y: view.y + dy / unit() }; redraw(); },
    reset() { view = { x: home.x, y: home.y, scale: 1 }; redraw(); },
    /** The nearest point to a place on the screen; -1 if none is near. */
    nearest(left, top, most = NEAR, fits = () => true) {
      let [best, distance] = [-1, most * most];
      for (let n = 0; n < count; n += 1) {
        const [x, y] = pointAt(n);
        // One that is drawn over a crowd is meant before those below it.
        const far = (x - left) ** 2 + (y - top) ** 2 - (shown.crowd[n] >= 0 && !shown.pale(n) ? 16 : 0);
        if (far < distance && fits(n, x, y)) [best, distance] = [n, far];
      }
      return best;
    },
    inside(corners) {
      const path = pathOf(corners);
      context.resetTransform();
      return Array.from({ length: count }, (_, n) => n).filter((n) => context.isPointInPath(path, ...pointAt(n), "evenodd"));
    },
  };
}

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

// Places of many points: what they span, which lie in an outline, which are unlike those around them.

const CELL = 48; // points at most, that are compared with each other
const RARE = 0.1; // of the points of the commonest group in a cell
const ALIKE = 3; // points of a group that make a crowd of their own
const MOST_CHECKED = 400; // points that are compared with all others

/** The order to draw points in: the more of its group lie around a point, the earlier; and the crowd around those hardly like any, by one of its points, else -1. */
export function rareLast(places, groups) {
  const points = Uint32Array.from(groups, (_, n) => n);
  const [share, crowd] = [new Float32Array(groups.length), new Int32Array(groups.length).fill(-1)];
  inCells(places, points, 0, (cell) => {
    const counts = new Map();
    for (const n of cell) counts.set(groups[n], (counts.get(groups[n]) ?? 0) + 1);
    const most = Math.max(...counts.values());
    const common = cell.find((n) => counts.get(groups[n]) === most);
    for (const n of cell) {
      share[n] = counts.get(groups[n]) / most;
      if (share[n] <= RARE) crowd[n] = common;
    }
  });
  const order = points.sort((a, b) => share[b] - share[a] || a - b);
  // A cell may reach over a gap to another crowd.
  for (const n of order.slice(-MOST_CHECKED)) if (crowd[n] >= 0) crowd[n] = crowdAround(places, groups, n);
  return { order, crowd };
}

/** Halve points by x and y in turn, down to few that lie together. */
function inCells(places, points, axis, call) {
  if (points.length <= CELL) return call(points);
  points.sort((a, b) => places[2 * a + axis] - places[2 * b + axis]);
  const half = points.length >> 1;
  for (const part of [points.subarray(0, half), points.subarray(half)]) inCells(places, part, 1 - axis, call);
}

/** The nearest point of another group, if far more of others lie around a point than of its own; else -1. */
function crowdAround(places, groups, point) {
  const far = (n) => (places[2 * n] - places[2 * point]) ** 2 + (places[2 * n + 1] - places[2 * point + 1]) ** 2;
  const alike = [];
  const others = [];
  let [nearest, least] = [-1, Infinity];
  groups.forEach((group, n) => {
    if (n === point) return;
    const distance = far(n);
    (group === groups[point] ? alike : others).push(distance);
    if (group !== groups[point] && distance < least) [nearest, least] = [n, distance];
  });
  const reach = Float64Array.from(alike).sort()[ALIKE - 1] ?? Infinity;
  return others.filter((each) => each < reach).length >= ALIKE / RARE ? nearest : -1;
}

/** The middle and size of what all but the outermost points span. */
function fitted(places) {
  const span = (offset) => {
    const values = places.filter((_, n) => n % 2 === offset).sort((a, b) => a - b);
    if (!values.length) return [0, 1];
    const far = Math.floor(values.length / 200);
    return [values[far], values[values.length - 1 - far]];
  };
  const [[left, right], [bottom, top]] = [span(0), span(1)];
  return { x: (left + right) / 2, y: (bottom + top) / 2, size: Math.max(right - left, top - bottom, 1e-30) * 1.12 };
}
