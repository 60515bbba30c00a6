/* Heat maps: labels that stay in sight, cells that can be pointed at, columns that can be sorted. */

/** A heat map of the elements that `find` gives by name: map, corner, cells, labels, scale, readout and the like. */
function createHeatmap(find) {
  const MOST_PIXELS = 16e6; // phones refuse larger canvases
  const FONT = '"Noto Sans", "Noto Sans CJK JP", system-ui, sans-serif';
  const shown = { values: null, rows: [], columns: [], order: [], most: 1, row: -1, column: -1, kept: -1, marks: null };
  const layout = { width: 20, height: 20, left: 0, top: 0, bars: 30, font: 12 };
  const listeners = [];

  /** A context whose unit is a CSS pixel, sharp on dense screens. */
  function prepare(canvas, width, height) {
    const density = Math.min(Math.max(devicePixelRatio || 1, 1), Math.sqrt(MOST_PIXELS / (width * height)));
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(density, density);
    context.font = `${layout.font}px ${FONT}`;
    context.textBaseline = "middle";
    return context;
  }

  /** The room in pixels for the longest label; those that are longer still are squeezed. */
  function room(context, tokens, most) {
    return Math.min(most, Math.max(8, ...tokens.map((token) => context.measureText(visible(token)).width)));
  }

  function arrange() {
    const { rows, columns } = shown;
    layout.font = 12;
    const context = prepare(find("cells"), 1, 1);
    layout.left = Math.ceil(room(context, rows, 110)) + 14;
    const figure = find("map").parentElement; // it goes below the overview where it would be too narrow beside it
    figure.style.flexBasis = `${layout.left + Math.min(columns.length, 40) * 15 + 24}px`;
    const available = figure.clientWidth - layout.left - 20;
    const widest = columns.length <= 12 ? 44 : 26;
    layout.width = Math.max(12, Math.min(widest, Math.floor(available / columns.length)));
    layout.height = Math.max(14, Math.min(24, layout.width));
    layout.font = Math.min(13, Math.max(11, layout.width * 0.72));
    context.font = `${layout.font}px ${FONT}`;
    layout.upright = columns.map((token) => context.measureText(visible(token)).width <= layout.width - 1);
    const leaning = columns.filter((_, column) => !layout.upright[column]);
    layout.bars = columns.length <= 16 ? 60 : 30;
    layout.top = layout.bars + Math.max(20, leaning.length ? Math.ceil(room(context, leaning, 110)) + 10 : 0);
    find("corner").style.width = `${layout.left}px`;
  }

  function drawColumnLabels() {
    const { width, top, bars: room } = layout;
    const context = prepare(find("column-labels"), shown.order.length * width, top);
    const means = columnMeans(shown.values, shown.rows.length, shown.columns.length);
    const bars = shown.row >= 0 ? rowOf(shown.row) : means;
    const most = largest(bars) || 1;
    shown.order.forEach((column, place) => {
      const height = Math.abs(bars[column]) / most * (room - 8);
      context.fillStyle = colour(bars[column] < 0 ? "dev" : "accent");
      context.globalAlpha = shown.row >= 0 ? 0.95 : 0.55;
      context.fillRect(place * width + 1, room - 4 - height, width - 2, height);
      context.globalAlpha = 1;
      const upright = layout.upright[column];
      context.fillStyle = colour(column === shown.column ? "accent" : "ink");
      context.save();
      context.translate((place + 0.5) * width, upright ? top - 10 : top - 5);
      if (!upright) context.rotate(-Math.PI / 2);
      context.textAlign = upright ? "center" : "left";
      context.fillText(visible(shown.columns[column]), 0, 0, upright ? width : top - room - 8);
      context.restore();
    });
    context.fillStyle = colour("line");
    context.fillRect(0, room - 4, shown.order.length * width, 1);
  }

  const rowOf = (row) => shown.values.subarray(row * shown.columns.length, (row + 1) * shown.columns.length);

  function drawRowLabels() {
    const { left, height } = layout;
    const context = prepare(find("row-labels"), left, shown.rows.length * height);
    context.textAlign = "right";
    shown.rows.forEach((token, row) => {
      context.fillStyle = colour(row === shown.row || row === shown.kept ? "accent" : "ink");
      context.fillText(visible(token), left - 8, (row + 0.5) * height, left - 12);
      if (row === shown.kept) context.fillRect(left - 4, row * height + 2, 2, height - 4);
    });
  }

  function drawCells() {
    const { width, height } = layout, rows = shown.rows.length, columns = shown.columns.length;
    const context = prepare(find("cells"), columns * width, rows * height);
    const small = document.createElement("canvas");
    small.width = columns;
    small.height = rows;
    small.getContext("2d").putImageData(toImage(shown.values, rows, columns, shown.most, shown.order), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, columns * width, rows * height);
    context.fillStyle = colour("surface");
    for (let column = 1; column < columns; column += 1) context.fillRect(column * width - 0.5, 0, 1, rows * height);
    for (let row = 1; row < rows; row += 1) context.fillRect(0, row * height - 0.5, columns * width, 1);
    if (shown.marks) drawMarks(context);
    if (shown.row < 0) return;
    context.strokeStyle = colour("ink");
    context.lineWidth = 2;
    context.strokeRect(shown.order.indexOf(shown.column) * width, shown.row * height, width - 1, height - 1);
  }

  /** Links on top of an alignment's weights: a dot for a found one, frames for the sure and the possible ones. */
  function drawMarks(context) {
    const { width, height } = layout;
    const place = ([column, row]) => [shown.order.indexOf(column) * width, row * height];
    const mark = colour("dev"), halo = colour("surface"); // a light edge, so that marks are seen on any cell
    const frame = (dashes) => (link) => {
      const [x, y] = place(link);
      for (const [style, line, thickness] of [[halo, [], 3.6], [mark, dashes, 1.8]]) {
        Object.assign(context, { strokeStyle: style, lineWidth: thickness });
        context.setLineDash(line);
        context.strokeRect(x + 2.5, y + 2.5, width - 6, height - 6);
      }
    };
    shown.marks.sure?.forEach(frame([]));
    shown.marks.possible?.forEach(frame([3, 2.5]));
    context.setLineDash([]);
    Object.assign(context, { strokeStyle: halo, fillStyle: mark, lineWidth: 1.5 });
    for (const link of shown.marks.found) {
      const [x, y] = place(link);
      context.beginPath();
      context.arc(x + width / 2 - 0.5, y + height / 2 - 0.5, 3.5, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
  }

  function drawScale() {
    const canvas = find("scale"), signed = shown.signed, context = canvas.getContext("2d");
    const values = Float32Array.from({ length: 128 }, (_, index) => (signed ? index / 63.5 - 1 : index / 127));
    context.putImageData(toImage(values, 1, 128, 1, inOrder(128)), 0, 0);
    find("least").textContent = signed ? format(-shown.most) : "0";
    find("most").textContent = format(shown.most);
    const uniform = 1 / shown.columns.length;
    if (shown.shares && uniform <= shown.most) {
      context.fillStyle = colour("dev");
      context.fillRect(Math.round(126 * uniform / shown.most), 0, 2, 1);
    }
    const note = find("uniform");
    if (note) note.textContent = shown.shares ? `uniform ${format(uniform)}` : "";
  }

  /** Weights have one scale, from 0 to 1, so that maps can be compared; a switch ends it at the largest weight. */
  function rescale() {
    const stretched = !shown.shares || find("stretch")?.checked;
    shown.most = stretched ? largest(shown.values) : 1;
    const control = find("stretch")?.parentElement;
    if (control) control.hidden = !shown.shares;
  }

  /** The map as an SVG element with its labels and colours. */
  function drawing() {
    const { width, height, left, top, bars, font } = layout;
    const rows = shown.rows.length, columns = shown.columns.length, above = top - bars;
    const image = toImage(shown.values, rows, columns, shown.most, shown.order);
    const svg = shape("svg", { viewBox: `0 0 ${left + columns * width} ${above + rows * height}`, "font-family": "sans-serif", "font-size": font });
    const ink = colour("ink");
    shown.order.forEach((column, index) => {
      const x = left + (index + 0.5) * width, y = above - 6;
      const upright = layout.upright[column];
      const turn = upright ? { "text-anchor": "middle" } : { transform: `rotate(-90 ${x} ${y})`, "dominant-baseline": "middle" };
      svg.append(shape("text", { x, y, fill: ink, ...turn }, visible(shown.columns[column])));
    });
    shown.rows.forEach((token, row) => {
      const y = above + (row + 0.5) * height;
      svg.append(shape("text", { x: left - 8, y, fill: ink, "text-anchor": "end", "dominant-baseline": "middle" }, visible(token)));
      for (let index = 0; index < columns; index += 1) {
        const [red, green, blue] = image.data.subarray(4 * (row * columns + index));
        svg.append(shape("rect", { x: left + index * width, y: above + row * height, width: width - 1, height: height - 1, fill: `rgb(${red},${green},${blue})` }));
      }
    });
    return { drawing: svg, width: left + columns * width, height: above + rows * height };
  }

  const format = (value) => (Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(3)).replace("-", "−");

  function sort() {
    const { columns } = shown;
    shown.order = inOrder(columns.length);
    if (find("sorting").querySelector(":checked")?.value !== "weight") return;
    const weights = shown.kept >= 0 ? rowOf(shown.kept) : columnMeans(shown.values, shown.rows.length, columns.length);
    shown.order.sort((one, other) => weights[other] - weights[one] || one - other);
  }

  function draw() {
    if (!shown.values || !find("cells").offsetParent) return;
    drawColumnLabels();
    drawRowLabels();
    drawCells();
    drawScale();
  }

  /** Where a cell is in the window. */
  function boxOf(row, column) {
    const box = find("cells").getBoundingClientRect();
    return { x: box.left + (shown.order.indexOf(column) + 0.5) * layout.width, y: box.top + row * layout.height };
  }

  function tell() {
    const inside = shown.row >= 0, tip = find("tip");
    tip.hidden = !inside;
    if (!inside) return find("readout").replaceChildren();
    const value = rowOf(shown.row)[shown.column];
    const parts = () => [text(visible(shown.rows[shown.row])), " ← ", text(visible(shown.columns[shown.column])), " ", element("b", {}, format(value))];
    find("readout").replaceChildren(...parts());
    tip.replaceChildren(...parts());
    const { x, y } = boxOf(shown.row, shown.column);
    const left = Math.min(innerWidth - tip.offsetWidth - 8, Math.max(8, x - tip.offsetWidth / 2));
    tip.style.transform = `translate(${left}px, ${Math.max(4, y - tip.offsetHeight - 8)}px)`;
  }

  function select(row, column) {
    if (row === shown.row && column === shown.column) return;
    Object.assign(shown, { row, column });
    draw();
    tell();
    for (const listener of listeners) listener(row, column, row < 0 ? null : rowOf(row));
  }

  /** Keeps a row, whose weights then decide the order of the columns; -1 lets it go. */
  function keep(row) {
    shown.kept = row === shown.kept ? -1 : row;
    sort();
    draw();
  }

  /** Shows values of rows × columns; `shares` says that they are weights, and `marks` are the links of an alignment. */
  function show({ values, rows, columns, shares, signed, marks }) {
    const kept = rows.length === shown.rows.length ? shown.kept : -1;
    Object.assign(shown, { values, rows, columns, shares, signed, marks, row: -1, column: -1, kept });
    rescale();
    sort();
    arrange();
    draw();
    tell();
  }

  function listen() {
    const cells = find("cells");
    const at = ({ offsetX, offsetY }) => [Math.floor(offsetY / layout.height), shown.order[Math.floor(offsetX / layout.width)]];
    const point = (event) => {
      const [row, column] = at(event);
      if (row >= 0 && row < shown.rows.length && column !== undefined) select(row, column);
    };
    cells.addEventListener("pointermove", point);
    cells.addEventListener("pointerdown", point);
    cells.addEventListener("click", (event) => keep(at(event)[0]));
    cells.addEventListener("pointerleave", () => select(-1, -1));
    cells.addEventListener("blur", () => select(-1, -1));
    cells.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") keep(shown.kept);
      if (event.key === "Enter" && shown.row >= 0) keep(shown.row);
      if (!step || !shown.values) return;
      event.preventDefault();
      const limit = (value, length) => Math.min(length - 1, Math.max(0, value));
      const row = limit(shown.row + step[0], shown.rows.length);
      select(row, shown.order[limit(shown.order.indexOf(shown.column) + step[1], shown.columns.length)]);
    });
    find("sorting").addEventListener("change", () => { sort(); draw(); });
    find("stretch")?.addEventListener("change", () => { rescale(); draw(); });
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width || !shown.values) return;
      width = innerWidth;
      arrange();
      draw();
    });
  }

  listen();
  return { show, draw, drawing, format, selectRow: (row) => select(row, row < 0 ? -1 : shown.order[0]), onSelect: (listener) => listeners.push(listener) };
}
