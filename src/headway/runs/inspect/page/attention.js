/* Heat maps of attention: a row for each target token, a column for each source token. */
{
  const MOST_PIXELS = 16e6; // phones refuse larger canvases
  const FONT = '"Noto Sans", system-ui, sans-serif';
  const shown = { example: 0, weights: null, most: 1, row: -1, column: -1 };
  const current = () => page.examples[shown.example];

  /** The weights of a layer as (heads, rows, columns) bytes, unpacked when they are first looked at. */
  async function unpack(layer) {
    layer.bytes ??= new Uint8Array(await inflate(layer.data));
    return layer.bytes;
  }

  /** Rows of weights from 0 to 1: of one head, or the mean of all where `head` is "mean". */
  function pick(bytes, heads, head, rows, columns) {
    const chosen = head === "mean" ? Array.from({ length: heads }, (_, index) => index) : [Number(head)];
    return Array.from({ length: rows }, (_, row) =>
      Array.from({ length: columns }, (_, column) => {
        const sum = chosen.reduce((total, index) => total + bytes[(index * rows + row) * columns + column], 0);
        return sum / chosen.length / 255;
      }));
  }

  /** A context whose unit is a CSS pixel, sharp on dense screens. */
  function prepare(canvas, width, height) {
    const density = Math.min(devicePixelRatio || 1, Math.sqrt(MOST_PIXELS / (width * height)));
    canvas.width = width * density;
    canvas.height = height * density;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(density, density);
    context.font = `${Math.min(14, layout.cell * 0.75)}px ${FONT}`;
    context.textBaseline = "middle";
    return context;
  }

  const layout = { cell: 22, left: 0, top: 0 };

  /** The room in pixels for the longest label; those that are longer still are squeezed. */
  function measure(tokens) {
    const context = prepare(find("cells"), 1, 1);
    return Math.min(140, Math.max(...tokens.map((token) => context.measureText(visible(token)).width)));
  }

  function arrange({ sourceTokens, targetTokens }) {
    layout.cell = Math.max(14, Math.min(26, Math.floor(900 / sourceTokens.length)));
    layout.top = Math.max(layout.cell, measure(sourceTokens)) + 12;
    layout.left = measure(targetTokens) + 16;
    find("map").firstElementChild.style.width = `${layout.left}px`;
  }

  function drawLabels({ sourceTokens, targetTokens }) {
    const { cell, left, top } = layout;
    const above = prepare(find("source-labels"), sourceTokens.length * cell, top);
    sourceTokens.forEach((token, column) => {
      above.fillStyle = colour(column === shown.column ? "accent" : "ink");
      const upright = above.measureText(visible(token)).width <= cell;
      above.save();
      above.translate((column + 0.5) * cell, top - (upright ? cell / 2 : 6));
      if (!upright) above.rotate(-Math.PI / 2);
      above.textAlign = upright ? "center" : "left";
      above.fillText(visible(token), 0, 0, top - 8);
      above.restore();
    });
    const beside = prepare(find("target-labels"), left, targetTokens.length * cell);
    beside.textAlign = "right";
    targetTokens.forEach((token, row) => {
      beside.fillStyle = colour(row === shown.row ? "accent" : "ink");
      beside.fillText(visible(token), left - 8, (row + 0.5) * cell, left - 12);
    });
  }

  function drawCells({ sourceTokens, targetTokens }) {
    const { cell } = layout, accent = colour("accent");
    const context = prepare(find("cells"), sourceTokens.length * cell, targetTokens.length * cell);
    context.fillStyle = colour("raised");
    shown.weights.forEach((_, row) => context.fillRect(0, row * cell, sourceTokens.length * cell, cell - 1));
    context.fillStyle = accent;
    shown.weights.forEach((weights, row) => weights.forEach((weight, column) => {
      context.globalAlpha = weight / shown.most;
      context.fillRect(column * cell, row * cell, cell - 1, cell - 1);
    }));
    context.globalAlpha = 1;
    if (shown.row < 0) return;
    context.strokeStyle = colour("ink");
    context.lineWidth = 2;
    context.strokeRect(shown.column * cell, shown.row * cell, cell - 1, cell - 1);
  }

  function draw() {
    if (!shown.weights) return;
    drawLabels(current());
    drawCells(current());
  }

  /** The map as an SVG element with its labels and colours. */
  function drawing() {
    const { sourceTokens, targetTokens } = current(), { cell, left, top } = layout;
    const width = left + sourceTokens.length * cell, height = top + targetTokens.length * cell;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": Math.min(14, cell * 0.75) });
    const ink = colour("ink"), accent = colour("accent");
    sourceTokens.forEach((token, column) => {
      const x = left + (column + 0.5) * cell, y = top - 6;
      svg.append(shape("text", { x, y, fill: ink, transform: `rotate(-60 ${x} ${y})` }, visible(token)));
    });
    targetTokens.forEach((token, row) => {
      const y = top + row * cell;
      svg.append(shape("text", { x: left - 8, y: y + cell / 2, fill: ink, "text-anchor": "end", "dominant-baseline": "middle" }, visible(token)));
      shown.weights[row].forEach((weight, column) => svg.append(shape("rect", {
        x: left + column * cell, y, width: cell - 1, height: cell - 1, fill: accent, "fill-opacity": weight / shown.most,
      })));
    });
    const layer = current().attention[find("layer").value].title, head = find("head").selectedOptions[0].textContent;
    return { drawing: svg, width, height, title: `${document.title} · ${layer}, ${head.replace(/^(\d)/, "head $1")}` };
  }

  function select(row, column) {
    if (row === shown.row && column === shown.column) return;
    const { sourceTokens, targetTokens } = current();
    Object.assign(shown, { row, column });
    const inside = row >= 0;
    find("readout").replaceChildren(...(inside
      ? [text(visible(targetTokens[row])), " ← ", text(visible(sourceTokens[column])), `  ${shown.weights[row][column].toFixed(2)}`]
      : []));
    draw();
  }

  function describe(example) {
    const pairs = [["source", example.source], ["output", example.hypothesis]];
    if (example.reference !== null) pairs.push(["reference", example.reference]);
    if (example.score !== null) pairs.push(["score", example.score.toFixed(3)]);
    fillTerms(find("texts"), pairs);
    find("drawings").replaceChildren(...Object.entries(example.drawings).map(([name, drawing]) =>
      element("figure", {}, element("figcaption", {}, name), element("pre", { tabindex: "0", "aria-label": name }, drawing))));
  }

  /** Offers `options`, [value, label] pairs, and keeps the choice where it is still there. */
  function offer(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, label]) => element("option", { value }, label)));
    if (options.some(([value]) => value === before)) select.value = before;
  }

  async function update() {
    const example = current();
    const layer = example.attention[find("layer").value];
    shown.weights = null;
    for (const part of document.querySelectorAll("#map, #legend, .of-attention")) part.hidden = !layer;
    if (!layer) return;
    const bytes = await unpack(layer);
    if (example !== current() || layer !== example.attention[find("layer").value]) return;
    offer(find("head"), [["mean", "mean of heads"], ...Array.from({ length: layer.heads }, (_, head) => [String(head), `${head + 1}`])]);
    const { sourceTokens, targetTokens } = example;
    shown.weights = pick(bytes, layer.heads, find("head").value, targetTokens.length, sourceTokens.length);
    const uniform = 1 / sourceTokens.length;
    shown.most = find("stretch").checked ? Math.max(1 / 255, ...shown.weights.flat()) : 1;
    find("most").textContent = shown.most.toFixed(2);
    find("uniform").textContent = `uniform ${uniform.toFixed(2)}`;
    find("uniform-mark").style.left = `${100 * Math.min(1, uniform / shown.most)}%`;
    select(-1, -1);
    arrange(example);
    draw();
  }

  function show(index) {
    shown.example = (index + page.examples.length) % page.examples.length;
    find("sentence").value = String(shown.example);
    offer(find("layer"), Object.entries(current().attention).map(([name, { title }]) => [name, title]));
    describe(current());
    return update();
  }

  function listen() {
    const cells = find("cells");
    find("sentence").addEventListener("change", () => show(Number(find("sentence").value)));
    find("previous").addEventListener("click", () => show(shown.example - 1));
    find("next").addEventListener("click", () => show(shown.example + 1));
    for (const id of ["layer", "head", "stretch"]) find(id).addEventListener("change", update);
    const point = ({ offsetX, offsetY }) => {
      const row = Math.floor(offsetY / layout.cell), column = Math.floor(offsetX / layout.cell);
      if (shown.weights?.[row]?.[column] !== undefined) select(row, column);
    };
    cells.addEventListener("pointermove", point);
    cells.addEventListener("pointerdown", point);
    cells.addEventListener("pointerleave", () => select(-1, -1));
    cells.addEventListener("blur", () => select(-1, -1));
    cells.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step || !shown.weights) return;
      event.preventDefault();
      const limit = (value, length) => Math.min(length - 1, Math.max(0, value));
      select(limit(shown.row + step[0], shown.weights.length), limit(shown.column + step[1], shown.weights[0].length));
    });
  }

  if (page.examples.length) {
    find("examples").hidden = false;
    offer(find("sentence"), page.examples.map((example, index) => [String(index), `${index + 1}. ${example.source}`]));
    listen();
    find("saving").append(saveButtons(drawing));
    show(0).then(() => drawInEveryTheme(draw));
  }
}
