/* The page as a whole: which sentence, which kind of map, which layer and head. */
const heatmap = createHeatmap(find);
{
  const index = JSON.parse(find("index").textContent);
  const state = { sentence: 0, tab: "", layer: 0, head: "mean" };
  const MOST_LOADED = 8;
  const loaded = new Map();
  let shownMap = null, turn = 0, wishedLayer = null;

  /** A sentence, read when it is shown; the last ones are kept, unpacked. */
  function load(number) {
    if (!loaded.has(number)) {
      if (loaded.size >= MOST_LOADED) loaded.delete(loaded.keys().next().value);
      const sentence = JSON.parse(find(`sentence-${number}`).textContent);
      const maps = sentence.alignment ? [...sentence.maps, { ...sentence.alignment.map, links: sentence.alignment }] : sentence.maps;
      for (const layer of maps.flatMap((map) => map.layers)) {
        layer.rowTokens = sentence.tokens[layer.rows];
        layer.columnTokens = sentence.tokens[layer.columns];
      }
      loaded.set(number, { ...sentence, maps });
    }
    return loaded.get(number);
  }

  const current = () => load(state.sentence);

  const ORDERS = {
    "as given": () => 0,
    "longest first": (one, other) => other.length - one.length,
    "least certain first": (one, other) => (one.certainty ?? 2) - (other.certainty ?? 2),
    "highest AER first": (one, other) => (other.errorRate ?? -1) - (one.errorRate ?? -1),
  };

  function entry(number) {
    const { source, certainty, errorRate } = index.sentences[number];
    const figure = errorRate !== null ? `AER ${errorRate.toFixed(0)}` : certainty !== null ? certainty.toFixed(2) : "";
    const button = element("button", { type: "button", "data-sentence": String(number) },
      element("span", { class: "number" }, String(number + 1)), element("span", { class: "line" }, text(source.trim() || "(empty)")), element("span", { class: "figure", title: errorRate === null ? "mean probability of a token" : "alignment error rate" }, figure));
    button.addEventListener("click", () => go(number));
    return element("li", {}, button);
  }

  const listed = () => [...find("sentences").querySelectorAll("button")];

  function list() {
    const numbers = inOrder(index.sentences.length), compare = ORDERS[find("order").value];
    numbers.sort((one, other) => compare(index.sentences[one], index.sentences[other]) || one - other);
    find("sentences").replaceChildren(...numbers.map(entry));
    const known = (name) => index.sentences.some((each) => each[name] !== null);
    find("figures").textContent = known("errorRate") ? "on the right: alignment error rate" : known("certainty") ? "on the right: mean probability of a token" : "";
    markSentence();
  }

  function markSentence() {
    for (const button of listed()) {
      const chosen = Number(button.dataset.sentence) === state.sentence;
      if (chosen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      button.tabIndex = chosen ? 0 : -1;
      if (!chosen) continue;
      const box = find("sentences"), { offsetTop, offsetHeight, offsetLeft, offsetWidth } = button;
      if (offsetTop < box.scrollTop || offsetTop + offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = offsetTop - 40;
      if (offsetLeft < box.scrollLeft || offsetLeft + offsetWidth > box.scrollLeft + box.clientWidth) box.scrollLeft = offsetLeft - 40;
    }
  }

  /** The sentence `step` further on in the list as it is sorted. */
  function walk(step) {
    const numbers = listed().map((button) => Number(button.dataset.sentence));
    const place = numbers.indexOf(state.sentence) + step;
    go(numbers[(place + numbers.length) % numbers.length]);
  }

  function go(number) {
    state.sentence = number;
    markSentence();
    sentenceView.show(current());
    switches.show(number, current());
    showTabs();
  }

  /** The kinds of maps, and the arcs, of which one is shown. */
  function showTabs() {
    const { maps, arcs } = current();
    const titles = [...maps.map((map) => map.title), ...(arcs.length ? ["Dependencies"] : [])];
    find("inside").hidden = titles.length === 0;
    if (!titles.includes(state.tab)) state.tab = titles.includes("Cross") ? "Cross" : titles[0] ?? "";
    find("tabs").replaceChildren(...titles.map((title) => {
      const chosen = title === state.tab;
      const tab = element("button", { type: "button", role: "tab", "aria-selected": String(chosen), "aria-controls": "panel", tabindex: chosen ? "0" : "-1" }, title);
      tab.addEventListener("click", () => { state.tab = title; showTabs(); });
      return tab;
    }));
    find("maps").hidden = state.tab === "Dependencies";
    find("arcs").hidden = state.tab !== "Dependencies";
    arcsView.show(state.tab === "Dependencies" ? arcs : []);
    showMap();
  }

  /** The number of a layer in its stack, from 1: a map has only the layers with weights. */
  const numberOf = (layer, place) => Number(layer.name.split(".")[1]) || place + 1;

  async function showMap() {
    const map = current().maps.find((each) => each.title === state.tab), mine = (turn += 1);
    shownMap = null;
    if (!map) return;
    const all = await Promise.all(map.layers.map((layer) => unpack(layer, index.bits, map.signed)));
    if (mine !== turn) return; // another map was asked for meanwhile
    if (wishedLayer !== null) state.layer = Math.max(0, map.layers.findIndex((layer, place) => String(numberOf(layer, place)) === wishedLayer));
    wishedLayer = null;
    state.layer = Math.min(state.layer, map.layers.length - 1);
    const { heads } = map.layers[state.layer];
    if (heads === 1) state.head = 0;
    else if (state.head !== "mean" && state.head >= heads) state.head = "mean";
    shownMap = { map, all };
    overview.show(map, all, state, choose);
    showHead();
  }

  function choose(layer, head) {
    Object.assign(state, { layer, head });
    overview.mark(shownMap.map.layers[layer], head);
    showHead();
  }

  function showHead() {
    const { map, all } = shownMap, layer = map.layers[state.layer];
    const rows = layer.rowTokens, columns = layer.columnTokens;
    const values = headOf(all[state.layer], layer.heads, state.head, rows.length * columns.length);
    const head = layer.heads === 1 ? "" : state.head === "mean" ? " · mean of heads" : ` · head ${state.head + 1}`;
    find("caption").textContent = `${layer.title}${head}`;
    find("measure").textContent = map.measure;
    describeLinks(map.links);
    heatmap.show({ values, rows, columns, shares: map.measure.startsWith("weight"), signed: map.signed, marks: map.links });
    const { sentence, tab } = state;
    try {
      history.replaceState(null, "", `#${new URLSearchParams({ sentence: sentence + 1, tab, layer: numberOf(layer, state.layer), head: state.head === "mean" ? "mean" : state.head + 1 })}`);
    } catch { /* a page within another has no address of its own */ }
  }

  function describeLinks(links) {
    const parts = [];
    if (links) parts.push(`The ${links.target} (rows) and the source (columns). A dot is a link that the weights give.`);
    if (links?.sure) parts.push(`Frames are the gold links, dashed where they are only possible. AER of this sentence: ${links.errorRate.toFixed(1)}.`);
    find("marks").textContent = parts.join(" ");
  }

  function startFromAddress() {
    const wished = new URLSearchParams(location.hash.slice(1));
    const number = Number(wished.get("sentence")) - 1;
    if (index.sentences[number]) state.sentence = number;
    state.tab = wished.get("tab") ?? "";
    wishedLayer = wished.get("layer");
    const head = wished.get("head") ?? "mean";
    state.head = /^[1-9]\d*$/.test(head) ? Number(head) - 1 : "mean";
  }

  function redraw() {
    if (shownMap) {
      overview.show(shownMap.map, shownMap.all, state, choose);
      heatmap.draw();
    }
  }

  /** Moves among buttons of which one can be reached by Tab. */
  function rove(box, buttons, keys) {
    box.addEventListener("keydown", (event) => {
      const all = buttons(), place = all.indexOf(event.target);
      const to = all[{ [keys[0]]: place - 1, [keys[1]]: place + 1, Home: 0, End: all.length - 1 }[event.key]];
      if (place < 0 || !to) return;
      event.preventDefault();
      const again = all.indexOf(to);
      to.click();
      buttons()[again]?.focus();
    });
  }

  function fitToPaper() {
    const width = find("map").scrollWidth;
    find("map").style.zoom = String(Math.min(1, 660 / width));
  }

  function listen() {
    find("order").append(...Object.keys(ORDERS)
      .filter((name) => !name.includes("AER") || index.sentences.some((each) => each.errorRate !== null))
      .map((name) => element("option", {}, name)));
    find("order").addEventListener("change", list);
    find("previous").addEventListener("click", () => walk(-1));
    find("next").addEventListener("click", () => walk(1));
    rove(find("sentences"), listed, ["ArrowUp", "ArrowDown"]);
    rove(find("tabs"), () => [...find("tabs").children], ["ArrowLeft", "ArrowRight"]);
    themeButton(find("theme"), redraw);
    find("saving").append(saveButtons(() => ({ ...heatmap.drawing(), title: `${document.title} · ${find("caption").textContent}` })));
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
      if (event.key === "n") walk(1);
      if (event.key === "p") walk(-1);
    });
    heatmap.onSelect((row, column, weights) => {
      if (shownMap) sentenceView.follow(shownMap.map.layers[state.layer], row, weights);
    });
    addEventListener("beforeprint", fitToPaper);
    addEventListener("afterprint", () => { find("map").style.zoom = ""; });
  }

  find("facts").textContent = index.facts.join(" · ");
  if (index.report) find("facts").append(" · ", element("a", { href: index.report }, "report"));
  find("rounding").textContent = index.bits === 8
    ? "Values are kept with 8 bits on a scale of square roots: one of 1 is exact to 0.004, one of 0.01 to 0.0004."
    : "Values are kept with 16 bits on a scale of square roots: exact to 0.00002.";
  startFromAddress();
  listen();
  list();
  drawInEveryTheme(redraw);
  go(state.sentence);
}
