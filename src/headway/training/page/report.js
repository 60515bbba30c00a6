const page = JSON.parse(document.getElementById("payload").textContent);

const isNumber = (value) => /^[−-]?[\d,.]+\s?%?$/.test(value);

function table({ title, note, columns, rows }) {
  const numeric = columns.map((_, column) => rows.length > 0 && rows.every((row) => isNumber(row[column])));
  const kind = (column) => (numeric[column] ? { class: "number" } : {});
  const head = columns.map((name, column) => element("th", { scope: "col", ...kind(column) }, name));
  const body = rows.map((row) => element("tr", {}, ...row.map((value, column) => element("td", kind(column), text(value)))));
  const drawn = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return [
    element("h2", {}, title),
    ...(note ? [element("p", { class: "note" }, note)] : []),
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title }, drawn),
  ];
}

/** The first table as it is, and the others below a line that unfolds them. */
function tables([first, ...others]) {
  const folded = ({ title, ...rest }) => element("details", {}, element("summary", {}, title), ...table({ title, ...rest }).slice(1));
  return [...(first ? table(first) : []), ...others.map(folded)];
}

/** Where every layer and head is shown, or how to make that page. */
function lookInside(inside) {
  const link = inside ? [element("a", { href: inside }, "Look inside"), ": every layer and head of more sentences."] : [
    "Every layer and head of more sentences: ", element("code", {}, "headway inspect RUN")];
  find("look-inside").replaceChildren(...link);
}

find("headline").textContent = page.headline;
fillTerms(find("summary"), page.summary);
find("tables").append(...tables(page.tables));
lookInside(JSON.parse(find("inside").textContent));
themeButton(find("theme"), () => heatmap.draw());
