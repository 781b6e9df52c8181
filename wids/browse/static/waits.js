// What takes long, and why: shards that come from far away.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { bytes, counted, number } from "./format.js";

const PATIENCE = 1200; // milliseconds; what comes sooner needs no words

/** Say beside the view what it waits for, until it is there; returns what takes the words away. */
export function tellWaiting(view, signal) {
  const told = h("p", { class: "waiting", role: "status" });
  let timer = setTimeout(tell, PATIENCE);
  async function tell() {
    const found = await ask("waiting", {}, signal).catch(() => null);
    if (timer === null) return;
    const shards = found?.shards ?? [];
    told.textContent = shards.length ? sentence(shards[0]) : "Still reading…";
    if (!told.isConnected) view.before(told);
    timer = setTimeout(tell, PATIENCE);
  }
  return () => {
    clearTimeout(timer);
    timer = null;
    told.remove();
  };
}

function sentence(shard) {
  const size = shard.nbytes ? `, ${bytes(shard.nbytes)}` : "";
  const arrived = shard.arrived ? ` ${bytes(shard.arrived)} of it have come.` : "";
  const remote = ["remote", "unreachable"].includes(shard.state)
    ? " It is remote: without a sidecar beside it, it is fetched whole first." : "";
  return `Waiting for shard ${number(shard.shard)} (${shard.url}${size}) since ${Math.round(shard.seconds)} s.${arrived}${remote}`;
}

/** Say that shards had to be fetched whole, and what spares one that; null where none had to. */
export function tellWhole(count) {
  if (!count) return null;
  return h("p", { class: "note" },
    `${counted(count, "remote shard")} had no sidecar and came whole into the cache. `,
    "Sidecars, written where the shards lie by ", h("code", {}, "wids create --sidecars"),
    ", spare that: then only what is shown is fetched.");
}

/** How far the catalogue is, which answers all questions. */
export function built({ shards_done: done, num_shards: total }) {
  return h("div", { class: "progress" }, h("progress", { max: total, value: done, "aria-label": "Building the catalogue" }),
    h("span", {}, `${number(done)} of ${counted(total, "shard")} read; what is read is kept in the cache folder`));
}

/** Say which shards a search, a filter or statistics left out, in a few words; "" for none. */
export function leftOut({ skipped, without_sidecar: far }, see = "see Dataset") {
  const parts = [];
  if (far) parts.push(`${counted(far, "remote shard")} without a sidecar left out (\`wids create --sidecars\` writes them; opening a sample fetches its shard)`);
  if (skipped > far) parts.push(`${counted(skipped - far, "shard")} could not be read (${see})`);
  return parts.join(" · ");
}
