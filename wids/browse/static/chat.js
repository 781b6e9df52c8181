// A conversation: who says what, turn by turn.

import { button, counted, h, number, plain } from "./ui.js";
import { ask } from "./urls.js";

const GLYPHS = { image: "▣", video: "▶", audio: "♪" };

/** Show the turns that were found of a conversation, and what brings more of them. */
export function conversation(sample, found, { clamp = false } = {}) {
  const list = h("ol", { class: "chat", "aria-label": `Conversation ${found.extension}` });
  const place = h("div", {}, list);
  add(place, list, sample, found, clamp);
  return place;
}

function add(place, list, sample, found, clamp) {
  list.append(...found.turns.map((turn) => turnOf(turn, clamp)));
  if (!found.more) return;
  const next = found.start + found.turns.length;
  const left = found.total === null ? "More turns" : `${number(found.total - next)} more turn${found.total - next === 1 ? "" : "s"}`;
  const more = button(left, async () => {
    more.disabled = true;
    const rest = await ask("turns", { i: sample.index, f: found.field, from: next }).catch((error) => error);
    if (rest instanceof Error || !rest.turns.length) {
      more.replaceWith(h("p", { class: "muted" }, rest.message ?? `Of this document, ${counted(next, "turn")} can be read here; download it for the rest.`));
      return;
    }
    more.remove();
    const before = list.children.length;
    add(place, list, sample, { ...found, ...rest }, clamp);
    list.children[before].tabIndex = -1;
    list.children[before].focus();
  }, { class: "more-turns" });
  place.append(more);
}

function turnOf([role, side, parts], clamp) {
  const said = h("div", { class: "said" }, parts.map(([kind, text]) => (kind === "text"
    ? markdown(text) ?? h("p", {}, text)
    : h("span", { class: "chip" }, h("span", { "aria-hidden": "true" }, `${GLYPHS[kind] ?? "·"} `), kind))));
  if (!parts.length) said.append(h("p", { class: "muted" }, "(nothing)"));
  return h("li", { class: `turn ${side}` }, h("span", { class: "role" }, role), clamp ? clamped(said) : said);
}

// Long texts: their beginning, and a button that shows the rest.

/** Show some lines of an element, and all of it on request. */
export function clamped(element, { rest = null } = {}) {
  const more = button("Show more", () => {
    const on = element.classList.toggle("open");
    more.setAttribute("aria-expanded", String(on));
    more.textContent = on ? "Show less" : "Show more";
    watch();
  }, { class: "plain more", "aria-expanded": "false", hidden: true });
  element.classList.add("clamped");
  /** Whether a text is cut depends on the width that it has. */
  const watch = () => {
    const open = element.classList.contains("open");
    more.hidden = !open && element.scrollHeight <= element.clientHeight + 2;
    if (rest) rest.hidden = !open && !more.hidden;
  };
  new ResizeObserver(watch).observe(element);
  return h("div", {}, element, more, rest);
}

// A small part of Markdown as elements: paragraphs, headings, lists, code, bold, italic. Links are
// shown as text, and whatever is not known stays as it is written. Made by DOM calls, never as HTML.

const SIGNS = /[`*_[\\]|^ {0,3}(#{1,6} |~~~|[-+] |\d{1,9}[.)] )/m;
const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}#{1,6}\s+(\S.*)$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DEEPEST = 8; // lists in lists, and marks in marks
// Marks may enclose so many characters: what is longer was not meant, and would take long to find.
const INLINE = new RegExp([
  /\\([\\`*_{}[\]()#+\-.!>~|])/, // 1: a sign that is meant as it is
  /(`{1,3})([^`\n](?:[^\n]{0,398}?[^`\n])?)\2(?!`)/, // 2, 3: code
  /(\*\*|(?<![A-Za-z0-9_])__)(?=\S)([^\n]{1,400}?)(?<=\S)\4(?!\*)/, // 4, 5: bold
  /\*(?=[^\s*])([^\n]{1,400}?)(?<=[^\s*])\*(?!\*)/, // 6: italic
  /(?<![A-Za-z0-9_])_(?=[^\s_])([^\n]{1,400}?)(?<=[^\s_])_(?![A-Za-z0-9_])/, // 7: italic
  /!?\[([^\]\n]{0,400})\]\(([^)\s]{1,400})(?=[)\s])[^)\n]{0,200}\)/, // 8, 9: a link or a picture
].map((each) => each.source).join("|"), "g");

