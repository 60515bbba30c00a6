/* Sentences of the report: their texts, and the heat map of a layer and head that a reader chooses. */
const heatmap = createHeatmap(find);
{
  const BITS = 8; // of a weight
  const ofAttention = document.querySelectorAll(".of-attention");
  let shown = 0, turn = 0;
  const current = () => page.examples[shown];

  /** Whether the output is wrong, where outputs are scored by whether they equal the reference. */
  const isWrong = ({ hypothesis, reference }) => "dev.exact_match" in page.metrics && reference !== null && hypothesis.trim() !== reference.trim();

  function describe(example) {
    const pairs = [["source", example.source], ["output", example.hypothesis]];
    if (example.reference !== null) pairs.push(["reference", example.reference]);
    if (example.score !== null) pairs.push(["score: log-probability over length", example.score.toFixed(3).replace("-", "−")]);
    fillTerms(find("texts"), pairs);
    find("texts").classList.toggle("wrong", isWrong(example));
    find("drawings").replaceChildren(...Object.entries(example.drawings).map(([name, drawing]) =>
      element("figure", {}, element("figcaption", {}, name), element("pre", { tabindex: "0", "aria-label": name }, drawing))));
  }

  /** Offers `options`, [value, label] pairs, and keeps the choice where it is still there. */
  function offer(select, options) {
    const before = select.value;
    select.replaceChildren(...options.map(([value, label]) => element("option", { value }, label)));
    if (options.some(([value]) => value === before)) select.value = before;
  }

  const layerOf = (example) => example.attention[Number(find("layer").value)];

  async function update() {
    const example = current(), layer = layerOf(example), mine = (turn += 1);
    for (const part of ofAttention) part.hidden = !layer;
    if (!layer) return;
    const all = await unpack(layer, BITS, layer.signed);
    if (mine !== turn) return; // another one was asked for meanwhile
    offer(find("head"), [["mean", "mean of heads"], ...inOrder(layer.heads).map((head) => [String(head), `head ${head + 1}`])]);
    const { sourceTokens: columns, targetTokens: rows } = example;
    const head = find("head").value === "mean" ? "mean" : Number(find("head").value);
    const values = headOf(all, layer.heads, head, rows.length * columns.length);
    heatmap.show({ values, rows, columns, shares: !layer.signed, signed: layer.signed });
  }

  function show(index) {
    shown = (index + page.examples.length) % page.examples.length;
    find("sentence").value = String(shown);
    offer(find("layer"), current().attention.map(({ title }, layer) => [String(layer), title]));
    describe(current());
    return update();
  }

  function picture() {
    const title = `${document.title} · ${layerOf(current()).title}, ${find("head").selectedOptions[0].textContent}`;
    return { ...heatmap.drawing(), title };
  }

  if (page.examples.length) {
    find("examples").hidden = false;
    offer(find("sentence"), page.examples.map((example, index) => [String(index), `${index + 1}. ${isWrong(example) ? "✗ wrong: " : ""}${example.source}`]));
    find("sentence").addEventListener("change", () => show(Number(find("sentence").value)));
    find("previous").addEventListener("click", () => show(shown - 1));
    find("next").addEventListener("click", () => show(shown + 1));
    for (const id of ["layer", "head"]) find(id).addEventListener("change", update);
    find("saving").append(saveButtons(picture));
    show(0).then(() => drawInEveryTheme(heatmap.draw));
  }
}
