/* Forest plots: the difference of each pair by one measure with its interval, around zero and the margin. */
const forest = (() => {
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  const probability = (p) => (p === null ? "" : p < 0.0001 ? "< 0.0001" : p.toFixed(4));

  const range = ({ low, high }) => (low === null ? "" : `${signed(low)} to ${signed(high)}`); // seeds in two groups have none

  function scaleOf(pairs, margin) {
    const ends = pairs.flatMap(({ difference, low, high }) => [low ?? difference, high ?? difference]);
    const round = ticks(Math.min(...ends, -margin, 0), Math.max(...ends, margin, 0), 5);
    const low = round[0], span = round.at(-1) - low, share = (value) => (value - low) / span;
    return { round, share, at: (value) => `${(share(value) * 100).toFixed(3)}%`, width: (value) => `${((value / span) * 100).toFixed(3)}%` };
  }

  function placed(kind, style, ...content) {
    const drawn = element("span", { class: kind }, ...content);
    Object.assign(drawn.style, style);
    return drawn;
  }

  function ground({ at, width }, margin) {
    return [
      ...(margin ? [placed("margin", { left: at(-margin), width: width(2 * margin) })] : []),
      placed("zero", { left: at(0) }),
    ];
  }

  function row(pair, scale, margin) {
    const track = element("div", { class: "track", "aria-hidden": "true" }, ...ground(scale, margin),
      ...(pair.low === null ? [] : [placed("interval", { left: scale.at(pair.low), width: scale.width(pair.high - pair.low) })]),
      placed("dot", { left: scale.at(pair.difference) }));
    const numbers = [`${signed(pair.difference)} `, element("small", {}, range(pair))];
    return element("tr", { class: pair.verdict, tabindex: "0" },
      element("th", { scope: "row" }, text(pair.b), element("small", {}, " against "), text(pair.a)),
      element("td", { class: "plot" }, track),
      element("td", { class: "numbers" }, ...numbers),
      element("td", { class: "number p" }, probability(pair.p)),
      element("td", { class: "verdict" }, pair.words));
  }

  function axis(scale, margin, higher) {
    const [left, right] = higher ? ["← worse", "better →"] : ["← better", "worse →"];
    const track = element("div", { class: "track" }, ...ground(scale, margin),
      ...scale.round.map((tick) => placed("tick", { left: scale.at(tick) }, tidy(tick))),
      placed("side left", {}, left), placed("side right", {}, right));
    return element("tr", { class: "axis", "aria-hidden": "true" }, element("th"), element("td", { class: "plot" }, track), element("td"), element("td", { class: "p" }), element("td"));
  }

  /** Up and down go from row to row. */
  function walk(event) {
    const step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    const to = step && event.target[step];
    if (!to?.matches("[tabindex]")) return;
    event.preventDefault();
    to.focus();
  }

  /** The plot as an SVG element, for a file. */
  function drawing(pairs, scale, margin, higher) {
    const names = pairs.map(({ a, b }) => `${b} against ${a}`), LETTER = 7;
    const NAME = 24 + LETTER * Math.max(...names.map((name) => name.length)), PLOT = 320, NUMBERS = 260, ROW = 28, AXIS = 44;
    const x = (value) => NAME + scale.share(value) * PLOT, bottom = pairs.length * ROW;
    const width = NAME + PLOT + NUMBERS, height = bottom + AXIS;
    const ink = colour("ink"), muted = colour("muted"), colours = { better: colour("good"), worse: colour("bad"), "rate?": muted };
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif", "font-size": 12 });
    if (margin) svg.append(shape("rect", { x: x(-margin), y: 0, width: x(margin) - x(-margin), height: bottom, fill: muted, "fill-opacity": 0.16 }));
    svg.append(shape("line", { x1: x(0), x2: x(0), y1: 0, y2: bottom, stroke: muted }));
    pairs.forEach((pair, index) => {
      const y = (index + 0.5) * ROW, fill = colours[pair.verdict] ?? ink;
      svg.append(
        shape("text", { x: NAME - 12, y: y + 4, fill: ink, "text-anchor": "end" }, names[index]),
        ...(pair.low === null ? [] : [shape("line", { x1: x(pair.low), x2: x(pair.high), y1: y, y2: y, stroke: fill, "stroke-width": 3 })]),
        shape("circle", { cx: x(pair.difference), cy: y, r: 5, fill }),
        shape("text", { x: NAME + PLOT + 14, y: y + 4, fill: ink }, `${signed(pair.difference)}${pair.low === null ? "" : ` (${range(pair)})`}, ${pair.words}`));
    });
    svg.append(...scale.round.map((tick) => shape("text", { x: x(tick), y: bottom + 16, fill: muted, "text-anchor": "middle" }, tidy(tick))),
      shape("text", { x: NAME, y: bottom + 36, fill: muted }, higher ? "← worse" : "← better"),
      shape("text", { x: NAME + PLOT, y: bottom + 36, fill: muted, "text-anchor": "end" }, higher ? "better →" : "worse →"));
    return { drawing: svg, width, height };
  }

  return ({ label, margin, higher }, pairs) => {
    const scale = scaleOf(pairs, margin);
    const head = ["", `difference in ${label}, 95 % interval`, "", "p", "verdict"].map((name, column) =>
      element("th", { scope: "col", ...(column === 3 ? { class: "number p" } : {}) }, name));
    const body = element("tbody", {}, ...pairs.map((pair) => row(pair, scale, margin)), axis(scale, margin, higher));
    body.addEventListener("keydown", walk);
    const caption = margin ? `${label}; even within ±${tidy(margin)}` : label;
    const saving = saveButtons(() => ({ ...drawing(pairs, scale, margin, higher), title: `${document.title} · difference in ${caption}, 95 % intervals` }));
    return element("table", { class: "forest" }, element("caption", {}, `${caption} `, saving), element("thead", {}, element("tr", {}, ...head)), body);
  };
})();
