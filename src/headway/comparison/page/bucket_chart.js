/* Scores of parts of a test set: a place on the axis for each part, and there a point with its interval for each line. */
const bucketChart = (() => {
  const NARROW = 460, BROAD = 960, MANY = 10; // parts from which on a chart is as broad as the page
  const HEIGHT = 250, LEFT = 48, RIGHT = 12, TOP = 12, BOTTOM = 44;
  function scaleOf(labels, lines) {
    const width = labels.length > MANY ? BROAD : NARROW;
    const axis = axisOf(lines.flatMap((line) => line.values.flat()).filter((value) => value !== null));
    const step = (width - LEFT - RIGHT) / labels.length;
    return {
      width, step, axis,
      x: (part, line) => LEFT + step * (part + 0.5) + (line - (lines.length - 1) / 2) * Math.min(14, (0.7 * step) / lines.length),
      y: (value) => HEIGHT - BOTTOM - shareOf(axis, value) * (HEIGHT - TOP - BOTTOM),
    };
  }

  /** Labels that are too long for their place are cut; the reading below the chart has them whole. */
  const cut = (label, step) => (label.length * 6.2 <= step ? label : `${label.slice(0, Math.max(3, Math.floor(step / 6.2) - 1))}…`);

  function drawn(line, index, { x, y }) {
    const style = `stroke:var(--${line.colour})`;
    return line.values.flatMap(([value, low, high], part) => {
      const mark = lookOf(line.look).mark(x(part, index), y(value));
      mark.setAttribute("style", `fill:var(--${line.colour})`);
      const spread = low === null ? [] : [shape("line", { class: "spread", x1: x(part, index), x2: x(part, index), y1: y(low), y2: y(high), style })];
      return [...spread, mark];
    });
  }

  const rounded = (value) => value.toFixed(2).replace("-", "−");

  /** A figure of lines {label, colour, values, look}, a value being [value, low, high]. */
  return ({ title, axis, labels, counts, counted }, lines) => {
    const scale = scaleOf(labels, lines);
    const svg = shape("svg", { viewBox: `0 0 ${scale.width} ${HEIGHT}`, role: "img", "aria-label": title, tabindex: 0 });
    const active = shape("rect", { class: "active", y: TOP, height: HEIGHT - TOP - BOTTOM + 4, width: scale.step, visibility: "hidden" });
    svg.append(active, ...scale.axis.round.flatMap((tick) => [
      shape("line", { class: tick === 0 ? "zero-line" : "grid", x1: LEFT, x2: scale.width - RIGHT, y1: scale.y(tick), y2: scale.y(tick) }),
      shape("text", { x: LEFT - 6, y: scale.y(tick) + 4, "text-anchor": "end" }, tidy(tick)),
    ]), ...labels.map((label, part) => shape("text", { x: LEFT + scale.step * (part + 0.5), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, cut(label, scale.step))),
    shape("text", { x: (LEFT + scale.width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, axis),
    ...(scale.axis.cut ? [cutMark(LEFT, HEIGHT - BOTTOM)] : []), ...lines.flatMap((line, index) => drawn(line, index, scale)));
    const caption = element("figcaption", { "aria-live": "polite" });
    let current = -1;

    const read = (part) => {
      current = part;
      active.setAttribute("visibility", part < 0 ? "hidden" : "visible");
      if (part >= 0) active.setAttribute("x", LEFT + scale.step * part);
      const place = part < 0 ? [] : [element("span", { class: "update" }, `${labels[part]}, ${counts[part].toLocaleString("en")} ${counted}`)];
      caption.replaceChildren(...place, ...lines.map((line, index) => {
        const [value, low, high] = part < 0 ? [] : line.values[part];
        const numbers = part < 0 ? "" : low === null ? ` ${rounded(value)}` : ` ${rounded(value)} (${rounded(low)} to ${rounded(high)})`;
        return keyOf(line, index, numbers);
      }));
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * scale.width - LEFT;
      read(Math.min(labels.length - 1, Math.max(0, Math.floor(place / scale.step))));
    });
    svg.addEventListener("pointerleave", () => read(-1));
    svg.addEventListener("blur", () => read(-1));
    svg.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: labels.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      read(Math.min(labels.length - 1, Math.max(0, to)));
    });
    read(-1);
    const shown = labels.length > MANY ? element("div", { class: "wide" }, svg) : svg;
    const how = scale.axis.cut ? ` · axis cut at ${tidy(scale.axis.round[0])}` : "";
    const named = `${title}: ${lines.map(({ label, look }) => `${lookOf(look).sign} ${label}`).join(", ")}`;
    const saving = saveButtons(() => ({ drawing: standalone(svg), title: `${document.title} · ${named}`, width: scale.width, height: HEIGHT }));
    return element("figure", labels.length > MANY ? { class: "broad" } : {}, element("h3", {}, title, element("small", {}, how)), shown, caption, saving);
  };
})();
