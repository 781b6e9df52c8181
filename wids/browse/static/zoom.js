// Zoom by wheel, pan by drag. How far one is in, and where, stays for the next sample.

let view = { scale: 1, x: 0.5, y: 0.5 }; // magnification, and what is in the middle of the frame
const MOST = 64;

/** Let a stage be zoomed in its frame; `onscale` learns of each scale. Returns what sets a scale. */
export function zoomable(frame, stage, onscale) {
  const size = () => [stage.offsetWidth, stage.offsetHeight];
  let drag = null;

  function show() {
    const [width, height] = size();
    const { scale, x, y } = view;
    const left = frame.clientWidth / 2 - x * width * scale - stage.offsetLeft;
    const top = frame.clientHeight / 2 - y * height * scale - stage.offsetTop;
    stage.style.transform = scale === 1 ? "" : `translate(${left}px, ${top}px) scale(${scale})`;
    stage.style.setProperty("--zoom", scale);
    frame.classList.toggle("zoomed", scale > 1);
    onscale(scale);
  }

  /** Zoom to a scale, with a place of the frame, from its middle, staying where it is. */
  function zoom(scale, [dx, dy] = [0, 0]) {
    const [width, height] = size();
    const next = Math.min(Math.max(scale, 1), MOST);
    const shift = 1 / view.scale - 1 / next;
    const clamp = (value) => Math.min(Math.max(value, 0), 1);
    view = next === 1 ? { scale: 1, x: 0.5, y: 0.5 } : { scale: next, x: clamp(view.x + (dx / width) * shift), y: clamp(view.y + (dy / height) * shift) };
    show();
  }

  const fromMiddle = (event) => {
    const box = frame.getBoundingClientRect();
    return [event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2];
  };
  frame.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    event.preventDefault();
    zoom(view.scale * 1.0015 ** -event.deltaY, fromMiddle(event));
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || view.scale === 1) return;
    drag = { x: event.clientX, y: event.clientY, from: view };
    frame.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  frame.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [width, height] = size();
    const clamp = (value) => Math.min(Math.max(value, 0), 1);
    view = {
      scale: drag.from.scale,
      x: clamp(drag.from.x - (event.clientX - drag.x) / (width * drag.from.scale)),
      y: clamp(drag.from.y - (event.clientY - drag.y) / (height * drag.from.scale)),
    };
    show();
  });
  for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, () => { drag = null; });
  frame.addEventListener("dblclick", (event) => zoom(view.scale > 1 ? 1 : 3, fromMiddle(event)));
  new ResizeObserver(show).observe(stage);
  return { zoom, scale: () => view.scale };
}
