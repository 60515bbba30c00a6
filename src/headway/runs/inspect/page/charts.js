/* SVG charts: axes with round numbers, and lines with bands that pointer and arrow keys read values off. */
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

/**
 * A figure of lines {label, colour, points}; a point is [x, value], or [x, value, low, high] with a band around it.
 * `axis` names one unit of x, and many.
 */
const lineChart = (() => {
  const WIDTH = 420, HEIGHT = 230, LEFT = 48, RIGHT = 12, TOP = 10, BOTTOM = 26;

  function scales(lines) {
    const points = lines.flatMap((line) => line.points);
    const values = points.flatMap(([, ...numbers]) => numbers);
    const yTicks = ticks(Math.min(...values), Math.max(...values), 4);
    const last = Math.max(...points.map(([x]) => x));
    const span = yTicks.at(-1) - yTicks[0];
    return {
      last, yTicks,
      xTicks: ticks(0, last, 4).filter((tick) => tick <= last),
      x: (value) => LEFT + (value / (last || 1)) * (WIDTH - LEFT - RIGHT),
      y: (value) => HEIGHT - BOTTOM - ((value - yTicks[0]) / span) * (HEIGHT - TOP - BOTTOM),
    };
  }

  function axes({ x, y, xTicks, yTicks }) {
    return [
      ...yTicks.flatMap((tick) => [
        shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
        shape("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, tidy(tick)),
      ]),
      ...xTicks.map((tick) => shape("text", { x: x(tick), y: HEIGHT - 8, "text-anchor": "middle" }, shortNumber.format(tick))),
    ];
  }

  function band(line, { x, y }) {
    const points = line.points.filter((point) => point.length > 2);
    if (points.length < 2) return [];
    const at = (column) => ([value, ...rest]) => `${x(value).toFixed(1)},${y(rest[column]).toFixed(1)}`;
    const edge = [...points.map(at(1)), ...points.map(at(2)).reverse()];
    return [shape("polygon", { class: "band", points: edge.join(" "), style: `fill:var(--${line.colour})` })];
  }

  function path(line, { x, y }) {
    const marks = line.points.map(([place, value]) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
    const style = `stroke:var(--${line.colour})`;
    const drawn = [shape("polyline", { class: "line", points: marks.join(" "), style, ...(line.dashes ? { "stroke-dasharray": line.dashes } : {}) })];
    if (line.points.length <= 30) {
      // Lines with dashes have hollow marks, so that they are told apart without colour.
      const mark = line.dashes ? `fill:var(--surface);stroke:var(--${line.colour});stroke-width:1.5` : `fill:var(--${line.colour})`;
      drawn.push(...line.points.map(([place, value]) => shape("circle", { cx: x(place), cy: y(value), r: 3, style: mark })));
    }
    return drawn;
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

  return (title, lines, axis = { one: "update", many: "updates" }) => {
    if (lines.every((line) => line.points.length === 1)) return numbers(title, lines, axis);
    const scale = scales(lines);
    const label = `${title} over ${roundNumber.format(scale.last)} ${axis.many}`;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0 });
    const cursor = shape("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    svg.append(...axes(scale), ...lines.flatMap((line) => band(line, scale)), ...lines.flatMap((line) => path(line, scale)), cursor);
    const caption = element("figcaption", { "aria-live": "polite" });
    let current = lines[0].points.length - 1;

    const read = (place, visible = true) => {
      const parts = lines.map((line) => [line, closest(line.points, place)]);
      caption.replaceChildren(
        element("span", { class: "update" }, `${axis.one} ${roundNumber.format(closest(lines[0].points, place)[0])}`),
        ...parts.map(([line, [, value, low, high]]) => element("span", { class: line.dashes ? "key dashed" : "key", style: `--colour:var(--${line.colour})` },
          `${line.label} ${roundNumber.format(value)}`, ...(low === undefined || low === high ? [] : [` (${roundNumber.format(low)} to ${roundNumber.format(high)})`]))),
      );
      cursor.setAttribute("x1", scale.x(place));
      cursor.setAttribute("x2", scale.x(place));
      cursor.setAttribute("visibility", visible ? "visible" : "hidden");
    };
    const rest = () => read(scale.last, false);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
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
    const named = lines.length > 1 ? `: ${lines.map(({ label, dashes }) => `${label}${dashes ? " (dashed)" : ""}`).join(", ")}` : "";
    const saving = saveButtons(() => ({ drawing: standalone(svg), title: `${document.title} · ${title}${named}`, width: WIDTH, height: HEIGHT }));
    return element("figure", {}, element("h3", {}, title), svg, caption, saving);
  };
})();
