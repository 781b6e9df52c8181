// The picture of a sample, as large as there is room, with what its JSON and masks say of it on top.

import { button, h, number, svg } from "./ui.js";
import { raw, thumb } from "./urls.js";

const LARGEST = 4096; // pixels of the longest side that the server draws
const DRAWN = [1280, 2560, LARGEST];
const MASK = /(^|[._])(seg|mask|label|instance|panoptic|semantic|annotation)/i;
const chosen = { shown: true, form: "", pixels: "", masks: true }; // for all samples that one looks at

/** Show the image of a field; `fields` are all of its sample. */
export function picture(sample, field, fields) {
  const { width, height, orientation } = field.summary;
  const [wide, high] = orientation > 4 ? [height, width] : [width, height];
  const image = h("img", { src: thumb(sample, field.number, DRAWN[0]), alt: `Image ${field.extension}`, draggable: "false" });
  const stage = h("div", { class: "stage" }, image);
  stage.style.aspectRatio = `${wide} / ${high}`; // shapes lie right before the image has come
  const frame = h("div", { class: "frame viewer", tabindex: 0, role: "region", "aria-label": `Image ${field.extension}` }, stage);
  const { drawn: shapes, said } = shapesOf(fields);
  const masks = fields.filter((each) => each.kind === "image" && each !== field && MASK.test(each.extension) && !each.error && !each.late)
    .map((mask) => ({ ...mask, lie: lieOf(mask.summary, field.summary) })).filter((mask) => mask.lie !== "neither");
  // A digit is seen at eight times its size, a photograph at three times at most.
  const unit = Math.max(wide, high) < 160 ? 8 : 1;
  let drawn = DRAWN[0];

  function fit() {
    const room = Math.min(frame.clientWidth / wide, frame.clientHeight / high, unit === 8 ? 8 : 3);
    if (room > 0) stage.style.width = `${wide * room}px`;
  }
  function sharpen(scale) {
    const shown = stage.offsetWidth * scale;
    image.classList.toggle("small", shown >= 2 * wide);
    const wanted = Math.max(shown, shown * (high / wide)) * devicePixelRatio;
    const next = DRAWN.find((size) => size >= wanted - 1) ?? LARGEST;
    if (next <= drawn || Math.max(wide, high) <= drawn) return;
    drawn = next;
    // The file itself where the browser draws its kind, unless it is too large to be drawn safely.
    image.src = next === LARGEST && field.media_type && width * height <= 64e6 ? raw(sample, field.number) : thumb(sample, field.number, next);
  }
  const zooming = zoomable(frame, stage, (scale) => { sharpen(scale); toggle.setAttribute("aria-pressed", String(scale > 1)); });
  const toggle = button("Zoom to pixels", () => zooming.zoom(zooming.scale() > 1 ? 1 : Math.max((wide * unit) / stage.offsetWidth, 1.01)), { "aria-pressed": "false", "data-key": "z", title: "Zoom (z)" });
  new ResizeObserver(fit).observe(frame);
  let layer = h("div", {});
  stage.append(layer);
  const redraw = () => layer.replaceWith(layer = layerOf(sample, shapes, masks, [wide, high], orientation));
  redraw();
  return [frame, h("div", { class: "controls" }, toggle, controls(shapes, masks, [wide, high], orientation, redraw)),
    said ? h("p", { class: "muted" }, said) : null];
}

function controls(shapes, masks, size, orientation, redraw) {
  if (!shapes.length && !masks.length) return null;
  const open = shapes.some((shape) => shape.kind === "box" && !shape.form);
  const toggle = button("Overlays", () => {
    chosen.shown = !chosen.shown;
    toggle.setAttribute("aria-pressed", String(chosen.shown));
    redraw();
  }, { "aria-pressed": String(chosen.shown), "data-key": "o", title: "Boxes and masks (o)" });
  const select = (label, name, choices, now) => h("label", {}, h("span", { class: "hidden" }, label), h("select", { onchange: (event) => { chosen[name] = event.target.value; redraw(); } },
    choices.map(([value, text]) => h("option", { value, selected: value === now }, text))));
  const { form, isStored } = meaningOf(shapes, size, orientation);
  const movable = [shapes.length ? "shapes" : "", masks.some((mask) => mask.lie === "either") ? "masks" : ""].filter(Boolean).join(" and ");
  return [toggle,
    open ? select("Boxes are", "form", FORMS, form) : null,
    movable && orientation > 1 ? select(`${movable} lie in the image`, "pixels", PIXELS.map(([value, text]) => [value, `${movable} ${text}`]), isStored ? "stored" : "shown") : null,
    masks.length ? h("label", {}, h("input", { type: "checkbox", checked: chosen.masks, onchange: (event) => { chosen.masks = event.target.checked; redraw(); } }), `${masks.map((mask) => mask.extension).join(", ")} on top`) : null];
}

