/* The page of a comparison as a whole. */
const page = JSON.parse(find("payload").textContent);
{
  const COLOURS = 8, MOST_CONCLUSIONS = 6;
  const colours = Object.fromEntries(page.variants.map((name, index) => [name, `series-${index % COLOURS}`]));
  const look = (name) => page.variants.indexOf(name);
  const state = { pair: 0, test: 0, values: "scores" };
  const pairs = page.shown.filter(({ test }) => test === 0).map(({ a, b }) => ({ a, b }));

  function tableOf({ title, columns, rows, sides, notes }) {
    const kind = (column) => (sides[column] === "right" ? { class: "number" } : {});
    const head = columns.map((name, column) => element("th", { scope: "col", ...kind(column) }, text(name)));
    const body = rows.map((row) => element("tr", {}, ...row.map((value, column) => element("td", kind(column), text(value)))));
    const drawn = element("table", { class: "plain" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
    return [element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, drawn), ...notes.map((note) => element("p", { class: "note" }, note))];
  }

  function showVerdicts() {
    find("facts").textContent = page.facts.join(" · ");
    const lines = page.conclusions.map((line) => element("li", {}, text(line.replace(/ -(?=\d)/g, " −"))));
    find("conclusions").append(...lines.slice(0, MOST_CONCLUSIONS));
    find("more-conclusions").hidden = lines.length <= MOST_CONCLUSIONS;
    find("more-conclusions").append(element("ul", {}, ...lines.slice(MOST_CONCLUSIONS)));
    find("forests").append(...page.measures.map((measure) => forest(measure, page.pairs.filter(({ metric }) => metric === measure.key))));
    const [variants, differences] = page.tables;
    find("verdict-notes").textContent = differences.notes.join(" ");
    find("variant-table").append(...tableOf(variants));
    find("variant-table").querySelectorAll("tbody td:first-child").forEach((cell, index) => {
      cell.classList.add("swatch");
      cell.style.setProperty("--colour", `var(--${colours[page.variants[index]]})`);
    });
  }

  function showCurves() {
    find("curves").hidden = page.curves.length === 0;
    for (const { metric, lines, table } of page.curves) {
      const by = (column) => lines.map(({ variant, points }) => ({
        label: variant, colour: colours[variant], look: look(variant), points: points.map((point) => [point[column], ...point.slice(2)]),
      }));
      find("curve-charts").append(element("div", { class: "metric-curves" },
        element("div", { class: "charts" }, lineChart(`${metric} on dev by updates`, by(0)), lineChart(`${metric} on dev by ${page.time}`, by(1), { one: page.time.replace(/s$/, ""), many: page.time })),
        element("details", {}, element("summary", {}, "What it took"), ...tableOf(table))));
    }
  }

  function showParts() {
    find("parts").hidden = page.buckets.length === 0;
    const { a, b } = pairs[state.pair];
    find("bucket-charts").replaceChildren(...page.buckets.map((parts) => {
      const own = Object.entries(parts.scores).map(([name, values]) => ({ label: name, colour: colours[name], look: look(name), values }));
      const between = parts.differences.filter((one) => one.a === a && one.b === b).map(({ values }) => ({ label: `${b} − ${a}`, colour: colours[b], look: look(b), values }));
      const isDifference = state.values === "differences";
      const made = bucketChart(parts, isDifference ? between : own);
      made.append(element("details", {}, element("summary", {}, "Numbers"), ...tableOf(parts.table)));
      return made;
    }));
  }

  const ofPair = (list) => list.find(({ a, b, test }) => a === pairs[state.pair].a && b === pairs[state.pair].b && test === state.test);

  function showDifferences() {
    const ngrams = ofPair(page.ngrams), shown = ofPair(page.shown);
    find("ngrams").hidden = page.ngrams.length === 0;
    if (ngrams) differencesView.showNgrams(ngrams, colours);
    find("sentences").hidden = false;
    const { label } = page.measures.find(({ test }) => test === state.test);
    const means = page.seeds.length > 1 ? ", means over seeds" : "";
    find("sentence-note").textContent = `Differences of the sentence's own ${label}${means}, in turn those that ${shown.b} and those that ${shown.a} has better. Underlined words are not in the reference.`;
    differencesView.showSentences(shown, page.sentences[state.test], page.variants);
  }

  /** All choices of one kind are the same choice. */
  function choices(kind, names, chosen) {
    const selects = [...document.querySelectorAll(`select.${kind}`)];
    for (const select of selects) {
      select.append(...names.map((name, index) => element("option", { value: String(index) }, name)));
      select.addEventListener("change", () => {
        for (const other of selects) other.value = select.value;
        chosen(Number(select.value));
      });
    }
  }

  function showContents() {
    const sections = [...document.querySelectorAll("main > section:not([hidden])")];
    find("contents").append(...sections.map((section) => element("li", {}, element("a", { href: `#${section.id}` }, section.querySelector("h2").textContent))));
  }

  function listen() {
    choices("pair", pairs.map(({ a, b }) => `${b} against ${a}`), (pair) => { state.pair = pair; showParts(); showDifferences(); });
    choices("test", page.tests, (test) => { state.test = test; showDifferences(); });
    for (const label of document.querySelectorAll(".of-tests")) label.hidden = page.tests.length < 2;
    find("shown-values").addEventListener("change", (event) => { state.values = event.target.value; showParts(); });
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
      if (event.key === "n") differencesView.walk(1);
      if (event.key === "p") differencesView.walk(-1);
    });
  }

  showVerdicts();
  showCurves();
  listen();
  showParts();
  showDifferences();
  showContents();
  themeButton(find("theme"), differencesView.redraw);
  drawInEveryTheme(differencesView.redraw);
}
