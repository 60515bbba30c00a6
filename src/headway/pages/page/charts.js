/* SVG charts: axes with round numbers, and lines with bands that pointer and arrow keys read values off.
   Lines are told apart by colour, by dashes, by the shape of their marks and by a name at their end. */
const roundNumber = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const shortNumber = new Intl.NumberFormat("en", { notation: "compact" });

/** An SVG element with attributes and text. */
function shape(name, attributes, content = "") {
  const created = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(content);
  return created;
}

/** About `count` round numbers that span low to high. */
function ticks(low, high, count) {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const first = Math.floor(low / step), last = Math.ceil(high / step);
  return Array.from({ length: Math.max(last, first + 1) - first + 1 }, (_, index) => (first + index) * step);
}

/** Round numbers may not be round in binary: 0.1 + 0.2. */
const tidy = (value) => roundNumber.format(Math.abs(value) < 1e-12 ? 0 : value).replace("-", "−");


/** The round numbers of a logarithmic axis: 1, 2 and 5 of each power of ten, powers alone where there are many. */
function powersOfTen(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const factors = last - first > 2 ? [1] : [1, 2, 5];
  const all = Array.from({ length: last - first + 1 }, (_, index) => factors.map((factor) => factor * 10 ** (first + index))).flat();
  const from = all.findLastIndex((tick) => tick <= low * 1.000001), to = all.findIndex((tick) => tick >= high * 0.999999);
  return all.slice(Math.max(0, from), to < 0 ? undefined : to + 1);
}

/**
 * The round numbers of an axis for these values, and whether it is cut: it begins at zero, but where all values lie in
 * its upper third.
 */
function axisOf(values, logarithmic = false) {
  const low = Math.min(...values), high = Math.max(...values);
  if (logarithmic && low > 0) return { round: powersOfTen(low, high), cut: false, logarithmic: true };
  const cut = low > 0 && low > (2 / 3) * high && high > low;
  const round = ticks(cut ? low : Math.min(low, 0), cut ? high : Math.max(high, 0), 4);
  return { round, cut: cut && round[0] > 0, logarithmic: false };
}

/** Where a value of an axis stands, from 0 to 1. */
function shareOf({ round, logarithmic }, value) {
  const scale = logarithmic ? Math.log10 : (number) => number;
  const first = scale(round[0]), span = scale(round.at(-1)) - first;
  return (scale(value) - first) / (span || 1);
}

/** Two strokes across the foot of an axis that does not begin at zero. */
const cutMark = (x, y) => shape("path", { class: "cut", d: `M${x - 5},${y - 6} l10,-5 m-10,10 l10,-5` });

const DASHES = ["", "7 3", "2 3", "9 3 2 3"], SIGNS = ["●", "■", "▲", "◆"];
const MARKS = [
  (x, y) => shape("circle", { cx: x, cy: y, r: 3.4 }),
  (x, y) => shape("rect", { x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4 }),
  (x, y) => shape("path", { d: `M${x},${y - 4.4} l4.2,7.6 h-8.4 z` }),
  (x, y) => shape("path", { d: `M${x},${y - 4.8} l4.2,4.8 l-4.2,4.8 l-4.2,-4.8 z` }),
];

/** The marks and dashes of the lines of a chart, by number: sixteen differ. */
const lookOf = (number) => ({
  dashes: DASHES[(number + Math.floor(number / 4)) % DASHES.length], sign: SIGNS[number % SIGNS.length], mark: MARKS[number % MARKS.length],
});

/** The sign and the name of a line, as they stand below a chart. */
function keyOf(line, number, values) {
  const sign = element("span", { class: "sign", style: `color:var(--${line.colour})`, "aria-hidden": "true" }, lookOf(line.look ?? number).sign);
  return element("span", { class: "key" }, sign, text(line.label), values);
}

/**
 * A figure of lines {label, colour, points, look}; a point is [x, value], or [x, value, low, high] with a band around
 * it, and `look` the number that its marks and dashes go by. `axis` names one unit of x, and many.
 */
