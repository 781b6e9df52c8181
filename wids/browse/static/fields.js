// One field of a sample, by its kind.

import { conversation } from "./chat.js";
import { picture, thumbnail } from "./picture.js";
import { button, bytes, counted, h, number, seconds, svg, swatch } from "./ui.js";
import { raw, thumb } from "./urls.js";

/** Make the card of a field; the main picture is shown as large as it can be. */
export function card(sample, field, { main = false } = {}) {
  const draw = main ? (...both) => picture(...both, sample.fields) : (BODIES[field.kind] ?? dump);
  const shown = h("div", { class: "body" },
    field.late ? h("p", { class: "muted" }, "Still reading…") : field.error ? broken(sample, field) : [draw(sample, field), drawnAs(field.picture)]);
  return h("section", { class: `card ${field.kind}${main ? " main" : ""}`, "aria-label": `Field ${called(field)}`, "data-field": field.number },
    h("header", {},
      h("h3", {}, field.extension),
      h("span", { class: "muted" }, [WORDS[field.kind] ?? field.kind, bytes(field.nbytes), ...facts(field)].join(" · ")),
      menu(sample, field)),
    shown);
}

/** What a part of the page is named by; side by side, the sample is named too. */
function called(field) {
  return field.called ?? field.extension;
}

/** Where the field lies, and how to save it. */
function menu(sample, field) {
  const place = field.stored ? `joined from ${field.stored}` : `at byte ${number(field.offset)} of the shard`;
  return h("details", { class: "menu", name: "menu" },
    h("summary", { "aria-label": `More about ${called(field)}` }, "⋯"),
    h("div", {}, h("p", { class: "muted" }, place),
      h("a", { href: raw(sample, field.number, true), download: "", "aria-label": `Download ${called(field)}` }, "Download")));
}

const LEGEND = 40; // labels that are named

/** What is said of a picture, once it is drawn: whether it is cut, and its legend or range. */
function drawnAs(drawn) {
  if (!drawn) return null;
  return [drawn.is_cut ? h("p", { class: "problem" }, "This file is cut: it is drawn as far as it goes.") : null, legend(drawn)];
}

function legend({ labels, value_range: range }) {
  if (range) return [h("p", { class: "muted range" }, `black ${number(range[0])}, white ${number(range[1])}`)];
  if (!labels.length) return null;
  const entries = labels.slice(0, LEGEND).map(([value, colour, share, name]) => h("li", {},
    swatch(colour), `${value}${name ? ` ${name}` : ""}`, h("span", { class: "muted" }, ` ${(100 * share).toFixed(1)} %`)));
  const left = labels.length - entries.length;
  return [h("ul", { class: "legend", "aria-label": "Labels" }, entries, left > 0 ? h("li", { class: "muted" }, `and ${left} more`) : null)];
}

const WORDS = { json: "JSON", class: "class", bytes: "bytes" };

const BODIES = { image, text, json, class: classOf, array, audio, video, bytes: dump };

function facts({ kind, summary: { width, height, format, mode, orientation, duration, rate, channels, unlike, note } }) {
  return [
    width && `${width} × ${height} pixels`, format, mode && `mode ${mode}`,
    orientation > 1 && `turned by EXIF (${orientation})`,
    typeof duration === "number" && seconds(duration),
    rate && `${number(rate)} ${kind === "audio" ? "Hz" : "frames/s"}`, channels && counted(channels, "channel"), unlike, note,
  ].filter(Boolean);
}

function broken(sample, field) {
  return [
    h("p", { class: "problem" }, h("strong", {}, "Cannot be decoded. "), field.error),
    field.summary.text ? h("pre", {}, field.summary.text) : null,
    field.summary.hex ? dump(sample, field) : null,
  ];
}

function image(sample, field) {
  const onload = ({ target }) => target.classList.toggle("small", Math.max(target.naturalWidth, target.naturalHeight) < 160);
  return h("div", { class: "frame" }, h("img", { src: thumb(sample, field.number, 1280), alt: `Image ${field.extension}`, class: "whole", onload }));
}

function text(_index, field) {
  if (!field.summary.text) return h("p", { class: "muted" }, "Empty.");
  return [
    h("pre", { class: field.kind === "text" ? "prose" : null, tabindex: 0, "aria-label": `Text ${called(field)}`, role: "region" }, field.summary.text),
    field.summary.truncated ? h("p", { class: "muted" }, "This is the beginning; download the field for all of it.") : null,
  ];
}

