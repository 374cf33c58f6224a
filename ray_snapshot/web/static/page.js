// Drawings that are larger than their frame can be moved and zoomed, with the keyboard, too.
"use strict";

function zoomed(frame) {
  const drawing = frame.querySelector("svg");
  if (!drawing || frame.classList.contains("is-on")) return;
  const isLarge = drawing.width.baseVal.value > frame.clientWidth || drawing.height.baseVal.value > 540;
  if (!isLarge) return;
  frame.classList.add("is-on");
  // A long run fitted to the width is a thread: it begins as high as the frame, at its middle.
  const size = drawing.viewBox.baseVal;
  const isLong = size.width / size.height > 3 * frame.clientWidth / frame.clientHeight;
  const view = svgPanZoom(drawing, {
    zoomScaleSensitivity: 0.3, minZoom: isLong ? 0.005 : 0.2, maxZoom: 60, fit: !isLong, contain: isLong, center: true,
  });
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", "A drawing: arrow keys move it, plus and minus zoom, 0 shows all of it");
  const keys = {
    ArrowLeft: () => view.panBy({ x: 60, y: 0 }),
    ArrowRight: () => view.panBy({ x: -60, y: 0 }),
    ArrowUp: () => view.panBy({ x: 0, y: 60 }),
    ArrowDown: () => view.panBy({ x: 0, y: -60 }),
    "+": () => view.zoomIn(),
    "-": () => view.zoomOut(),
    0: () => { view.reset(); },
  };
  frame.addEventListener("keydown", (event) => {
    if (event.target === frame && keys[event.key]) {
      keys[event.key]();
      event.preventDefault();
    }
  });
}

document.querySelectorAll("[data-zoom]").forEach(zoomed);