/** What the numbers of shapes mean, as chosen or guessed: the sides of their image, the form of boxes. */
function meaningOf(shapes, [wide, high], orientation) {
  const isStored = (chosen.pixels || guessPixels(shapes, orientation, [wide, high])) === "stored";
  const sides = isStored && orientation > 4 ? [high, wide] : [wide, high];
  return { isStored, sides, form: chosen.form || guessForm(shapes, ...sides), turn: isStored ? turnOf(orientation, ...sides) : null };
}

/** Shapes and masks over an image of this size, unless they are switched off. */
export function layerOf(sample, shapes, masks, size, orientation) {
  const layer = h("div", { class: "layer" });
  if (!chosen.shown) return layer;
  const { sides, form, turn, isStored } = meaningOf(shapes, size, orientation);
  const scale = areShares(shapes) ? sides : [1, 1];
  const labels = [];
  const drawn = shapes.map((shape) => {
    const colour = colourOf(shape.label);
    const line = { fill: "none", stroke: colour, "vector-effect": "non-scaling-stroke" };
    if (shape.kind === "mask") return svg("path", { fill: colour, "fill-opacity": 0.5, "shape-rendering": "crispEdges", d: outlined(shape.values) });
    if (shape.kind !== "box") {
      const pairs = shape.values.map((value, place) => value * scale[place % 2]);
      if (shape.kind === "polygon") return svg("polygon", { ...line, fill: colour, "fill-opacity": 0.2, points: pairs.join(" ") });
      return svg("g", {}, pairs.map((x, place) => (place % 2 ? null : svg("circle", { cx: x, cy: pairs[place + 1], r: Math.max(...size) / 150, fill: colour }))));
    }
    const [x, y, width, height] = placed(shape, form, scale);
    if (!(width > 0 && height > 0)) return null;
    if (shape.label) labels.push([...cornerShown(turn, x, y, width, height, size), shape.label, colourOf(shape.label, 26)]);
    return svg("rect", { ...line, x, y, width, height });
  });
  if (chosen.masks) layer.append(...masks.map((mask) => maskImage(sample, mask, size, mask.lie === "stored" || (mask.lie === "either" && isStored) ? orientation : 1)));
  layer.append(svg("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, role: "img", "aria-label": `${shapes.length} shapes` },
    masks.length ? withoutBackground() : null, svg("g", turn ? { transform: `matrix(${turn})` } : {}, drawn)));
  for (const [x, y, label, colour] of labels) {
    // At the upper edge there is no room above the box.
    const tag = h("span", { class: y < 0.05 ? "tag inside" : "tag" }, label);
    Object.assign(tag.style, { left: `${100 * x}%`, top: `${100 * y}%`, background: colour });
    tag.style.setProperty("--rest", `${100 * (1 - Math.max(x, 0))}%`);
    layer.append(tag);
  }
  return layer;
}

/** The upper left corner of a box as it is shown, as shares of the sides of the picture. */
function cornerShown(turn, x, y, width, height, size) {
  const [a, b, c, d, e, f] = turn ?? [1, 0, 0, 1, 0, 0];
  const [across, down] = [[x, y], [x + width, y + height]].map(([left, top]) => [a * left + c * top + e, b * left + d * top + f])
    .reduce(([x1, y1], [x2, y2]) => [Math.min(x1, x2), Math.min(y1, y2)]);
  return [across / size[0], down / size[1]];
}

