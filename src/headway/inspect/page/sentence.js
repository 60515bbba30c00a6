/* The texts of a sentence: tokens with their probabilities, labels, the reference, further outputs. */
const sentenceView = (() => {
  const percent = (share) => `${(100 * share).toFixed(share > 0.9995 || share < 0.0995 ? 1 : 0)} %`;

  /** A token with a bar as long as its probability. */
  function chip(token, probability, label) {
    const begins = token.length > 1 && token.startsWith("▁"); // SentencePiece's mark of a new word
    const shown = element("span", { class: "chip" }, text(visible(begins ? token.slice(1) : token)));
    if (begins) shown.prepend(element("span", { class: "mark" }, "␣"));
    if (label !== undefined) shown.append(element("small", {}, label));
    if (probability !== undefined) {
      shown.style.setProperty("--probability", String(probability));
      shown.classList.add("measured");
      shown.title = `probability ${percent(probability)}`;
    }
    return shown;
  }

  const chips = (list, tokens, made) => element("span", { class: "chips", "data-list": String(list) }, ...tokens.map(made));

  const term = (name, ...content) => element("div", {}, element("dt", {}, name), element("dd", {}, ...content));

  function output({ text: said, score, tokens, probabilities }, lists) {
    return [
      element("p", {}, text(said || "(nothing)"), element("span", { class: "score", title: "log-probability over the length penalty" }, `score ${score.toFixed(3).replace("-", "−")}`)),
      chips(tokens, lists[tokens], (token, place) => chip(token, probabilities[place])),
    ];
  }

  function labelled(words) {
    const made = ({ word, label, probability, gold }) => {
      const shown = chip(word, probability, gold !== null && gold !== label ? `${label} (${gold})` : label);
      if (gold !== null && gold !== label) shown.classList.add("wrong");
      return shown;
    };
    return element("span", { class: "chips" }, ...words.map(made));
  }

  /** Fills the texts' part of the page with a sentence. */
  function show(sentence) {
    find("source").replaceChildren(text(sentence.source.trim() || "(an empty line)"));
    find("source").classList.toggle("long", sentence.source.length > 120);
    const { outputs, words, tokens, reference } = sentence;
    const lines = [];
    if (words.length) lines.push(term("labels", labelled(words)));
    else if (outputs.length) {
      lines.push(term("source", chips(sentence.sourceTokens, tokens[sentence.sourceTokens], (token) => chip(token))));
      lines.push(term("output", ...output(outputs[0], tokens)));
    }
    if (reference !== null && !words.length) lines.push(term("reference", text(reference)));
    find("lines").replaceChildren(...lines);
    const others = outputs.slice(1);
    find("others").hidden = others.length === 0;
    find("others").firstElementChild.textContent = `${others.length} more output${others.length === 1 ? "" : "s"}`;
    find("outputs").replaceChildren(...others.map((each) => element("li", {}, ...output(each, tokens))));
  }

  /** Shades the tokens that a row looks at, and frames the token that the row is of. */
  function follow(layer, row, weights) {
    const { above } = currentRamps(), most = weights ? largest(weights) : 1;
    for (const list of document.querySelectorAll("#lines .chips[data-list]")) {
      const number = Number(list.dataset.list);
      [...list.children].forEach((shown, place) => {
        const weight = weights && number === layer?.columns ? Math.max(0, weights[place]) / most : 0;
        shown.classList.toggle("active", Boolean(weights) && number === layer.rows && place === row);
        shown.style.backgroundColor = weight > 0.02 ? `rgb(${above[Math.round(weight * 110)].join(" ")})` : "";
      });
    }
  }

  return { show, follow };
})();
