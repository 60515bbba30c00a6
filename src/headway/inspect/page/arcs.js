/* Dependency arcs: from each token's head to the token, the stronger the surer; roots hang from above. */
const arcsView = (() => {
  const GAP = 14, TEXT = 26;

  function shape(name, attributes, ...content) {
    const created = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
    created.append(...content);
    return created;
  }

  function centres(tokens) {
    const context = document.createElement("canvas").getContext("2d");
    context.font = "14px system-ui, sans-serif";
    let right = 0;
    return tokens.map((token) => {
      const width = Math.max(18, context.measureText(visible(token)).width) + GAP;
      right += width;
      return right - width / 2;
    });
  }

  function arc(from, to, base, weight, label) {
    const height = Math.min(150, 12 + Math.abs(to - from) * 0.32), title = shape("title", {}, label);
    const style = { class: "arc", "stroke-opacity": (0.25 + 0.75 * weight).toFixed(2), "stroke-width": (1 + 1.2 * weight).toFixed(2) };
    if (from === to) return shape("path", { ...style, class: "arc root", d: `M${to},${base - 34} L${to},${base - 5}` }, title);
    const path = `M${from},${base} C${from},${base - height * 1.3} ${to},${base - height * 1.3} ${to},${base - 5}`;
    return shape("path", { ...style, d: path }, title);
  }

  function drawing({ title, tokens, heads, weights }) {
    const places = centres(tokens), width = places.at(-1) + 40;
    const spans = heads.map((head, place) => (head === place ? 0 : Math.abs(places[head] - places[place])));
    const base = Math.min(150, 12 + Math.max(0, ...spans) * 0.32) + 24, height = base + TEXT;
    const label = `Heads of ${tokens.length} tokens: ${tokens.map((token, place) => `${token} from ${heads[place] === place ? "the root" : tokens[heads[place]]}`).join(", ")}`;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    const described = (head, place) => `${tokens[place]} ← ${head === place ? "root" : tokens[head]}, ${weights[place].toFixed(3)}`;
    svg.append(
      shape("defs", {}, shape("marker", { id: "tip-of-arc", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto" }, shape("path", { d: "M0,0 L8,4 L0,8 z", class: "arrow" }))),
      ...heads.map((head, place) => arc(places[head], places[place], base, weights[place], described(head, place))),
      ...tokens.map((token, place) => shape("text", { x: places[place], y: base + 16, "text-anchor": "middle" }, visible(token))),
    );
    const saving = saveButtons(() => ({ drawing: standalone(svg), title: `${document.title} · ${title}`, width, height }));
    return element("figure", {}, element("figcaption", {}, title), element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, svg), saving);
  }

  return { show: (all) => find("arcs").replaceChildren(...all.map(drawing)) };
})();
