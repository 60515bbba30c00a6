"use strict";

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

/** A token as it can be seen alone: blanks, and SentencePiece's mark of them, as ␣, a combining character on a dotted circle. */
function visible(token) {
  if (token.trim() === "") return "␣".repeat(Math.max(1, token.length));
  return /^\p{M}/u.test(token) ? `◌${token}` : token.replaceAll("▁", "␣");
}

/** Packed bytes: base64 of deflated data. */
async function inflate(data) {
  const packed = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** Calls `draw` now and whenever the colours change: light to dark, screen to paper. */
function drawInEveryTheme(draw) {
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", draw);
  draw();
}

/** Lets a button go from the system's colours to light ones to dark ones, and calls `redraw`. */
function themeButton(button, redraw) {
  const themes = ["auto", "light", "dark"], root = document.documentElement;
  button.addEventListener("click", () => {
    const theme = themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length];
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    redraw();
  });
}

const probe = element("span", { hidden: "" });
document.body.append(probe);

/** A colour of the palette as the page shows it now, in a form that a canvas understands. */
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
