// The URLs of the page, which are its state: every view can be linked to, reloaded and left by "back".
// And the URLs of the server: questions, by GET, answered in JSON, and what it has of a field.

// What belongs to the grid, and stays while one looks at a sample of it.
const GRID = ["order", "seed", "epoch", "rank", "replicas", "interleave", "lanes", "chunksize",
  "where", "q", "missing", "broken", "shard", "marks", "inside", "near", "far", "sort", "by", "across", "size", "look", "field", "colour"];
// Any other name is a column, of which values are picked.
const OWN = ["at", "i", "p", "compare", "view", "shards", "token"];

// Of these the page itself makes use; what a link was damaged to counts as not said.
const FORMS = { size: /^[sml]$/, look: /^(grid|list|table|map|count)$/, at: /^\d{1,15}$/, compare: /^\d{1,15}(,\d{1,15}){1,3}$/, shards: /^\d{1,15}$/ };

let listener = () => {};

/** Read the state off the URL: an object of strings, without what is not set. */
export function current() {
  const found = {};
  const query = new URLSearchParams(location.search);
  for (const [name, value] of query) {
    if (name !== "token" && value !== "" && (FORMS[name]?.test(value) ?? true)) found[name] = value;
  }
  return found;
}

/** Write a state as the query of a URL; null takes a name out. */
export function link(state) {
  const query = new URLSearchParams();
  const order = (name) => [...GRID, ...picksOf(state), ...OWN].indexOf(name);
  for (const name of Object.keys(state).sort((a, b) => order(a) - order(b))) {
    const value = state[name];
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `?${text}` : "?";
}

/** Only what says which samples are shown, in which order. */
export function gridPart(state) {
  return Object.fromEntries([...GRID, ...picksOf(state)].filter((name) => name in state).map((name) => [name, state[name]]));
}

/** The columns of which values are picked. */
export function picksOf(state) {
  return Object.keys(state).filter((name) => !GRID.includes(name) && !OWN.includes(name));
}

/** What a condition goes with: marked samples are shown by themselves. */
export function filterable(state) {
  const { marks, ...rest } = gridPart(state);
  return rest;
}

/** Only what the server has to know to find an order. */
export function orderPart(state) {
  const { size, look, field, colour, by, across, ...rest } = gridPart(state);
  return rest;
}

/** Go to another state; `replace` leaves no step to come back to. */
export function go(state, { replace = false } = {}) {
  arrive(link(state), replace);
}

/** Call a function whenever the state changes, with whether it is one to be shown from its top. */
export function onChange(call) {
  listener = call;
  addEventListener("popstate", () => call(false));
  document.addEventListener("click", (event) => {
    const anchor = event.target.closest("a[href^='?']");
    const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    if (!anchor || !plain || anchor.target) return;
    event.preventDefault();
    arrive(anchor.getAttribute("href"), false);
  });
}

function arrive(url, replace) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  listener(!replace);
}

// Questions to the server. Only GET, only JSON.

const PAUSE = 600; // milliseconds before what is not finished is asked for again

/** Ask a question; throws an Error with the server's message, and never returns once the signal has ended it. */
export async function ask(name, query = {}, signal = undefined) {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(key, value);
  }
  const response = await fetch(`api/${name}?${parameters}`, { signal }).catch(() => null);
  const answer = await response?.json().catch(() => ({ error: `status ${response.status}` }));
  if (signal?.aborted) return new Promise(() => {}); // of a view that was left, nothing goes on
  if (!response) throw new Error("The server does not answer. Was `wids browse` ended?");
  if (!response.ok) throw new Error(answer.error ?? `status ${response.status}`);
  return answer;
}

/** The URL of a small picture of a field; the version of its shard lets a browser keep it. */
export function thumb({ index, version }, field, size) {
  return `thumb?i=${index}&f=${field}&s=${size}&v=${version}`;
}

/** The URL of a field as it is. */
export function raw({ index, version }, field, save = false) {
  return `raw?i=${index}&f=${field}&v=${version}${save ? "&save=1" : ""}`;
}

/** The URL of what a filter found, as the document of a saved view. */
export function selection(order) {
  return `selection.json?${new URLSearchParams(order)}`;
}

/** Ask again and again until the answer is finished, or the signal ends it; `draw` gets each answer. */
export async function follow(name, query, signal, draw = () => {}) {
  for (;;) {
    const answer = await ask(name, query, signal);
    draw(answer);
    if (answer.finished !== false) return answer;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