const lineChart = (() => {
  const WIDTH = 420, HEIGHT = 230, LEFT = 48, TOP = 10, BOTTOM = 26;
  const MOST_MARKS = 30, FEW_MARKS = 6, LETTER = 6, LONGEST = 16, APART = 12;
  const shortened = (label) => (label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label);

  function scales(lines, logarithmic) {
    const points = lines.flatMap((line) => line.points);
    const axis = axisOf(points.flatMap(([, ...numbers]) => numbers), logarithmic);
    const last = Math.max(...points.map(([x]) => x));
    const right = lines.length < 2 ? 12 : 16 + LETTER * Math.max(...lines.map(({ label }) => shortened(label).length));
    return {
      last, right, axis,
      xTicks: ticks(0, last, 4).filter((tick) => tick <= last),
      x: (value) => LEFT + (value / (last || 1)) * (WIDTH - LEFT - right),
      y: (value) => HEIGHT - BOTTOM - shareOf(axis, value) * (HEIGHT - TOP - BOTTOM),
    };
  }

  function axes({ x, y, xTicks, axis, right }) {
    return [
      ...axis.round.flatMap((tick) => [
        shape("line", { class: "grid", x1: LEFT, x2: WIDTH - right, y1: y(tick), y2: y(tick) }),
        shape("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tidy(tick)),
      ]),
      ...xTicks.map((tick) => shape("text", { x: x(tick), y: HEIGHT - 8, "text-anchor": "middle" }, shortNumber.format(tick))),
      ...(axis.cut ? [cutMark(LEFT, HEIGHT - BOTTOM)] : []),
    ];
  }

  function band(line, { x, y }) {
    const points = line.points.filter((point) => point.length > 2);
    if (points.length < 2) return [];
    const at = (column) => ([value, ...rest]) => `${x(value).toFixed(1)},${y(rest[column]).toFixed(1)}`;
    const edge = [...points.map(at(1)), ...points.map(at(2)).reverse()];
    return [shape("polygon", { class: "band", points: edge.join(" "), style: `fill:var(--${line.colour})` })];
  }

  function path(line, number, { x, y }) {
    const { dashes, mark } = lookOf(line.look ?? number), { points } = line;
    const marks = points.map(([place, value]) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
    const stroke = { style: `stroke:var(--${line.colour})`, ...(dashes ? { "stroke-dasharray": dashes } : {}) };
    const drawn = [shape("polyline", { class: "line", points: marks.join(" "), ...stroke })];
    const stride = points.length <= MOST_MARKS ? 1 : Math.ceil(points.length / FEW_MARKS);
    for (const [place, value] of points.filter((_, index) => (points.length - 1 - index) % stride === 0)) {
      const made = mark(x(place), y(value));
      made.setAttribute("style", `fill:var(--${line.colour})`);
      drawn.push(made);
    }
    return drawn;
  }

  /** The names of lines at their ends, moved apart where they would touch. */
  function names(lines, { x, y }) {
    if (lines.length < 2) return [];
    const places = lines.map((line) => ({ line, x: x(line.points.at(-1)[0]), y: y(line.points.at(-1)[1]) + 4 })).sort((one, other) => one.y - other.y);
    places.forEach((place, index) => { if (index) place.y = Math.max(place.y, places[index - 1].y + APART); });
    const over = Math.max(0, places.at(-1).y - (HEIGHT - BOTTOM + 4));
    return places.map((place) => shape("text", { class: "name", x: place.x + 8, y: place.y - over, style: `fill:var(--${place.line.colour})` }, shortened(place.line.label)));
  }

  const closest = (points, place) =>
    points.reduce((best, point) => (Math.abs(point[0] - place) < Math.abs(best[0] - place) ? point : best));

  /** Lines of a single point each have no course: they are numbers. */
  function numbers(title, lines, axis) {
    const values = lines.map(({ label, points: [[place, value]] }) => [`${label}, ${axis.one} ${roundNumber.format(place)}`, tidy(value)]);
    const list = element("dl", { class: "numbers" });
    fillTerms(list, values);
    return element("figure", {}, element("h3", {}, title), list);
  }

  return (title, lines, { one = "update", many = "updates", logarithmic = false } = {}) => {
    if (lines.every((line) => line.points.length === 1)) return numbers(title, lines, { one });
    const scale = scales(lines, logarithmic);
    const how = scale.axis.logarithmic ? ", logarithmic axis" : scale.axis.cut ? `, axis cut at ${tidy(scale.axis.round[0])}` : "";
    const label = `${title} over ${roundNumber.format(scale.last)} ${many}${how}`;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0 });
    const cursor = shape("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    svg.append(...axes(scale), ...lines.flatMap((line) => band(line, scale)), ...lines.flatMap((line, number) => path(line, number, scale)), ...names(lines, scale), cursor);
    const caption = element("figcaption", { "aria-live": "polite" });
    let current = lines[0].points.length - 1;

    const read = (place, visible = true) => {
      caption.replaceChildren(
        element("span", { class: "update" }, `${one} ${roundNumber.format(closest(lines[0].points, place)[0])}`),
        ...lines.map((line, number) => {
          const [, value, low, high] = closest(line.points, place);
          const band = low === undefined || low === high ? "" : ` (${roundNumber.format(low)} to ${roundNumber.format(high)})`;
          return keyOf(line, number, ` ${roundNumber.format(value)}${band}`);
        }),
      );
      cursor.setAttribute("x1", scale.x(place));
      cursor.setAttribute("x2", scale.x(place));
      cursor.setAttribute("visibility", visible ? "visible" : "hidden");
    };
    const rest = () => read(scale.last, false);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - scale.right);
      const point = closest(lines[0].points, Math.min(1, Math.max(0, share)) * scale.last);
      current = lines[0].points.indexOf(point);
      read(point[0]);
    });
    svg.addEventListener("pointerleave", rest);
    svg.addEventListener("blur", rest);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      current = Math.min(lines[0].points.length - 1, Math.max(0, current + step));
      read(lines[0].points[current][0]);
    });
    rest();
    const saving = saveButtons(() => ({ drawing: standalone(svg), title: `${document.title} · ${title}`, width: WIDTH, height: HEIGHT }));
    const heading = element("h3", {}, title, element("small", {}, how.replace(/^, /, " · ")));
    return element("figure", {}, heading, svg, caption, saving);
  };
})();
