// Fields that the server could not describe at once: they are asked for until they are there.

import { ask } from "./api.js";

const FIRST_MILLISECONDS = 50;
const LONGEST_MILLISECONDS = 4000;

/** Ask for the fields of a sample that are late; `oncome` gets those that have come, each time some have. */
export async function awaitLate(sample, signal, oncome) {
  let pause = FIRST_MILLISECONDS;
  for (;;) {
    const late = sample.fields.filter((field) => field.late);
    if (!late.length) return;
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (signal.aborted) return;
    const answer = await ask("sample", { i: sample.index, from: late[0].number }, signal).catch((error) => error);
    if (signal.aborted) return;
    const come = late.filter((field) => update(field, answer));
    if (come.length) oncome(come);
    pause = come.length ? FIRST_MILLISECONDS : Math.min(2 * pause, LONGEST_MILLISECONDS);
  }
}

/** Take what an answer says of a field, which may be that it failed; false if the field is still late. */
function update(field, answer) {
  const found = answer instanceof Error
    ? { error: answer.message, late: false } : answer.fields.find(({ number }) => number === field.number);
  if (!found || found.late) return false;
  Object.assign(field, found);
  return true;
}
