// Questions to the server. Only GET, only JSON.

/** Ask a question; throws an Error with the server's message. */
export async function ask(name, query = {}, signal = undefined) {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(key, value);
  }
  // A view may be left before the answer has begun, and between its head and its end.
  const unless = (left, other) => { if (left.name === "AbortError") throw left; return other; };
  const response = await fetch(`api/${name}?${parameters}`, { signal }).catch((error) => unless(error, null));
  if (!response) throw new Error("The server does not answer. Was `wids browse` ended?");
  const answer = await response.json().catch((error) => unless(error, { error: `status ${response.status}` }));
  if (!response.ok) throw Object.assign(new Error(answer.error ?? `status ${response.status}`), { answer });
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

/** Call again and again until it returns true, or the signal ends it. */
export async function poll(call, signal, pause = 600) {
  while (!signal.aborted) {
    if (await call()) return;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