/** Make the elements of a text; null for one that is the same without. */
function markdown(text) {
  if (!SIGNS.test(text)) return null;
  const made = blocks(text.split(/\r?\n/), 0);
  const isPlain = made.every((each) => each.matches("p:not(.heading)") && !each.childElementCount);
  return isPlain && made.map((each) => each.textContent).join("") === plain(text).replaceAll("\n\n", "") ? null : made;
}

function blocks(lines, depth) {
  const found = [];
  let place = 0;
  let paragraph = [];
  const flush = () => {
    if (paragraph.length) found.push(h("p", {}, inline(paragraph.join("\n"), 0)));
    paragraph = [];
  };
  while (place < lines.length) {
    const line = lines[place];
    const fence = line.match(FENCE);
    const heading = line.match(HEADING);
    const item = depth < DEEPEST ? line.match(ITEM) : null;
    if (fence) {
      flush();
      const stop = lines.findIndex((each, at) => at > place && each.trim().startsWith(fence[1]) && !each.trim().replaceAll(fence[1][0], ""));
      const end = stop < 0 ? lines.length : stop;
      found.push(h("pre", {}, h("code", {}, lines.slice(place + 1, end).join("\n"))));
      place = end + 1;
    } else if (item) {
      flush();
      const stop = endOfList(lines, place, item);
      found.push(list(lines.slice(place, stop), item, depth));
      place = stop;
    } else {
      // No element of a heading: those of a conversation would be among the page's own.
      if (heading || !line.trim()) flush();
      if (heading) found.push(h("p", { class: "heading" }, inline(heading[1], 0)));
      else if (line.trim()) paragraph.push(line);
      place += 1;
    }
  }
  flush();
  return found;
}

const isNumbered = (item) => /\d/.test(item[2]);

/** Where a list ends: at a line that is neither an item of it, nor indented. */
function endOfList(lines, start, first) {
  let stop = start + 1;
  for (let place = start + 1; place < lines.length; place += 1) {
    const line = lines[place];
    if (!line.trim()) continue;
    const item = line.match(ITEM);
    const isOurs = item && item[1].length <= first[1].length + 1 && isNumbered(item) === isNumbered(first);
    const isIndented = line.search(/\S/) > first[1].length + 1;
    // A line right below an item goes on with it.
    if (!isOurs && !isIndented && (item || !lines[place - 1].trim() || HEADING.test(line) || FENCE.test(line))) break;
    stop = place + 1;
  }
  return stop;
}

function list(lines, first, depth) {
  const items = [];
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && item[1].length <= first[1].length + 1) items.push({ text: [item[3]], indent: item[0].length - item[3].length });
    else items.at(-1).text.push(line.slice(Math.min(Math.max(line.search(/\S/), 0), items.at(-1).indent)));
  }
  const made = items.map(({ text }) => {
    const parts = blocks(text, depth + 1);
    // The one paragraph of an item needs no element of its own.
    return h("li", {}, parts[0]?.matches("p:not(.heading)") ? [[...parts[0].childNodes], parts.slice(1)] : parts);
  });
  const start = parseInt(first[2], 10);
  return isNumbered(first) ? h("ol", start === 1 ? {} : { start }, made) : h("ul", {}, made);
}

function inline(text, depth) {
  if (depth > DEEPEST) return [text];
  const found = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    found.push(marked(match, depth + 1));
    last = match.index + match[0].length;
  }
  return [...found, text.slice(last)];
}

function marked([all, sign, , code, , bold, starred, underlined, label, target], depth) {
  if (sign !== undefined) return sign;
  if (code !== undefined) return h("code", {}, code);
  if (bold !== undefined) return h("strong", {}, inline(bold, depth));
  if ((starred ?? underlined) !== undefined) return h("em", {}, inline(starred ?? underlined, depth));
  if (target !== undefined) return [inline(label, depth), h("span", { class: "target" }, ` (${target})`)];
  return all;
}
