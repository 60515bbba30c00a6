const models = JSON.parse(find("models").textContent);
const PAUSE = 250; // milliseconds after the last key
const OTHERS = 3; // further outputs of a sentence
const KEPT = 2000; // answers
const TRANSLATE = "", AUTO = "auto";
const source = find("source"), target = find("target"), mirror = find("mirror"), from = find("from"), to = find("to"), task = find("task");
let languages = [], items = [], asking = new AbortController(), pause, speaking, current = null;

/** The answer of the server; an error says why there is none. */
async function ask(path, body, signal) {
  const form = body instanceof FormData, key = find("key").value;
  const headers = { ...(form ? {} : { "content-type": "application/json" }), ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const content = body && { method: "POST", body: form ? body : JSON.stringify(body) };
  const response = await fetch(path, { ...content, headers, signal });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Answers by what was asked, the oldest first. */
const kept = new Map();
async function known(key, make) {
  if (!kept.has(key)) kept.set(key, await make());
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return kept.get(key);
}

/** The parts of a text: sentences, or whole lines, and what stands between them. */
function* parts(value, language) {
  for (const line of value.split(/(\n)/)) {
    const whole = language ? Array.from(new Intl.Segmenter(language, { granularity: "sentence" }).segment(line), (each) => each.segment) : [line];
    for (const piece of whole) {
      const [, before, text, after] = piece.match(/^(\s*)(.*?)(\s*)$/s);
      if (before) yield { between: before };
      if (text) yield { input: text };
      if (after) yield { between: after };
    }
  }
}

const chosenModel = () => models.find((each) => (task.value === TRANSLATE ? each.source === from.dataset.language && each.target === to.value : each.name === task.value));

/** Asks for what is typed, and shows it; what was asked before and is not answered yet is given up. */
async function update() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking, value = source.value, own = [];
  target.classList.add("waiting");
  find("counts").textContent = `${value.length.toLocaleString("en")} of ${source.maxLength.toLocaleString("en")} characters`;
  mirror.textContent = `${value}\n`;
  if (value.trim()) {
    if (task.value === TRANSLATE) await translate(value, own, signal);
    else {
      own.push(...parts(value));
      await predict(chosenModel(), own, signal);
    }
  }
  if (signal.aborted) return;
  items = own;
  target.classList.remove("waiting");
  show();
  say("Ready.");
  clearTimeout(speaking);
  speaking = setTimeout(() => { find("spoken").textContent = target.textContent; }, 1000);
}

async function translate(value, own, signal) {
  const found = from.value === AUTO ? (await ask("detect", { q: value }, signal))[0].language : from.value;
  from.dataset.language = found;
  from.options[0].textContent = from.value === AUTO ? `Detected: ${named(found)}` : "Detect language";
  own.push(...parts(value, found));
  if (chosenModel()?.context) return predict(chosenModel(), own, signal);
  const key = (input) => `${found} ${to.value} ${input}`;
  const fresh = [...new Set(own.flatMap(({ input }) => (input && !kept.has(key(input)) ? [input] : [])))];
  if (fresh.length) {
    const answer = await ask("translate", { q: fresh, source: found, target: to.value, alternatives: OTHERS }, signal);
    fresh.forEach((input, n) => kept.set(key(input), { text: answer.translatedText[n], others: answer.alternatives[n] }));
  }
  for (const item of own) Object.assign(item, item.input && kept.get(key(item.input)));
}

async function predict(model, own, signal) {
  const tree = model.task === "parsing" ? { format: "drawing" } : {};
  let breaks = 0; // of lines, since the last sentence: an empty line ends a document
  for (const item of own) {
    breaks = item.input ? 0 : breaks + item.between.includes("\n");
    if (model.context && breaks === 2) item.input = "";
  }
  const inputs = own.flatMap(({ input }) => input ?? []);
  const { outputs } = await ask("v1/predict", { model: model.name, inputs, ...tree }, signal);
  for (const item of own) {
    if (item.input === undefined) continue;
    const output = outputs.shift();
    if (item.input) Object.assign(item, { text: output.text, others: [], output, drawing: model.task === "parsing" });
  }
}

/** Shows all items; those of one line stand in one paragraph. */
function show() {
  const lines = [element("p")];
  for (const item of items) {
    if (item.between?.includes("\n")) lines.push(element("p"));
    else if (item.between) lines.at(-1).append(item.between);
    else lines.at(-1).append(item.shown = shownItem(item));
  }
  target.replaceChildren(...lines);
  choose(null);
  showOthers(items.find((item) => item.others?.length));
}

function shownItem(item) {
  if (item.output?.labels) {
    const { words, labels, probabilities } = item.output;
    const label = (word, n) => element("span", { class: "label" }, text(word), element("small", {}, `${labels[n]} ${Math.round(100 * probabilities[labels[n]][n])} %`));
    return element("span", {}, ...words.map(label));
  }
  const shown = element("span", { class: item.drawing ? "drawing" : "item" }, item.text);
  shown.item = item;
  return shown;
}

function showOthers(item) {
  find("others").hidden = !item?.others?.length;
  find("list").replaceChildren(...(item?.others ?? []).map((other, n) => {
    const button = element("button", { type: "button" }, text(other));
    button.addEventListener("click", () => {
      [item.text, item.others[n]] = [other, item.text];
      item.links = null;
      show();
      showOthers(item);
    });
    return element("li", {}, button);
  }));
}

/** Where words stand in a text, one after the other; a word that is not there as it is has no place. */
function places(words, within) {
  let end = 0;
  return words.map((word) => {
    const start = within.indexOf(word, end);
    if (start < 0) return null;
    end = start + word.length;
    return [start, end];
  });
}

/** A text with its words in spans. */
function spans(value, found) {
  const made = [];
  let end = 0;
  found.forEach((place, n) => {
    if (!place) return;
    const word = element("span", { class: "word" }, value.slice(...place));
    word.number = n;
    made.push(value.slice(end, place[0]), word);
    [, end] = place;
  });
  return [...made, value.slice(end)];
}

/** Asks, once, where the words of an item looked, and sets them apart. */
async function link(item) {
  const model = chosenModel();
  if (item.links !== undefined && item.links !== null) return;
  item.links = false; // nothing is known, as yet or at all
  if (!model?.alignment || model.context || item.output?.labels || item.drawing) return;
  const { outputs: [output] } = await known(`${model.name} ${item.input}`, () => ask("v1/predict", { model: model.name, inputs: item.input, alignment: true }));
  if (output.text !== item.text) return; // another one was chosen, or this was more than one sentence to the server
  item.links = output.alignment;
  item.shown.replaceChildren(...spans(item.text, places(item.links.target_words, item.text)));
}

/** Shows a word, null for none, and how much it looked at each word that was read. */
function choose(word) {
  for (const other of target.querySelectorAll(".chosen")) other.classList.remove("chosen");
  find("pair").textContent = "";
  mirror.textContent = `${source.value}\n`;
  current = word;
  if (!word) return;
  const item = word.closest(".item").item, weights = item.links.weights[word.number], read = item.links.source_words;
  word.classList.add("chosen");
  mirror.replaceChildren(...items.flatMap((each) => (each === item ? spans(each.input, places(read, each.input)) : [each.between ?? each.input])), "\n");
  for (const other of mirror.querySelectorAll(".word")) {
    other.classList.add("looked");
    other.style.setProperty("--share", weights[other.number]);
  }
  const best = weights.map((weight, n) => [weight, n]).sort(([one], [other]) => other - one).slice(0, 3).filter(([weight]) => weight >= 0.05);
  const told = best.map(([weight, n]) => `${read[n]} ${Math.round(100 * weight)} %`).join(", ");
  find("pair").replaceChildren(text(word.textContent), ` looked at ${told || "nothing much"}`);
}

target.addEventListener("pointerover", async ({ target: over, clientX, clientY }) => {
  const { item } = over.closest(".item") ?? {};
  if (!item) { choose(null); return; }
  try {
    await link(item);
    showOthers(item);
    choose(document.elementFromPoint(clientX, clientY)?.closest("#target .word") ?? null);
  } catch (error) { tell(error); }
});
target.addEventListener("pointerleave", () => choose(null));
target.addEventListener("blur", () => choose(null));
target.addEventListener("keydown", async (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (event.key === "Escape") choose(null);
  if (!step) return;
  event.preventDefault();
  try {
    for (const item of items) if (item.input) await link(item);
  } catch (error) { tell(error); }
  const all = Array.from(target.querySelectorAll(".word"));
  if (!all.length) return;
  choose(all[current ? Math.min(Math.max(all.indexOf(current) + step, 0), all.length - 1) : step > 0 ? 0 : all.length - 1]);
  showOthers(current.closest(".item").item);
  find("spoken").textContent = find("pair").textContent;
});

function again() {
  clearTimeout(pause);
  pause = setTimeout(() => update().catch(tell), PAUSE);
}
source.addEventListener("input", () => {
  mirror.textContent = `${source.value}\n`;
  again();
});
for (const each of [from, to, task]) each.addEventListener("change", () => { choices(); again(); });
find("key").addEventListener("input", again);
find("clear").addEventListener("click", () => {
  source.value = "";
  source.focus();
  update().catch(tell);
});
find("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(Array.from(target.children, (line) => line.textContent).join("\n"));
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(target);
    say("Selected, since this browser lets no page copy: press Ctrl+C.");
  }
});

