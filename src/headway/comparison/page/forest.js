/* Forest plots: the difference of each pair by one measure with its interval, around zero and the margin. */
const forest = (() => {
  const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
  const probability = (p) => (p === null ? "" : p < 0.0001 ? "< 0.0001" : p.toFixed(4));

  function scaleOf(pairs, margin) {
    const ends = pairs.flatMap(({ low, high }) => [low, high]);
    const round = ticks(Math.min(...ends, -margin, 0), Math.max(...ends, margin, 0), 5);
    const low = round[0], span = round.at(-1) - low;
    return { round, at: (value) => `${(((value - low) / span) * 100).toFixed(3)}%`, width: (value) => `${((value / span) * 100).toFixed(3)}%` };
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
      placed("interval", { left: scale.at(pair.low), width: scale.width(pair.high - pair.low) }),
      placed("dot", { left: scale.at(pair.difference) }));
    const numbers = [`${signed(pair.difference)} `, element("small", {}, `${signed(pair.low)} to ${signed(pair.high)}`)];
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

  return ({ label, margin, higher }, pairs) => {
    const scale = scaleOf(pairs, margin);
    const head = ["", `difference in ${label}, 95 % interval`, "", "p", "verdict"].map((name, column) =>
      element("th", { scope: "col", ...(column === 3 ? { class: "number p" } : {}) }, name));
    const body = element("tbody", {}, ...pairs.map((pair) => row(pair, scale, margin)), axis(scale, margin, higher));
    body.addEventListener("keydown", walk);
    const caption = margin ? `${label}; even within ±${tidy(margin)}` : label;
    return element("table", { class: "forest" }, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)), body);
  };
})();