function json(sample, field) {
  const written = () => ("tree" in field.summary ? h("div", { class: "tree" }, node(null, field.summary.tree, 0)) : "hex" in field.summary ? packed(sample, field) : text(sample, field));
  const turns = field.summary.conversation;
  if (!turns) return written();
  const found = { ...turns, field: field.number, extension: field.extension };
  return [conversation(sample, found), h("details", { class: "as-json" }, h("summary", {}, "As JSON"), written())];
}

/** A document of bytes, such as msgpack, that is no tree of a bounded size. */
function packed(sample, field) {
  return [h("p", { class: "muted" }, "Too large or too deep for a tree: its first bytes; download the field for all of it."), dump(sample, field)];
}

function classOf(_index, field) {
  const { value, name } = field.summary;
  return h("p", { class: "class-value" }, h("strong", {}, String(value)), name ? ` ${name}` : null);
}

function dump(_sample, field) {
  const lines = field.summary.hex ?? [];
  if (!lines.length) return h("p", { class: "muted" }, field.nbytes ? "Not shown; it can be downloaded." : "Empty.");
  return h("pre", { class: "hex", tabindex: 0, "aria-label": `Bytes of ${called(field)}`, role: "region" }, lines.join("\n"));
}

// An array as a picture, with figures, a curve and a histogram.

/** Show the arrays of a field. */
function array(sample, field) {
  const { arrays = [], num_arrays: total = arrays.length, picture } = field.summary;
  return [
    picture ? h("div", { class: "frame" }, h("img", { src: thumb(sample, field.number, 1280), alt: `Array ${field.extension} as a picture`, class: "whole array-picture" })) : null,
    arrays.map((one) => describeArray(one, field.extension)),
    total > arrays.length ? h("p", { class: "muted" }, `and ${number(total - arrays.length)} more`) : null,
  ];
}

function describeArray(one, extension) {
  const shape = one.shape.length ? one.shape.map(number).join(" × ") : "one number";
  const figures = ["min", "max", "mean", "std"].filter((name) => (one[name] ?? null) !== null).concat(["nan", "inf"].filter((name) => one[name]));
  return h("div", { class: "array" },
    h("p", {}, one.name ? h("strong", {}, one.name, " ") : null, h("code", {}, one.dtype), ` ${shape}`),
    figures.length ? h("dl", { class: "figures" }, figures.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, number(one[name]))))) : null,
    one.curve ? curve(one.curve, one.shape, one.name || extension) : null,
    one.histogram && one.histogram.counts.length > 1 ? valueHistogram(one.histogram, one.name || extension) : null,
    one.values?.length ? h("p", { class: "values" }, one.values.map((value) => (typeof value === "number" ? number(value) : String(value))).join(", "), " …") : null,
    one.sampled ? h("p", { class: "muted" }, "figures from a sample of the values") : null);
}

// Plots of an array: bars in SVG, with their figures as text beside them for who cannot see them.

const WIDTH = 320;
const HEIGHT = 72;