function say(message, wrong = false) {
  find("state").textContent = message;
  find("state").classList.toggle("wrong", wrong);
}
function tell(error) {
  if (error.name === "AbortError") return;
  target.classList.remove("waiting");
  say(error.message, true);
}
const named = (code) => languages.find((each) => each.code === code)?.name ?? code;
const choice = (value, name) => element("option", { value }, name);

/** Offers the targets that the source has, and hides what the task has no use for. */
function choices() {
  const translating = task.value === TRANSLATE, before = to.value;
  const code = from.value === AUTO ? from.dataset.language : from.value;
  const codes = new Set(languages.filter((each) => from.value === AUTO || each.code === code).flatMap((each) => each.targets));
  to.replaceChildren(...[...codes].map((each) => choice(each, named(each))));
  if (codes.has(before)) to.value = before;
  for (const each of [from, to, find("tools")]) each.hidden = !translating;
}

let job = new AbortController();
async function translateFile(file) {
  job.abort();
  job = new AbortController();
  const form = new FormData(), result = find("result");
  for (const [name, value] of Object.entries({ file, source: from.value, target: to.value })) form.append(name, value);
  for (const id of ["job", "stop", "progress"]) find(id).hidden = false;
  result.hidden = true;
  find("job-name").textContent = file.name;
  find("job-state").textContent = "Translating …";
  try {
    const { translatedFileUrl: url } = await ask("translate_file", form, job.signal);
    result.href = url.slice(url.lastIndexOf("download_file/"));
    result.download = "";
    result.hidden = false;
    result.focus();
    find("job-state").textContent = "Translated.";
  } catch (error) {
    if (error.name === "AbortError") return;
    find("job-state").textContent = error.message;
  }
  for (const id of ["stop", "progress"]) find(id).hidden = true;
}
find("stop").addEventListener("click", () => {
  job.abort();
  find("job").hidden = true;
});
find("file").addEventListener("change", ({ target: input }) => {
  if (input.files[0]) translateFile(input.files[0]);
  input.value = "";
});
addEventListener("dragover", (event) => {
  event.preventDefault();
  find("drop").hidden = !languages.length;
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) find("drop").hidden = true; });
addEventListener("drop", (event) => {
  event.preventDefault();
  find("drop").hidden = true;
  if (event.dataTransfer.files[0] && languages.length) translateFile(event.dataTransfer.files[0]);
});

async function start() {
  const settings = await ask("frontend/settings");
  languages = await ask("languages");
  source.maxLength = settings.charLimit;
  find("key-label").hidden = !settings.keyRequired;
  find("file").accept = settings.supportedFilesFormat.join();
  task.replaceChildren(...(languages.length ? [choice(TRANSLATE, "Translation")] : []), ...models.filter((each) => !each.source).map((each) => choice(each.name, `${each.name}: ${each.task.replaceAll("_", " ")}`)));
  task.parentElement.hidden = task.options.length < 2;
  from.replaceChildren(choice(AUTO, "Detect language"), ...languages.filter((each) => each.targets.length).map((each) => choice(each.code, each.name)));
  choices();
  themeButton(find("theme"), () => {});
  await update();
}
start().catch(tell);