/** The filter that leaves out the darkest colours of masks, in which label 0 is drawn; its picture is seen there. */
function withoutBackground() {
  return svg("filter", { id: "without-background", "color-interpolation-filters": "sRGB" },
    svg("feComponentTransfer", {}, ["R", "G", "B"].map((part) => svg(`feFunc${part}`, { type: "linear", slope: 40, intercept: -8.8 }))), // 0 up to 56 of 255, 1 from 63 on
    svg("feColorMatrix", { values: "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 1 0 0", result: "labels" }),
    svg("feComposite", { in: "SourceGraphic", in2: "labels", operator: "in" }));
}

/** A mask, turned with the picture as EXIF's orientation says; 1 where it lies as shown. */
function maskImage(sample, mask, [wide, high], orientation) {
  const image = h("img", { class: "mask", src: thumb(sample, mask.number, 1280), alt: "" });
  if (TURNS[orientation]) {
    const ratio = orientation > 4 ? high / wide : 1;
    image.classList.add("turned");
    Object.assign(image.style, { width: `${100 * ratio}%`, height: `${100 / ratio}%`, transform: `translate(-50%, -50%) matrix(${TURNS[orientation]},0,0)` });
  }
  return image;
}

/** Rectangles, x y width height in turn, as one path. */
function outlined(values) {
  let path = "";
  for (let at = 0; at < values.length; at += 4) path += `M${values[at]} ${values[at + 1]}h${values[at + 2]}v${values[at + 3]}h${-values[at + 2]}z`;
  return path;
}

/** A colour of a label that is the same in every sample. */
function colourOf(label, lightness = 45) {
  let hash = 7;
  for (const letter of String(label ?? "")) hash = (hash * 31 + letter.codePointAt(0)) % 360;
  return `hsl(${(hash * 47) % 360} 80% ${lightness}%)`;
}

// Zoom by wheel, pan by drag. How far one is in, and where, stays for the next sample.

let view = { scale: 1, x: 0.5, y: 0.5 }; // magnification, and what is in the middle of the frame
const MOST = 64;
const clamp = (value) => Math.min(Math.max(value, 0), 1);

/** Let a stage be zoomed in its frame; `onscale` learns of each scale. Returns what sets a scale. */
function zoomable(frame, stage, onscale) {
  const size = () => [stage.offsetWidth, stage.offsetHeight];
  let drag = null;

  function show() {
    const [width, height] = size();
    const { scale, x, y } = view;
    const left = frame.clientWidth / 2 - x * width * scale - stage.offsetLeft;
    const top = frame.clientHeight / 2 - y * height * scale - stage.offsetTop;
    stage.style.transform = scale === 1 ? "" : `translate(${left}px, ${top}px) scale(${scale})`;
    stage.style.setProperty("--zoom", scale);
    frame.classList.toggle("zoomed", scale > 1);
    onscale(scale);
  }

  /** Zoom to a scale, with a place of the frame, from its middle, staying where it is. */
  function zoom(scale, [dx, dy] = [0, 0]) {
    const [width, height] = size();
    const next = Math.min(Math.max(scale, 1), MOST);
    const shift = 1 / view.scale - 1 / next;
    view = next === 1 ? { scale: 1, x: 0.5, y: 0.5 } : { scale: next, x: clamp(view.x + (dx / width) * shift), y: clamp(view.y + (dy / height) * shift) };
    show();
  }

  const fromMiddle = (event) => {
    const box = frame.getBoundingClientRect();
    return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
  };
  frame.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    event.preventDefault();
    zoom(view.scale * 1.0015 ** -event.deltaY, fromMiddle(event));
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || view.scale === 1) return;
    drag = { x: event.clientX, y: event.clientY, from: view };
    frame.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  frame.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [width, height] = size();
    view = {
      scale: drag.from.scale,
      x: clamp(drag.from.x - (event.clientX - drag.x) / (width * drag.from.scale)),
      y: clamp(drag.from.y - (event.clientY - drag.y) / (height * drag.from.scale)),
    };
    show();
  });
  for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, () => { drag = null; });
  frame.addEventListener("dblclick", (event) => zoom(view.scale > 1 ? 1 : 3, fromMiddle(event)));
  new ResizeObserver(show).observe(stage);
  return { zoom, scale: () => view.scale };
}

// The shapes that the server found in the JSON of a sample, and where they lie in its picture.

