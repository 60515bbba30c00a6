/* All heads of all layers as thumbnails: a row a layer, the mean of its heads first. They choose what the map shows. */
const overview = (() => {
  const heading = (name) => element("span", { class: "layer-name" }, name);

  function thumbnail(map, layer, head, values, chosen, choose) {
    const rows = layer.rowTokens.length, columns = layer.columnTokens.length;
    const canvas = element("canvas", { width: columns, height: rows, "aria-hidden": "true" });
    const mine = headOf(values, layer.heads, head, rows * columns);
    canvas.getContext("2d").putImageData(toImage(mine, rows, columns, largest(mine), inOrder(columns)), 0, 0);
    const name = head === "mean" ? "mean of heads" : `head ${head + 1}`;
    const button = element("button", {
      type: "button", role: "radio", "aria-checked": String(chosen), tabindex: chosen ? "0" : "-1",
      "aria-label": `${layer.title}, ${name}`, title: `${layer.title}, ${name}`,
    }, canvas);
    button.addEventListener("click", () => choose(head));
    return button;
  }

  /** Draws the grid; `choose(layer, head)` is called with numbers, or "mean" for the head. */
  function show(map, all, state, choose) {
    const box = find("overview"), heads = Math.max(...map.layers.map((layer) => layer.heads));
    const grid = map.layers.map((layer, number) => {
      const choices = layer.heads > 1 ? ["mean", ...inOrder(layer.heads)] : [0];
      return choices.map((head) => thumbnail(map, layer, head, all[number], number === state.layer && head === state.head, (picked) => choose(number, picked)));
    });
    const names = heads > 1 ? ["", "mean", ...inOrder(heads).map((head) => head + 1)] : ["", ""];
    box.style.setProperty("--heads", String(names.length - 1));
    box.style.setProperty("--side", names.length > 8 || grid.length > 4 ? "34px" : "46px");
    box.replaceChildren(
      ...names.map((name) => element("span", { class: "head-name", "aria-hidden": "true" }, String(name))),
      ...grid.flatMap((row, number) => [
        heading(shortTitle(map.layers[number].title)), ...row, ...inOrder(names.length - 1 - row.length).map(() => element("span")),
      ]),
    );
    box.hidden = map.layers.length === 1 && heads === 1;
    box.onkeydown = (event) => move(event, grid);
  }

  const shortTitle = (title) => title.replace(/^.* (?=layer )|, (self|cross)$/g, "");

  function move(event, grid) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const row = grid.findIndex((line) => line.includes(event.target)), column = grid[row]?.indexOf(event.target);
    const to = grid[row + step[0]]?.[column + step[1]];
    if (!to) return;
    to.click();
    find("overview").querySelector('[aria-checked="true"]')?.focus();
  }

  /** Moves the choice without drawing anew. */
  function mark(layer, head) {
    const name = head === "mean" ? "mean of heads" : `head ${head + 1}`;
    for (const button of find("overview").querySelectorAll("button")) {
      const chosen = button.getAttribute("aria-label") === `${layer.title}, ${name}`;
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
  }

  return { show, mark };
})();
