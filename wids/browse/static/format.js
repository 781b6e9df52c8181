// Numbers as people read them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Bytes with three figures or so: 20.5 kB. */
export function bytes(count) {
  if (count === null || count === undefined) return "size unknown";
  let unit = 0;
  while (count >= 999.95 && unit < UNITS.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit ? count.toFixed(count < 100 ? 1 : 0) : Math.round(count)} ${UNITS[unit]}`;
}

/** Whole numbers with separators, others with four figures. */
export function number(value) {
  if (typeof value !== "number") return /^-?\d+$/.test(value) ? BigInt(value).toLocaleString("en-US") : String(value).replace("Infinity", "∞");
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e19) return value.toLocaleString("en-US"); // time stamps have 19 digits
  return size >= 1e6 || size < 1e-3 ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

/** 1 sample, 2 samples. */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Seconds as m:ss.t. */
export function seconds(value) {
  if (value < 60) return `${value.toFixed(2)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
}
