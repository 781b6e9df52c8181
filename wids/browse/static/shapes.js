// The shapes that the server found in the JSON of a sample, and where they lie in its picture.

import { number } from "./ui.js";

export const FORMS = [["xywh", "x y width height"], ["xyxy", "x y to x y"], ["cxcywh", "centre, width height"]];

export const PIXELS = [["shown", "as shown"], ["stored", "in stored pixels"]];
// How EXIF's orientation turns the stored image: x and y along the new x, then y.
export const TURNS = { 2: [-1, 0, 0, 1], 3: [-1, 0, 0, -1], 4: [1, 0, 0, -1], 5: [0, 1, 1, 0], 6: [0, 1, -1, 0], 7: [0, -1, -1, 0], 8: [0, -1, 1, 0] };

/** Gather the shapes of fields, {kind, values, label, form}, and say what of them is not drawn. */
export function shapesOf(fields) {
  const found = fields.filter((field) => field.summary.shapes);
  const drawn = found.flatMap((field) => field.summary.shapes.drawn);
  const total = found.reduce((sum, field) => sum + field.summary.shapes.left_out, drawn.length);
  const searched = found.filter((field) => !field.summary.shapes.whole).map((field) => field.extension);
  const said = [
    total > drawn.length ? `The first ${number(drawn.length)} of ${number(total)} shapes are drawn.` : null,
    searched.length ? `Not searched to its end for shapes, since it is too large: ${searched.join(", ")}.` : null,
  ];
  return { drawn, said: said.filter(Boolean).join(" ") };
}

/** Guess the form of boxes that do not say it: what lies in the image, COCO's if both do. */
export function guessForm(shapes, width, height) {
  const boxes = shapes.filter((shape) => shape.kind === "box" && !shape.form).map(({ values }) => values);
  const [w, h] = areShares(shapes) ? [1, 1] : [width, height];
  const asSizes = boxes.every(([x, y, a, b]) => x + a <= 1.02 * w && y + b <= 1.02 * h);
  const asCorners = boxes.every(([x, y, a, b]) => a > x && b > y);
  return asCorners && !asSizes ? "xyxy" : "xywh";
}

/** Guess in which pixels shapes are: the stored ones if they lie in the stored image, and not in the one shown. */
export function guessPixels(shapes, orientation, [width, height]) {
  return orientation > 4 && !lieIn(shapes, width, height) && lieIn(shapes, height, width) ? "stored" : "shown";
}

/** Whether no shape reaches over the right or lower edge. */
function lieIn(shapes, width, height) {
  const form = guessForm(shapes, width, height);
  return shapes.every((shape) => cornersOf(shape, form).every((value, place) => value <= 1.02 * (place % 2 ? height : width)));
}

function cornersOf(shape, form) {
  if (shape.kind === "mask") return shape.values.map((value, place) => (place % 4 > 1 ? value + shape.values[place - 2] : value));
  if (shape.kind !== "box") return shape.values;
  const [x, y, width, height] = placed(shape, form, [1, 1]);
  return [x, y, x + width, y + height];
}

/** The matrix, as of SVG, from the stored pixels of an image of these sides to those shown; null if they are the same. */
export function turnOf(orientation, width, height) {
  if (!TURNS[orientation]) return null;
  const [a, b, c, d] = TURNS[orientation];
  return [a, b, c, d, (a < 0) * width + (c < 0) * height, (b < 0) * width + (d < 0) * height];
}

/**
 * In which pixels of an image a mask lies, by the ratio of its sides: "shown", "stored", or "neither"; "either" if the
 * sides cannot tell. A mask that EXIF turns itself lies in the image as shown.
 */
export function lieOf(mask, { width, height, orientation }) {
  const [wide, high] = mask.orientation > 4 ? [mask.height, mask.width] : [mask.width, mask.height];
  const alike = (across, down) => Math.abs((wide * down) / (high * across) - 1) < 0.02;
  const asShown = orientation > 4 ? alike(height, width) : alike(width, height);
  const asStored = orientation > 1 && !(mask.orientation > 1) && alike(width, height);
  if (asShown) return asStored ? "either" : "shown";
  return asStored ? "stored" : "neither";
}

/** Whether numbers are shares of the width and height, not pixels; those of masks are always pixels. */
export function areShares(shapes) {
  const others = shapes.filter((shape) => shape.kind !== "mask");
  return others.length > 0 && others.every(({ values }) => values.every((value) => value >= -0.01 && value <= 1.01));
}

/** A box as [left, top, width, height] in pixels. */
export function placed({ values, form }, chosen, [width, height]) {
  const [a, b, c, d] = values.map((value, place) => value * (place % 2 ? height : width));
  if ((form ?? chosen) === "xyxy") return [a, b, c - a, d - b];
  return (form ?? chosen) === "cxcywh" ? [a - c / 2, b - d / 2, c, d] : [a, b, c, d];
}
