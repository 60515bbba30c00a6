/* Learning curves: small SVG charts of [update, value] points. */
{
  const WIDTH = 420, HEIGHT = 230, LEFT = 48, RIGHT = 12, TOP = 10, BOTTOM = 26;
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const whole = new Intl.NumberFormat("en", { notation: "compact" });

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

  function scales(lines) {
    const points = lines.flatMap((line) => line.points);
    const updates = points.map(([update]) => update), values = points.map(([, value]) => value);
    const yTicks = ticks(Math.min(...values), Math.max(...values), 4);
    const lastUpdate = Math.max(...updates);
    const span = yTicks.at(-1) - yTicks[0];
    return {
      lastUpdate, yTicks,
      xTicks: ticks(0, lastUpdate, 4).filter((tick) => tick <= lastUpdate),
      x: (update) => LEFT + (update / (lastUpdate || 1)) * (WIDTH - LEFT - RIGHT),
      y: (value) => HEIGHT - BOTTOM - ((value - yTicks[0]) / span) * (HEIGHT - TOP - BOTTOM),
    };
  }

  function axes({ x, y, xTicks, yTicks }) {
    return [
      ...yTicks.flatMap((tick) => [
        shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
        shape("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, number.format(tick)),
      ]),
      ...xTicks.map((tick) => shape("text", { x: x(tick), y: HEIGHT - 8, "text-anchor": "middle" }, whole.format(tick))),
    ];
  }

  function path(line, { x, y }) {
    const marks = line.points.map(([update, value]) => `${x(update).toFixed(1)},${y(value).toFixed(1)}`);
    const style = `stroke:var(--${line.colour})`;
    const drawn = [shape("polyline", { class: "line", points: marks.join(" "), style })];
    if (line.points.length <= 30) {
      drawn.push(...line.points.map(([u, v]) => shape("circle", { cx: x(u), cy: y(v), r: 3, style: `fill:var(--${line.colour})` })));
    }
    return drawn;
  }

  const closest = (points, update) =>
    points.reduce((best, point) => (Math.abs(point[0] - update) < Math.abs(best[0] - update) ? point : best));

  /** A figure of lines {label, colour, points} over the updates; pointer and arrow keys read values off it. */
  function chart(title, lines) {
    const scale = scales(lines);
    const label = `${title} over ${number.format(scale.lastUpdate)} updates`;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: 0 });
    const cursor = shape("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    svg.append(...axes(scale), ...lines.flatMap((line) => path(line, scale)), cursor);
    const caption = element("figcaption", { "aria-live": "polite" });
    let current = lines[0].points.length - 1;

    const read = (update, visible = true) => {
      const parts = lines.map((line) => [line, closest(line.points, update)]);
      caption.replaceChildren(
        element("span", { class: "update" }, `update ${number.format(closest(lines[0].points, update)[0])}`),
        ...parts.map(([line, [, value]]) => element("span", { class: "key", style: `--colour:var(--${line.colour})` }, `${line.label} ${number.format(value)}`)),
      );
      cursor.setAttribute("x1", scale.x(update));
      cursor.setAttribute("x2", scale.x(update));
      cursor.setAttribute("visibility", visible ? "visible" : "hidden");
    };
    const rest = () => read(scale.lastUpdate, false);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
      const point = closest(lines[0].points, Math.min(1, Math.max(0, share)) * scale.lastUpdate);
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
    return element("figure", {}, element("h3", {}, title), svg, caption);
  }

  const words = (name) => name.replaceAll("_", " ");
  const { curves } = page;
  const losses = [["training", "loss", "accent"], ["dev", "dev_loss", "dev"]]
    .filter(([, name]) => curves[name])
    .map(([label, name, colour]) => ({ label, colour, points: curves[name] }));
  const metrics = Object.keys(curves).filter((name) => name.startsWith("dev."));
  if (losses.length) {
    find("curves").hidden = false;
    find("charts").append(chart("loss", losses));
  }
  for (const name of metrics) {
    const title = words(name.slice("dev.".length));
    find("charts").append(chart(`${title} on dev`, [{ label: title, colour: "dev", points: curves[name] }]));
  }
  for (const name of ["learning_rate", "gradient_norm", "target_tokens_per_second"].filter((name) => curves[name])) {
    find("more-charts").append(chart(words(name), [{ label: words(name), colour: "accent", points: curves[name] }]));
  }
}