/** A drawing over a line, with texts below its ends. */
function plot(label, [least, most], drawn) {
  return svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT + 18}`, role: "img", "aria-label": label },
    svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }), drawn,
    svg("text", { x: 0, y: HEIGHT + 14, "text-anchor": "start" }, number(least)),
    svg("text", { x: WIDTH, y: HEIGHT + 14, "text-anchor": "end" }, number(most)));
}

/** The histogram of an array's values; what is there at all is seen, however few. */
function valueHistogram({ low, high, counts }, name) {
  const [top, step] = [Math.max(...counts, 1), WIDTH / counts.length];
  return plot(`Values of ${name} from ${number(low)} to ${number(high)}`, [low, high], counts.map((count, place) => {
    const height = count ? Math.max(1.5, (count / top) * HEIGHT) : 0;
    return svg("rect", { x: place * step + 0.5, y: HEIGHT - height, width: step - 1, height }, svg("title", {}, number(count)));
  }));
}

/** The values of an array along its one axis: a band from the least to the greatest of each part. */
function curve({ low, high }, shape, name) {
  const known = [...low, ...high].filter((value) => value !== null);
  if (!known.length) return null;
  // Halved, as the difference of the extremes may be beyond a float.
  const least = Math.min(...known) / 2;
  const most = Math.max(...known) / 2;
  const step = WIDTH / low.length;
  // What differs by no more than rounding does is a level line in the middle, not a mountain range.
  const level = most - least <= 1e-9 * Math.max(Math.abs(least), Math.abs(most));
  const y = (value) => (level ? HEIGHT / 2 : HEIGHT - ((value / 2 - least) / (most - least)) * (HEIGHT - 2) - 1);
  const drawn = low.flatMap((value, place) => {
    if (value === null) return [];
    // Up to where the next part begins, so that steps do not tear the line apart.
    const next = place + 1 < low.length && low[place + 1] !== null ? place + 1 : place;
    const top = Math.min(y(high[place]), y(low[next]));
    const bottom = Math.max(y(value), y(high[next]));
    return [svg("rect", { x: place * step, y: top, width: step, height: Math.max(1.5, bottom - top) })];
  });
  return plot(`Values of ${name} in their order, from ${number(2 * least)} to ${number(2 * most)}`, [0, Math.max(...shape) - 1], drawn);
}

// Sound and video: a player, and what is shown of those that the browser cannot play.

const INSTALL = "The server shows frames where PyAV is installed: pip install av.";

document.addEventListener("play", (event) => {
  for (const each of document.querySelectorAll("audio, video")) if (each !== event.target) each.pause();
}, true);

/** Show a sound with its waveform. */
export function audio(sample, { number: place, extension, media_type: type, wave }, preload = "metadata") {
  const drawn = wave ? thumbnail(sample, place, 640, { class: "wave", alt: "How loud it is over time" }) : null;
  if (!type) return [drawn, unplayable("No browser plays this format; download it to listen.")];
  const player = h("audio", {
    controls: true, preload, src: raw(sample, place), "aria-label": `Sound ${extension} of sample ${sample.index}`,
    onerror: () => player.replaceWith(unplayable("This browser cannot play it; download it to listen.")),
  });
  return [drawn, player];
}

/** Show a video; frames of it if the browser cannot play it. */
function video(sample, field) {
  if (!field.media_type) return still(sample, field, `No browser plays ${field.summary.unlike ? "a field of this extension" : "this format"}.`);
  const place = h("div", {});
  const give = () => place.replaceChildren(...still(sample, field, "This browser cannot play it.").filter(Boolean));
  const player = h("video", {
    controls: true, preload: "metadata", src: raw(sample, field.number), "aria-label": `Video ${field.extension}`, onerror: give,
    // The sound alone can be played.
    onloadedmetadata: () => { if (!player.videoWidth) give(); },
  });
  place.append(player);
  return place;
}

function still(sample, field, why) {
  const said = unplayable(field.strip ? `${why} These are frames of it, at even distances.` : `${why} ${INSTALL}`);
  if (!field.strip) return [said];
  const size = devicePixelRatio > 1.2 ? 2560 : 1280;
  return [said, h("img", { class: "strip", src: `${thumb(sample, field.number, size)}&strip=1`, alt: `Frames of ${field.extension}` })];
}

const unplayable = (text) => h("p", { class: "note" }, text);

// A JSON value as a tree that opens branch by branch; closed branches cost nothing.

const OPEN_CHILDREN = 20; // a branch of more is closed at first
const LONG = 1000; // characters of a text that are

function node(name, value, depth) {
  const label = name === null ? null : h("span", { class: "name" }, name, ": ");
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, label, leaf(value));
  const entries = Array.isArray(value) ? value.map((child, place) => [String(place), child]) : Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div", { class: "leaf" }, label, h("span", { class: "muted" }, size));
  const branch = h("details", {}, h("summary", {}, label, h("span", { class: "muted" }, size)));
  branch.addEventListener("toggle", () => branch.append(...entries.map(([key, child]) => node(key, child, depth + 1))), { once: true });
  branch.open = depth < 2 && entries.length <= OPEN_CHILDREN;
  return branch;
}

/** A value that is no branch; of a long text the beginning, until one asks for all of it. */
function leaf(value) {
  if (typeof value !== "string") return h("span", { class: "literal" }, String(value));
  const quoted = JSON.stringify(value);
  const shown = h("span", { class: "string" }, quoted);
  if (quoted.length <= LONG) return shown;
  shown.textContent = `${quoted.slice(0, LONG)}… `;
  shown.append(button(counted(quoted.length - LONG, "more character"), () => { shown.textContent = quoted; }, { class: "plain" }));
  return shown;
}
