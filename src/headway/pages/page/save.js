/* Pictures to keep: a chart or a heat map as it is shown, as a file of SVG or PNG. */

/** The properties of a drawing that style sheets decide, and that a file has to carry itself. */
const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "visibility", "font-family", "font-size", "font-weight"];

/** A copy of an SVG element in which every element has its colours and fonts. */
function standalone(svg) {
  const copy = svg.cloneNode(true), copies = [copy, ...copy.querySelectorAll("*")];
  [svg, ...svg.querySelectorAll("*")].forEach((original, index) => {
    const style = getComputedStyle(original);
    copies[index].setAttribute("style", DRAWN.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  return copy;
}

/** A drawing with the page's background and its title above it, as the text of an SVG file, with its size. */
function framed(drawing, title, width, height) {
  const PAD = 12, HEAD = 26;
  const box = { width: Math.max(width, 7.5 * title.length) + 2 * PAD, height: height + HEAD + 2 * PAD };
  const whole = shape("svg", { xmlns: "http://www.w3.org/2000/svg", ...box, viewBox: `0 0 ${box.width} ${box.height}` });
  const heading = shape("text", { x: PAD, y: PAD + 12, fill: colour("ink"), "font-family": "sans-serif", "font-size": 13 }, title);
  for (const [name, value] of Object.entries({ x: PAD, y: PAD + HEAD, width, height, overflow: "visible" })) drawing.setAttribute(name, value);
  whole.append(shape("rect", { ...box, fill: colour("surface") }), heading, drawing);
  return { text: new XMLSerializer().serializeToString(whole), ...box };
}

/** A picture of an SVG text, twice as fine as it is shown. */
async function toPng({ text, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Buttons that save what `picture` gives: {drawing, title, width, height}, an SVG element with its colours. */
function saveButtons(picture) {
  const save = async (kind) => {
    const { drawing, title, width, height } = picture();
    const file = framed(drawing, title, width, height);
    const name = `${title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80) || "picture"}.${kind}`;
    download(kind === "svg" ? new Blob([file.text], { type: "image/svg+xml" }) : await toPng(file), name);
  };
  const button = (kind) => {
    const made = element("button", { type: "button", class: "save", title: `Save this picture as ${kind.toUpperCase()}` }, kind.toUpperCase());
    made.addEventListener("click", () => save(kind));
    return made;
  };
  return element("span", { class: "saving" }, "Save ", button("svg"), " ", button("png"));
}