const FORMS = [["xywh", "x y width height"], ["xyxy", "x y to x y"], ["cxcywh", "centre, width height"]];

const PIXELS = [["shown", "as shown"], ["stored", "in stored pixels"]];
// How EXIF's orientation turns the stored image: x and y along the new x, then y.
const TURNS = { 2: [-1, 0, 0, 1], 3: [-1, 0, 0, -1], 4: [1, 0, 0, -1], 5: [0, 1, 1, 0], 6: [0, 1, -1, 0], 7: [0, -1, -1, 0], 8: [0, -1, 1, 0] };

/** Gather the shapes of fields, {kind, values, label, form}, and say what of them is not drawn. */
function shapesOf(fields) {
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
function guessForm(shapes, width, height) {
  const boxes = shapes.filter((shape) => shape.kind === "box" && !shape.form).map(({ values }) => values);
  const [w, h] = areShares(shapes) ? [1, 1] : [width, height];
  const asSizes = boxes.every(([x, y, a, b]) => x + a <= 1.02 * w && y + b <= 1.02 * h);
  const asCorners = boxes.every(([x, y, a, b]) => a > x && b > y);
  return asCorners && !asSizes ? "xyxy" : "xywh";
}

/** Guess in which pixels shapes are: the stored ones if they lie in the stored image, and not in the one shown. */
function guessPixels(shapes, orientation, [width, height]) {
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
function turnOf(orientation, width, height) {
  if (!TURNS[orientation]) return null;
  const [a, b, c, d] = TURNS[orientation];
  return [a, b, c, d, (a < 0) * width + (c < 0) * height, (b < 0) * width + (d < 0) * height];
}

/**
 * In which pixels of an image a mask lies, by the ratio of its sides: "shown", "stored", or "neither"; "either" if the
 * sides cannot tell. A mask that EXIF turns itself lies in the image as shown.
 */
function lieOf(mask, { width, height, orientation }) {
  const [wide, high] = mask.orientation > 4 ? [mask.height, mask.width] : [mask.width, mask.height];
  const alike = (across, down) => Math.abs((wide * down) / (high * across) - 1) < 0.02;
  const asShown = orientation > 4 ? alike(height, width) : alike(width, height);
  const asStored = orientation > 1 && !(mask.orientation > 1) && alike(width, height);
  if (asShown) return asStored ? "either" : "shown";
  return asStored ? "stored" : "neither";
}

/** Whether numbers are shares of the width and height, not pixels; those of masks are always pixels. */
function areShares(shapes) {
  const others = shapes.filter((shape) => shape.kind !== "mask");
  return others.length > 0 && others.every(({ values }) => values.every((value) => value >= -0.01 && value <= 1.01));
}

/** A box as [left, top, width, height] in pixels. */
function placed({ values, form }, chosen, [width, height]) {
  const [a, b, c, d] = values.map((value, place) => value * (place % 2 ? height : width));
  if ((form ?? chosen) === "xyxy") return [a, b, c - a, d - b];
  return (form ?? chosen) === "cxcywh" ? [a - c / 2, b - d / 2, c, d] : [a, b, c, d];
}

// Small pictures. The server answers at once for one that takes long to draw, and is asked again.

const LATER = [3, 2]; // width and height of the picture that stands for one that is still drawn
const [FIRST_MILLISECONDS, LONGEST_MILLISECONDS] = [500, 8000]; // between the questions

/** The small picture of a field of a sample. */
export function thumbnail(sample, field, pixels, properties = {}) {
  let pause = FIRST_MILLISECONDS;
  const image = h("img", { src: `${thumb(sample, field, pixels)}&soon=1`, alt: "", loading: "lazy", decoding: "async", ...properties });
  image.addEventListener("load", () => {
    if (image.naturalWidth !== LATER[0] || image.naturalHeight !== LATER[1]) return;
    setTimeout(() => {
      // Another URL, since a browser need not load the same one twice.
      if (image.isConnected) image.src = image.src.replace(/soon=(\d+)/, (_, tries) => `soon=${Number(tries) + 1}`);
    }, pause);
    pause = Math.min(2 * pause, LONGEST_MILLISECONDS);
  });
  return image;
}
