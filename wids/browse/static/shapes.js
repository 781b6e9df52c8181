// Boxes, polygons and keypoints in the JSON of a sample, in the ways that datasets write them.

const MOST = 300;
const BOX = /box|rect|roi/i;
const POLYGON = /segmentation|polygon|contour/i;
const POINTS = /keypoints|landmarks/i;
const CORNERS = [["xmin", "ymin", "xmax", "ymax"], ["x1", "y1", "x2", "y2"], ["left", "top", "right", "bottom"], ["x0", "y0", "x1", "y1"]];
const SIZES = [["x", "y", "w", "h"], ["x", "y", "width", "height"], ["left", "top", "width", "height"]];
const LABELS = ["label", "category", "class", "name", "category_name", "category_id", "id"];

export const FORMS = [["xywh", "x y width height"], ["xyxy", "x y to x y"], ["cxcywh", "centre, width height"]];

/** Find the shapes in JSON values: {kind, values, label, form}, of which a form is null if unknown. */
export function shapesIn(trees) {
  const found = [];
  for (const tree of trees) walk(tree, "", null, found);
  return found.slice(0, MOST);
}

function walk(value, name, label, found) {
  if (found.length >= MOST || value === null || typeof value !== "object") return;
  if (Array.isArray(value)) walkList(value, name, label, found);
  else walkObject(value, name, label, found);
}

function walkList(list, name, label, found) {
  if (numbers(list)) {
    if (BOX.test(name) && list.length === 4) found.push({ kind: "box", values: list, label, form: /xyxy/i.test(name) ? "xyxy" : null });
    else if (POLYGON.test(name) && list.length >= 6) found.push({ kind: "polygon", values: list, label, form: null });
    else if (POINTS.test(name) && list.length >= 2) found.push({ kind: "points", values: points(list), label, form: null });
    return;
  }
  const pairs = list.length > 2 && list.every((each) => numbers(each) && (each.length === 2 || each.length === 3));
  if (pairs && (POLYGON.test(name) || POINTS.test(name))) {
    const kind = POLYGON.test(name) ? "polygon" : "points";
    found.push({ kind, values: list.flatMap(([x, y]) => [x, y]), label, form: null });
  } else for (const [place, each] of list.entries()) walk(each, name, Array.isArray(label) ? label[place] : label, found);
}

function walkObject(object, name, outer, found) {
  const own = LABELS.map((key) => object[key]).find((value) => typeof value === "string" || typeof value === "number");
  const label = own ?? outer;
  for (const [forms, form] of [[CORNERS, "xyxy"], [SIZES, "xywh"]]) {
    const keys = forms.find((each) => each.every((key) => typeof object[key] === "number"));
    if (keys) return found.push({ kind: "box", values: keys.map((key) => object[key]), label, form });
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
  return Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "number" && Number.isFinite(each));
}

/** Guess the form of boxes that do not say it: what lies in the image, COCO's if both do. */
export function guessForm(shapes, width, height) {
  const boxes = shapes.filter((shape) => shape.kind === "box" && !shape.form).map(({ values }) => values);
  const [w, h] = areShares(shapes) ? [1, 1] : [width, height];
  const asSizes = boxes.every(([x, y, a, b]) => x + a <= 1.02 * w && y + b <= 1.02 * h);
  const asCorners = boxes.every(([x, y, a, b]) => a > x && b > y);
  return asCorners && !asSizes ? "xyxy" : "xywh";
}

/** Whether numbers are shares of the width and height, not pixels. */
export function areShares(shapes) {
  return shapes.length > 0 && shapes.every(({ values }) => values.every((value) => value >= -0.01 && value <= 1.01));
}

/** A box as [left, top, width, height] in pixels. */
export function placed({ values, form }, chosen, [width, height]) {
  const [a, b, c, d] = values.map((value, place) => value * (place % 2 ? height : width));
  if ((form ?? chosen) === "xyxy") return [a, b, c - a, d - b];
  return (form ?? chosen) === "cxcywh" ? [a - c / 2, b - d / 2, c, d] : [a, b, c, d];
}
