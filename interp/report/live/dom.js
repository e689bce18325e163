// Elements. Strings are inserted as text, never as markup.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  setAttributes(node, attributes);
  node.append(...children.flat());
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(node, attributes);
  node.append(...children.flat());
  return node;
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === false || value === null || value === undefined) node.removeAttribute(name);
    else if (name === "style") node.style.cssText = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
}

// Writing the same words again would make screen readers and the layout work for nothing.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function number(value, digits = 3) {
  if (!Number.isFinite(value)) return String(value).replace("-", "\u2212").replace("Infinity", "\u221e");
  const size = Math.abs(value);
  const places = size >= 1000 ? 0 : Math.min(digits, size >= 100 ? 1 : size >= 10 ? 2 : 3);
  const text = size !== 0 && (size >= 1e5 || size < 10 ** -digits) ? value.toExponential(2) : value.toFixed(places);
  return text.replace("-", "\u2212");
}

// In the cell of a table, where there is no room for powers of ten.
function short(value) {
  const text = number(value, 2);
  return text.includes("e") && Math.abs(value) < 1 ? (value < 0 ? ">\u22120.01" : "<0.01") : text;
}

// A share in words never rounds to 0 or 1 unless it is.
function share(value) {
  const text = value.toFixed(3);
  if (text === "0.000" && value > 0) return "<0.001";
  if (text === "1.000" && value < 1) return ">0.999";
  return text;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A color "#rrggbb" of the page as [r, g, b].
function rgb(name) {
  const text = color(name).slice(1);
  return [0, 2, 4].map((start) => parseInt(text.slice(start, start + 2), 16));
}

const written = (vocabulary, ids) => ids.map((id) => vocabulary[id]).join(vocabulary.every((word) => word.length === 1 || word[0] === "[") ? "" : " ");

const tokenColor = (index) => `var(--token-${index % 7})`;

// Draws on a canvas of `width` by `height` cells, one RGBA cell each; CSS stretches it without smoothing.
function drawCells(canvas, width, height, cell) {
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) image.data.set(cell(x, y), 4 * (y * width + x));
  }
  context.putImageData(image, 0, 0);
}

// Calls `draw` at most once per frame, however often it is requested.
function oncePerFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; draw(); });
  };
}

// A switch for one part, kept in step with the state.
function partSwitch(panel, part) {
  const box = el("input", { type: "checkbox", "aria-label": `${partName(part)} is on` });
  box.addEventListener("change", () => {
    const { off } = panel.store.state;
    panel.store.set({ off: box.checked ? off.filter((each) => each !== part) : [...off, part] });
  });
  return { box, update: () => { box.checked = !panel.store.state.off.includes(part); } };
}
