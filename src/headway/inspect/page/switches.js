/* Switches of parts, the outputs without those that are off, and the tree of other ways to go on. */
const switches = (() => {
  const spec = JSON.parse(find("model")?.textContent ?? "null"), off = new Set();
  const OTHERS = 5; // ways to go on that are shown
  let model = null, number = 0, original = null;

  const places = () => {
    const rows = new Map();
    for (const name of spec.switches) {
      const [place, within] = name.split(":"), [stack, layer, way] = place.split(".");
      const title = `${stack} layer ${layer}` + (within ? `, ${way}: ${within.split("=")[0]}s` : "");
      rows.set(title, [...(rows.get(title) ?? []), name]);
    }
    return [...rows];
  };

  function toggle(name) {
    const label = name.split("=")[1] ?? name.split(".").at(-1).replace("_", "-");
    const button = element("button", { type: "button", class: "switch", "data-part": name, "aria-pressed": "true", "aria-label": name.replace(/[:=_]/g, " ") }, label.replace(/^-/, "−"));
    button.addEventListener("click", () => {
      if (!off.delete(name)) off.add(name);
      refresh();
    });
    return button;
  }

  /** A row of buttons as one stop of Tab, in which the arrow keys move. */
  function asToolbar(box) {
    const all = () => [...box.querySelectorAll(":scope > button")];
    const reach = (chosen) => all().forEach((button) => { button.tabIndex = button === chosen ? 0 : -1; });
    reach(all()[0]);
    box.addEventListener("focusin", (event) => reach(event.target));
    box.addEventListener("keydown", (event) => {
      const place = all().indexOf(event.target), to = all()[{ ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: all().length - 1 }[event.key]];
      if (!to) return;
      event.preventDefault();
      to.focus();
    });
    return box;
  }

  function row([title, names]) {
    return asToolbar(element("div", { class: "switch-row", role: "toolbar", "aria-label": title }, element("span", { class: "layer-name" }, title), ...names.map(toggle)));
  }

  const joined = (tokens) => tokens.join("").replaceAll("▁", " ").trim();

  /** The text of an output, where tokens say it: only the processor of the run knows every vocabulary's. */
  function textOf(tokens) {
    const { outputs, tokens: lists } = original;
    return outputs.length && joined(lists[outputs[0].tokens].slice(0, -1)) === outputs[0].text.trim() ? joined(tokens) : tokens.join(" ");
  }

  const percent = (log) => `${(100 * Math.exp(log)).toFixed(1)} %`;

  /** An output as chips that can be clicked for other ways to go on after `kept` tokens. */
  function branch(found, kept) {
    const words = found.ids.map((id) => model.tokens[id]), total = found.logs.reduce((sum, log) => sum + log, 0);
    const children = element("ul", { class: "branches" });
    const others = element("div", { class: "others", role: "group", hidden: "" });
    const chips = [...words, "</s>"].map((word, place) => {
      const chip = element("button", { type: "button", class: "chip measured", title: `probability ${percent(found.logs[place])}: other ways to go on`, "aria-expanded": "false" }, text(visible(word)));
      chip.style.setProperty("--probability", String(Math.exp(found.logs[place])));
      if (place < kept) chip.classList.add("kept");
      chip.addEventListener("click", () => open(chip, place));
      return chip;
    });

    function open(chip, place) {
      const again = chip.getAttribute("aria-expanded") === "true";
      for (const each of chips) each.setAttribute("aria-expanded", "false");
      others.hidden = again;
      if (again) return;
      chip.setAttribute("aria-expanded", "true");
      const before = found.ids.slice(0, place);
      others.setAttribute("aria-label", `in the place of ${visible([...words, "</s>"][place])}`);
      others.replaceChildren(...model.next(number, off, before, OTHERS).map(({ token, log }) => {
        const choice = element("button", { type: "button", class: "chip" }, text(visible(model.tokens[token])), element("small", {}, percent(log)));
        choice.disabled = token === (found.ids[place] ?? 2);
        choice.addEventListener("click", () => {
          const [best] = model.search(number, off, [...before, token]);
          choice.disabled = true;
          if (!best) return;
          const grown = branch(best, place);
          children.append(grown);
          grown.querySelectorAll(".chip")[place].focus();
        });
        return choice;
      }));
    }

    const facts = `probability ${percent(total)}, score ${found.score.toFixed(3)}`.replace("-", "−");
    return element("li", {}, element("p", {}, element("span", { class: "said" }, text(textOf(words) || "(nothing)")), element("span", { class: "score" }, facts)), asToolbar(element("span", { class: "chips", role: "toolbar", "aria-label": "tokens" }, ...chips)), others, children);
  }

  function refresh() {
    if (!model) return;
    for (const button of find("switch-rows").querySelectorAll("button")) button.setAttribute("aria-pressed", String(!off.has(button.dataset.part)));
    find("all-on").disabled = off.size === 0;
    const begin = performance.now(), found = model.knows(number) ? model.search(number, off) : [];
    find("switched").dataset.milliseconds = String(performance.now() - begin);
    const list = find("tree");
    list.replaceChildren(...found.map((each) => branch(each, 0)));
    const written = found[0]?.ids.map((id) => model.tokens[id]), given = original.outputs[0] && original.tokens[original.outputs[0].tokens].slice(0, -1);
    const same = !written || written.join("\n") === given?.join("\n");
    const said = same ? "as above." : `another: ${textOf(written) || "(nothing)"}`;
    find("switched").textContent = `${off.size === 0 ? "All parts are on" : `${off.size} off`}: the output is ${said}`;
  }

  /** Lets the switches be of a sentence. */
  function show(place, sentence) {
    [number, original] = [place, sentence];
    if (find("switches").open) refresh();
  }

  function listen() {
    find("switching").hidden = !spec;
    if (!spec) return;
    find("switches").hidden = Boolean(spec.why);
    find("why").textContent = spec.why ?? "";
    find("switches").addEventListener("toggle", () => {
      if (!model) {
        model = createModel(spec);
        find("switch-rows").append(...places().map(row));
      }
      refresh();
    });
    find("all-on").addEventListener("click", () => { off.clear(); refresh(); });
  }

  listen();
  return { show };
})();
