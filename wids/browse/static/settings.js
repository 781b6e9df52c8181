// What somebody chose for this browser: whether single keys act, light or dark, whole or filled tiles.

const NAMES = { facets: "wids-facets", fill: "wids-fill", keys: "wids-keys", raw: "wids-raw", theme: "wids-theme" };
const THEMES = ["", "light", "dark"]; // "" is the choice of the system

function read(name) {
  try {
    return localStorage.getItem(NAMES[name]) ?? "";
  } catch {
    return ""; // the browser keeps nothing
  }
}

function write(name, value) {
  try {
    localStorage.setItem(NAMES[name], value);
  } catch {
    // it lasts until the page is left
  }
}

/** Whether something that is off at first was switched on. */
export function chosen(name) {
  return read(name) === "on";
}

export function choose(name, on) {
  write(name, on ? "on" : "");
}

/** Let pictures fill their tiles, cut at the sides, or show them whole. */
export function setFill(on) {
  choose("fill", on);
  document.documentElement.toggleAttribute("data-fill", on);
}
document.documentElement.toggleAttribute("data-fill", chosen("fill"));

/** Show texts of conversations as they are written, or as the Markdown that they are. */
export function setRaw(on) {
  choose("raw", on);
  document.documentElement.toggleAttribute("data-raw", on);
}
document.documentElement.toggleAttribute("data-raw", chosen("raw"));

let keysAct = read("keys") !== "off";

/** Whether keys without Ctrl or Alt act. */
export function keysOn() {
  return keysAct;
}

export function setKeys(on) {
  keysAct = on;
  write("keys", on ? "" : "off");
}

/** The theme that was chosen; "" for that of the system. */
export function theme() {
  const found = read("theme");
  return THEMES.includes(found) ? found : "";
}

export function setTheme(name) {
  write("theme", name);
  showTheme(name);
}

function showTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
}
