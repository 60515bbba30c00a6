/* N-grams that one system wins, and sentences side by side with the attention of both. */
const differencesView = (() => {
  const rounded = (value) => value.toFixed(1).replace("-", "−");

  function ngramTable(title, rows, a, b, colour) {
    const most = Math.max(...rows.map((row) => Math.abs(row[2] - row[1])));
    const line = ([ngram, right, other, references]) => element("tr", {},
      element("td", {}, text(ngram)),
      element("td", { class: "number" }, rounded(right)), element("td", { class: "number" }, rounded(other)),
      element("td", { class: "number" }, String(references)),
      element("td", { "aria-hidden": "true" }, element("span", { class: "bar", style: `--colour:var(--${colour});width:${((4 * Math.abs(other - right)) / most).toFixed(2)}rem` })));
    const head = [["n-gram"], [a, "number"], [b, "number"], ["references", "number"], [""]].map(([name, kind]) =>
      element("th", { scope: "col", ...(kind ? { class: kind } : {}) }, text(name)));
    const body = rows.length ? rows.map(line) : [element("tr", {}, element("td", { colspan: "5" }, "none"))];
    return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title },
      element("table", { class: "plain" }, element("caption", {}, title), element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
  }

  function showNgrams({ a, b, rows }, colours) {
    find("ngram-tables").replaceChildren(
      ngramTable(`more often right: ${b}`, rows.filter((row) => row[2] > row[1]), a, b, colours[b]),
      ngramTable(`more often right: ${a}`, rows.filter((row) => row[2] < row[1]), a, b, colours[a]),
    );
  }

  const WORDS = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}\p{M}]+|[^\s\p{L}\p{N}\p{M}]|\s+/gu;
  const pieces = (line) => line.match(WORDS) ?? [];

  /** A text in which the words that the reference has not are marked. */
  function marked(line, reference) {
    const left = new Map();
    for (const piece of pieces(reference.toLowerCase())) left.set(piece, (left.get(piece) ?? 0) + 1);
    const shown = text("");
    for (const piece of pieces(line)) {
      const known = left.get(piece.toLowerCase()) ?? 0;
      if (piece.trim() === "" || known) {
        left.set(piece.toLowerCase(), known - 1);
        shown.append(piece);
      } else shown.append(element("mark", { class: "other" }, piece));
    }
    return shown;
  }

  function term(name, ...content) {
    return element("div", {}, element("dt", { title: name }, text(name)), element("dd", {}, ...content));
  }

  function output(name, sentence) {
    const [[seed, line, score], ...others] = sentence.outputs[name], [reference] = sentence.references;
    const shown = [marked(line || "(nothing)", reference), element("span", { class: "score" }, rounded(score))];
    if (others.length) {
      const lines = others.map(([number, said, value]) => element("li", {}, `seed ${number}: `, marked(said || "(nothing)", reference), element("span", { class: "score" }, rounded(value))));
      shown.push(element("details", { class: "seeds" }, element("summary", {}, `${others.length} other seed${others.length > 1 ? "s" : ""}, mean of all ${rounded(sentence.means[name])}`), element("ul", {}, ...lines)));
    }
    return term(`${name}${others.length ? `, seed ${seed}` : ""}`, ...shown);
  }

  const PARTS = `corner column-labels row-labels cells`.split(" ");

  /** The elements of a heat map with its choices, and what finds them by name. */
  function panel(name) {
    const made = {
      corner: element("div", { "data-part": "corner" }),
      "column-labels": element("canvas", { "data-part": "column-labels", "aria-hidden": "true" }),
      "row-labels": element("canvas", { "data-part": "row-labels", "aria-hidden": "true" }),
      cells: element("canvas", { "data-part": "cells", tabindex: "0", role: "application", "aria-label": `Attention of ${name}. The arrow keys choose a cell, Enter keeps its row, Escape lets it go.` }),
      scale: element("canvas", { "data-part": "scale", width: "128", height: "1", "aria-hidden": "true" }),
      least: element("output", {}, "0"), most: element("output", {}, "1"),
      readout: element("output", { "data-part": "readout", "aria-live": "polite" }),
      kind: element("select", { "aria-label": `Kind of attention of ${name}` }),
      layer: element("select", { "aria-label": `Layer of ${name}` }),
      head: element("select", { "aria-label": `Head of ${name}` }),
      sorting: element("select", { "aria-label": `Order of columns of ${name}` }),
      uniform: element("span", { class: "uniform" }), stretch: element("input", { type: "checkbox" }), saving: element("p"),
      tip: find("tip"),
    };
    made.map = element("div", { class: "map" }, ...PARTS.map((part) => made[part]));
    for (const order of ["position", "weight"]) made.sorting.append(element("option", { value: order }, `by ${order}`));
    const controls = element("div", { class: "controls" }, made.kind, made.layer, made.head, made.sorting,
      element("span", { class: "legend" }, made.least, made.scale, made.most, made.uniform), element("label", {}, made.stretch, " stretch the scale"));
    const figure = element("figure", { "data-variant": name }, element("figcaption", {}, text(name)), controls, made.map, made.readout, made.saving);
    return { made, figure };
  }

  function offer(select, names) {
    const before = select.value;
    select.replaceChildren(...names.map(([value, label]) => element("option", { value: String(value) }, label)));
    select.value = names.some(([value]) => String(value) === before) ? before : String(names[0][0]);
    select.hidden = names.length < 2;
  }

  const drawn = new Set();

  /** Shows a variant's attention in a panel that stands in the page already. */
  function attention({ made, figure }, { maps, tokens }) {
    const heatmap = createHeatmap((part) => made[part]);
    const cross = Math.max(0, maps.findIndex((map) => map.title === "Cross"));
    let turn = 0;

    const titleOf = () => [document.title, figure.dataset.variant, made.layer.selectedOptions[0].textContent, made.head.selectedOptions[0].textContent].join(" · ");

    async function update() {
      const map = maps[Number(made.kind.value)], mine = (turn += 1);
      offer(made.layer, map.layers.map((layer, index) => [index, layer.title]));
      const layer = map.layers[Number(made.layer.value)];
      offer(made.head, layer.heads > 1 ? [["mean", "mean of heads"], ...inOrder(layer.heads).map((head) => [head, `head ${head + 1}`])] : [[0, "head 1"]]);
      const rows = tokens[layer.rows], columns = tokens[layer.columns];
      const all = await unpack(layer, page.bits, map.signed);
      if (mine !== turn) return; // another was asked for meanwhile
      const head = made.head.value === "mean" ? "mean" : Number(made.head.value);
      const values = headOf(all, layer.heads, head, rows.length * columns.length);
      heatmap.show({ values, rows, columns, shares: map.measure.startsWith("weight"), signed: map.signed });
      figure.dataset.shown = layer.name;
    }

    offer(made.kind, maps.map((map, index) => [index, map.title]));
    made.kind.value = String(cross);
    for (const select of [made.kind, made.layer, made.head]) select.addEventListener("change", update);
    made.saving.append(saveButtons(() => ({ ...heatmap.drawing(), title: titleOf() })));
    drawn.add(heatmap);
    update();
  }

  /** One click shows the attention of both, another one hides it. */
  function attentionButton(sentence, test, names, variants) {
    const button = element("button", { type: "button", "aria-expanded": "false" }, names.length > 1 ? "Attention of both" : `Attention of ${names[0]}`);
    let shown = null;
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "false";
      button.setAttribute("aria-expanded", String(open));
      if (shown) {
        shown.hidden = !open;
        return;
      }
      const panels = names.map(panel);
      shown = element("div", { class: "beside attention" }, ...panels.map(({ figure }) => figure));
      button.after(shown);
      names.forEach((name, index) => attention(panels[index], JSON.parse(find(`attention-${variants.indexOf(name)}-${test}-${sentence.segment}`).textContent)));
    });
    return button;
  }

  function card(sentence, test, a, b, variants) {
    const difference = sentence.means[b] - sentence.means[a];
    const sign = difference < 0 ? "" : "+";
    const title = element("h3", {}, `segment ${sentence.segment + 1}`, element("b", {}, `${sign}${rounded(difference)}`));
    const lines = element("dl", {}, ...(sentence.source === null ? [] : [term("source", text(sentence.source))]),
      ...sentence.references.map((line) => term("reference", text(line))), output(a, sentence), output(b, sentence));
    const made = element("article", { class: "card", tabindex: "-1" }, title, lines);
    const names = [a, b].filter((name) => sentence.attention.includes(name));
    if (names.length) made.append(attentionButton(sentence, test, names, variants));
    return made;
  }

  function showSentences({ a, b, segments, test }, sentences, variants) {
    drawn.clear();
    const bySegment = new Map(sentences.map((sentence) => [sentence.segment, sentence]));
    const cards = segments.map((segment) => card(bySegment.get(segment), test, a, b, variants));
    find("cards").replaceChildren(...(cards.length ? cards : [element("p", {}, "The sentences of these two do not differ.")]));
  }

  /** The next or the previous card gets the focus. */
  function walk(step) {
    const cards = [...find("cards").querySelectorAll(".card")];
    if (!cards.length) return;
    const now = cards.findIndex((made) => made.contains(document.activeElement));
    const to = cards[now < 0 ? (step > 0 ? 0 : cards.length - 1) : Math.min(cards.length - 1, Math.max(0, now + step))];
    to.focus({ preventScroll: true });
    to.scrollIntoView({ block: "start" });
  }

  return { showNgrams, showSentences, walk, redraw: () => drawn.forEach((heatmap) => heatmap.draw()) };
})();
