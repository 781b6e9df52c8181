// Boxes, polygons, keypoints and masks in the JSON of a sample, in the ways that datasets write them.
// `display/shapes.py` finds the same ones by the same rules.

const MOST = 300;
const MOST_RUNS = 20000; // of a mask
const MOST_NUMBERS = 500000; // of all shapes together
const MOST_SIDE = 65535;
const FAR = 1e9; // beyond it a number is no place in a picture
const BOX = /box|rect|roi/i;
const POLYGON = /segmentation|polygon|contour/i;
const POINTS = /keypoints|landmarks/i;
const CORNERS = [["xmin", "ymin", "xmax", "ymax"], ["x1", "y1", "x2", "y2"], ["left", "top", "right", "bottom"], ["x0", "y0", "x1", "y1"]];
const SIZES = [["x", "y", "w", "h"], ["x", "y", "width", "height"], ["left", "top", "width", "height"]];
const LABELS = ["label", "category", "class", "name", "category_name", "category_id", "id"];

export const FORMS = [["xywh", "x y width height"], ["xyxy", "x y to x y"], ["cxcywh", "centre, width height"]];

/** Find the shapes in JSON values: {kind, values, label, form}; label and form are null if unknown. */
export function shapesIn(trees) {
  const found = [];
  for (const tree of trees) walk(tree, "", null, found);
  return found.slice(0, MOST);
}

function walk(value, name, label, found) {
  if (value === null || typeof value !== "object" || found.length >= MOST) return;
  if (found.reduce((sum, { values }) => sum + values.length, 0) >= MOST_NUMBERS) return;
  if (Array.isArray(value)) walkList(value, name, label, found);
  else walkObject(value, name, label, found);
}

function walkList(list, name, label, found) {
  const word = Array.isArray(label) ? null : label;
  if (numbers(list)) {
    if (BOX.test(name) && list.length === 4) found.push({ kind: "box", values: list, label: word, form: /xyxy/i.test(name) ? "xyxy" : null });
    else if (POLYGON.test(name) && list.length >= 6) found.push({ kind: "polygon", values: list, label: word, form: null });
    else if (POINTS.test(name) && list.length >= 2) found.push({ kind: "points", values: points(list), label: word, form: null });
    return;
  }
  const pairs = list.length > 2 && list.every((each) => numbers(each) && (each.length === 2 || each.length === 3));
  if (pairs && (POLYGON.test(name) || POINTS.test(name))) {
    const kind = POLYGON.test(name) ? "polygon" : "points";
    found.push({ kind, values: list.flatMap(([x, y]) => [x, y]), label: word, form: null });
  } else for (const [place, each] of list.entries()) walk(each, name, Array.isArray(label) ? label[place] : label, found);
}

function walkObject(object, name, outer, found) {
  const own = LABELS.map((key) => object[key]).find((value) => typeof value === "string" || typeof value === "number");
  const label = own ?? outer;
  const word = Array.isArray(label) ? null : label;
  const mask = maskOf(object);
  if (mask) return found.push({ kind: "mask", values: mask, label: word, form: null });
  for (const [forms, form] of [[CORNERS, "xyxy"], [SIZES, "xywh"]]) {
    const keys = forms.find((each) => each.every((key) => isNumber(object[key])));
    if (keys) return found.push({ kind: "box", values: keys.map((key) => object[key]), label: word, form });
  }
  // Labels may lie in a list beside that of the boxes.
  const beside = Object.entries(object).find(([key, value]) => /^(labels|categories|names|classes)$/.test(key) && Array.isArray(value));
  for (const [key, value] of Object.entries(object)) walk(value, key, beside?.[1] ?? label, found);
}

/** Keypoints of COCO have a third number, which is 0 for those that are not there. */
function points(list) {
  if (list.length % 3 || !list.every((value, place) => place % 3 < 2 || [0, 1, 2].includes(value))) return list;
  return list.flatMap((value, place) => (place % 3 || !list[place + 2] ? [] : [value, list[place + 1]]));
}

function numbers(value) {
  return Array.isArray(value) && value.length > 0 && value.every(isNumber);
}

const isNumber = (value) => typeof value === "number" && Math.abs(value) < FAR;

/** A mask of COCO as rectangles, x y width height in turn; null if an object is none. */
function maskOf({ size, counts }) {
  const isSize = Array.isArray(size) && size.length === 2 && size.every((side) => Number.isInteger(side) && side > 0 && side <= MOST_SIDE);
  if (!isSize) return null;
  const [height, width] = size;
  const runs = typeof counts === "string" ? unpacked(counts) : counts;
  if (!Array.isArray(runs) || !runs.length || runs.length > MOST_RUNS) return null;
  if (!runs.every((run) => Number.isInteger(run) && run >= 0) || runs.reduce((sum, run) => sum + run) !== height * width) return null;
  let start = 0;
  return runs.flatMap((run, place) => {
    start += run;
    return place % 2 && run ? columns(start - run, start, height) : [];
  });
}

/** Pixels in the order of columns, from one to another, as at most three rectangles. */
function columns(start, stop, height) {
  const found = [];
  while (start < stop) {
    const [x, y] = [Math.floor(start / height), start % height];
    const whole = y ? 0 : Math.floor((stop - start) / height);
    const high = whole ? height : Math.min(height - y, stop - start);
    found.push(x, y, whole || 1, high);
    start += (whole || 1) * high;
  }
  return found;
}

/** The run lengths of a string of COCO: five bits a character; from the fourth on, differences to the last but one. */
function unpacked(text) {
  const runs = [];
  let [value, shift] = [0, 0];
  for (let place = 0; place < text.length; place += 1) {
    const code = text.charCodeAt(place) - 48;
    if (code < 0 || code > 63 || shift > 25 || runs.length > MOST_RUNS) return null;
    value |= (code & 31) << shift;
    shift += 5;
    if (code & 32) continue;
    if (code & 16) value |= -1 << shift;
    runs.push(value + (runs.length > 2 ? runs.at(-2) : 0));
    [value, shift] = [0, 0];
  }
  return shift ? null : runs;
}

/** Guess the form of boxes that do not say it: what lies in the image, COCO's if both do. */
export function guessForm(shapes, width, height) {
  const boxes = shapes.filter((shape) => shape.kind === "box" && !shape.form).map(({ values }) => values);
  const [w, h] = areShares(shapes) ? [1, 1] : [width, height];
  const asSizes = boxes.every(([x, y, a, b]) => x + a <= 1.02 * w && y + b <= 1.02 * h);
  const asCorners = boxes.every(([x, y, a, b]) => a > x && b > y);
  return asCorners && !asSizes ? "xyxy" : "xywh";
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
