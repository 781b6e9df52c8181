// Points on a canvas: drawn, moved, zoomed, and found again under the pointer.

import { fitted, holds } from "./crowds.js";

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
    context.beginPath();
    for (const [x, y] of shown.outline) context.lineTo(...toScreen(x, y));
    context.closePath();
    context.globalAlpha = 0.12;
    context.fillStyle = style.color;
    context.fill();
    context.globalAlpha = 1;
    context.setLineDash([6, 4]);
    context.stroke();
    context.setLineDash([]);
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
      const found = [];
      for (let n = 0; n < count; n += 1) if (holds(corners, places[2 * n], places[2 * n + 1])) found.push(n);
      return found;
    },
  };
}
