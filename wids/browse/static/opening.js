// A dataset that is still being opened: how far that is, and the first samples of a remote one.

import { ask, preview } from "./api.js";
import { h } from "./dom.js";
import { bytes, counted, number } from "./format.js";

const PAUSE = 700; // milliseconds

/**
 * Wait for the dataset, and call `show(facts)` with its head if that is there before, and then
 * with the dataset itself.
 */
export async function openDataset(place, show) {
  let shown = false;
  const told = h("div", { class: "opening", role: "status" });
  for (let tries = 0; ; tries += 1) {
    const facts = await ask("dataset");
    const { opening } = facts;
    if (!opening) {
      preview(false);
      told.remove();
      await show(facts);
      return;
    }
    if (opening.error) {
      told.remove();
      throw new Error(opening.error);
    }
    if (tries || opening.preview || opening.num_shards) fill(told, facts, opening);
    if (!told.isConnected) place.before(told);
    if (opening.preview && !shown) {
      shown = true;
      await show(facts);
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function fill(told, facts, { preview: isPreview, num_shards: total, shards_here: here = 0, shards_counted: done, arrived }) {
  const shown = facts.num_samples === 1 ? "Shown is the first sample" : `Shown are the first ${counted(facts.num_samples, "sample")}`;
  const first = isPreview ? `${shown}, from the beginning of the first shard. ` : "";
  const progress = done !== undefined ? `The samples of ${number(done)} of ${counted(total, "shard")} are counted.` : total ? `${number(here)} of ${counted(total, "shard")} are here${arrived ? `, and ${bytes(arrived)} of others` : ""}.` : "";
  told.replaceChildren(
    h("progress", { ...(total > 1 ? { max: total, value: done ?? here } : {}), "aria-label": "Opening the dataset" }),
    h("p", {}, `The dataset is being opened. ${first}${progress}`));
}
