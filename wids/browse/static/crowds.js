// Places of many points: what they span, which lie in an outline, which are unlike those around them.

const CELL = 48; // points at most, that are compared with each other
const RARE = 0.1; // of the points of the commonest group in a cell
const ALIKE = 3; // points of a group that make a crowd of their own
const MOST_CHECKED = 400; // points that are compared with all others

/** The order to draw points in: the more of its group lie around a point, the earlier; and the crowd around those hardly like any, by one of its points, else -1. */
export function rareLast(places, groups) {
  const points = Uint32Array.from(groups, (_, n) => n);
  const [share, crowd] = [new Float32Array(groups.length), new Int32Array(groups.length).fill(-1)];
  inCells(places, points, 0, (cell) => {
    const counts = new Map();
    for (const n of cell) counts.set(groups[n], (counts.get(groups[n]) ?? 0) + 1);
    const most = Math.max(...counts.values());
    const common = cell.find((n) => counts.get(groups[n]) === most);
    for (const n of cell) {
      share[n] = counts.get(groups[n]) / most;
      if (share[n] <= RARE) crowd[n] = common;
    }
  });
  const order = points.sort((a, b) => share[b] - share[a] || a - b);
  // A cell may reach over a gap to another crowd.
  for (const n of order.slice(-MOST_CHECKED)) if (crowd[n] >= 0) crowd[n] = crowdAround(places, groups, n);
  return { order, crowd };
}

/** Halve points by x and y in turn, down to few that lie together. */
function inCells(places, points, axis, call) {
  if (points.length <= CELL) return call(points);
  points.sort((a, b) => places[2 * a + axis] - places[2 * b + axis]);
  const half = points.length >> 1;
  for (const part of [points.subarray(0, half), points.subarray(half)]) inCells(places, part, 1 - axis, call);
}

/** The nearest point of another group, if far more of others lie around a point than of its own; else -1. */
function crowdAround(places, groups, point) {
  const far = (n) => (places[2 * n] - places[2 * point]) ** 2 + (places[2 * n + 1] - places[2 * point + 1]) ** 2;
  const alike = [];
  const others = [];
  let [nearest, least] = [-1, Infinity];
  groups.forEach((group, n) => {
    if (n === point) return;
    const distance = far(n);
    (group === groups[point] ? alike : others).push(distance);
    if (group !== groups[point] && distance < least) [nearest, least] = [n, distance];
  });
  const reach = Float64Array.from(alike).sort()[ALIKE - 1] ?? Infinity;
  return others.filter((each) => each < reach).length >= ALIKE / RARE ? nearest : -1;
}

/** The middle and size of what all but the outermost points span. */
export function fitted(places) {
  const span = (offset) => {
    const values = places.filter((_, n) => n % 2 === offset).sort((a, b) => a - b);
    if (!values.length) return [0, 1];
    const far = Math.floor(values.length / 200);
    return [values[far], values[values.length - 1 - far]];
  };
  const [[left, right], [bottom, top]] = [span(0), span(1)];
  return { x: (left + right) / 2, y: (bottom + top) / 2, size: Math.max(right - left, top - bottom, 1e-30) * 1.12 };
}

/** Whether a point lies in a polygon, by the even-odd rule. */
export function holds(corners, x, y) {
  let inside = false;
  corners.forEach(([x1, y1], place) => {
    const [x2, y2] = corners[(place + 1) % corners.length];
    if ((y1 > y) !== (y2 > y) && x < x1 + ((y - y1) / (y2 - y1)) * (x2 - x1)) inside = !inside;
  });
  return inside;
}
