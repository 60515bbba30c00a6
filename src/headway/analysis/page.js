"use strict";

const page = JSON.parse(document.getElementById("payload").textContent);
const find = (id) => document.getElementById(id);

/** An element with attributes and children; a string child becomes text, never markup. */
function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  created.append(...children);
  return created;
}

/** Text of any script and direction that does not disturb its neighbours. */
const text = (value) => element("bdi", {}, value);

/** Fills a list of terms with [name, text] pairs. */
function fillTerms(list, pairs) {
  const term = ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, text(value)));
  list.replaceChildren(...pairs.map(term));
}

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

fillTerms(find("summary"), page.summary);
find("tables").append(...page.tables.flatMap(table));

/** Calls `draw` now and whenever the colours change: light to dark, screen to paper. */
function drawInEveryTheme(draw) {
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
  draw();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
