const { directions, about } = JSON.parse(find("setting").textContent);
let way = 0, chosenByHand = false; // the direction, and whether the switch chose it
const from = () => directions[way].source, to = () => directions[way].target;
const CLEARER = 0.1; // the share of characters by which another direction has to read a text better
const PAUSE = 120; // milliseconds after the last key
const KEPT = 3000; // translated lines
const HUES = [250, 145, 60, 320, 195, 95, 25, 285];
const LINE_ENDS = /[\v\f\r\x1c-\x1e\x85\u2028\u2029\u2581]/g; // and the mark for a space: all are spaces to the model
const LONGEST = 4000; // characters of a line: the engine's time grows with their square
const BLANK = /^ *$/;

/** The bytes of an element: gzip, seven bits a character; four characters that HTML would change are written as two. */
async function unpack(id) {
  const holder = find(id);
  if (!holder) return null;
  const text = holder.textContent, packed = new Uint8Array(Math.ceil((text.length * 7) / 8));
  holder.remove();
  let bits = 0, held = 0, length = 0;
  for (let at = 0; at < text.length; at++) {
    let code = text.charCodeAt(at);
    if (code === 126) code = [0, 13, 60, 126][text.charCodeAt(++at) - 48];
    held = (held << 7) | code;
    if ((bits += 7) >= 8) packed[length++] = held >> (bits -= 8);
    held &= (1 << bits) - 1;
  }
  const stream = new Blob([packed.subarray(0, length)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A worker that answers one question at a time. */
class Answerer {
  constructor(...scripts) {
    const source = scripts.map((id) => find(id).textContent);
    this.worker = new Worker(URL.createObjectURL(new Blob(source, { type: "text/javascript" })));
    this.waiting = new Map();
    this.worker.onmessage = ({ data: [number, result, error] }) => {
      const [resolve, reject] = this.waiting.get(number);
      this.waiting.delete(number);
      if (error === null) resolve(result);
      else reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      for (const [, reject] of this.waiting.values()) reject(new Error(event.message));
      this.waiting.clear();
    };
    this.asked = 0;
  }

  ask(name, value) {
    return new Promise((resolve, reject) => {
      this.waiting.set(this.asked, [resolve, reject]);
      this.worker.postMessage([this.asked++, name, value]);
    });
  }
}

const engines = directions.map(() => new Answerer("answers", "glue", "engine_worker"));
const linkers = directions.map(() => new Answerer("answers", "links_worker"));
const ready = (async () => {
  const wasm = await unpack("wasm");
  for (const [number, { attention, embedding, suffix }] of directions.entries()) {
    const parts = ["model", "lex", "vocab", "srcvocab", "trgvocab"].map((part) => unpack(part + suffix));
    const [model, shortlist, shared, ...sides] = await Promise.all(parts);
    const vocabularies = shared ? [shared, shared] : sides;
    await engines[number].ask("load", { wasm, model, vocabularies, shortlist, embedding });
    await linkers[number].ask("load", { model, vocabularies, shortlist, ...attention });
  }
})();

/** The words for lines that are too long to be translated, where there are any. */
const tooLong = (count) => (count ? `${count} ${count === 1 ? "line has" : "lines have"} more than ${LONGEST} characters and no translation.` : "");

/** Translations of each direction by line, the oldest first. */
const known = directions.map(() => new Map());
let queue = Promise.resolve();

/** The translation of a line, after those that were asked for before; null where `wanted` says by then that it is not. */
function translate(line, wanted = () => true) {
  const kept = known[way], engine = engines[way];
  const task = queue.then(async () => {
    await ready;
    const before = kept.get(line);
    if (before || !wanted()) return before ?? null;
    const begun = performance.now(), long = line.length > LONGEST;
    const text = long || BLANK.test(line) ? "" : await engine.ask("translate", { line });
    const translation = { text, long, milliseconds: performance.now() - begun, links: null };
    kept.set(line, translation);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return translation;
  });
  queue = task.catch(() => null);
  return task;
}

const segmenter = ({ code }) => {
  try {
    return new Intl.Segmenter(code, { granularity: "word" });
  } catch {
    return new Intl.Segmenter("en", { granularity: "word" });
  }
};
const segmenters = directions.map(({ source, target }) => [source, target].map(segmenter));

/** The words of a text: [start, end) of each. */
const words = (text, side) =>
  [...segmenters[way][side].segment(text)].filter((each) => each.isWordLike).map((each) => [each.index, each.index + each.segment.length]);

/** For each word of a translation the number of the word that it comes from, or -1. */
async function linksOf(line, translation) {
  const { source, target, weights, width } = await linkers[way].ask("links", { source: line, target: translation.text });
  const overlap = ([start, end], token) => Math.max(0, Math.min(end, token.end) - Math.max(start, token.start));
  const read = words(line, 0);
  return words(translation.text, 1).map((word) => {
    const sums = read.map((place) => {
      let sum = 0;
      target.forEach((token, row) => {
        const share = overlap(word, token);
        if (share) source.forEach((other, column) => { if (overlap(place, other)) sum += share * weights[row * width + column]; });
      });
      return sum;
    });
    return sums.length ? sums.indexOf(Math.max(...sums)) : -1;
  });
}

/** A text as words in spans, with what stands between them; `linkOf` gives the word of the source for each, or -1. */
function spans(text, side, line, linkOf) {
  const parts = [];
  let end = 0;
  words(text, side).forEach(([start, stop], number) => {
    const link = linkOf(number), word = element("span", { class: "word" }, text.slice(start, stop));
    if (link >= 0) {
      word.classList.add("linked");
      word.dataset.link = `${line}:${link}`;
      word.style.setProperty("--hue", HUES[link % HUES.length]);
    }
    parts.push(text.slice(end, start), word);
    end = stop;
  });
  return [...parts, text.slice(end)];
}

const source = find("source"), target = find("target"), mirror = find("mirror"), pair = find("pair");
const typed = () => source.value.split("\n").map((line) => line.replace(LINE_ENDS, " "));
let round = 0;

/** Translates what is typed, line by line, and shows each line once it is there. */
async function update(typing = false) {
  const own = ++round, lines = typed(), done = [], wanted = () => own === round;
  if (!typing) await follow(lines.join(" "), wanted);
  if (!wanted()) return;
  find("source-counts").textContent = counted(lines, 0);
  choose(null);
  const old = Array.from(target.children);
  target.replaceChildren(...lines.map((line, number) => {
    const shown = old[number] ?? element("p", { class: "old" });
    shown.classList.toggle("old", !known[way].has(line));
    return shown;
  }));
  paintSource(lines, []);
  for (const [number, line] of lines.entries()) {
    const translation = await translate(line, wanted);
    if (!translation || own !== round) return;
    done.push(translation);
    const shown = target.children[number];
    shown.replaceChildren(...spans(translation.text, 1, number, () => -1));
    shown.classList.remove("old");
  }
  const texts = done.map(({ text }) => text), time = done.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  find("target-counts").textContent = `${counted(texts, 1)}${time ? ` · ${(time / 1000).toFixed(2)} s` : ""}`;
  say(tooLong(done.filter(({ long }) => long).length) || "Ready.");
  clearTimeout(speaking);
  speaking = setTimeout(() => { find("spoken").textContent = texts.join("\n"); }, 1000);
  if (find("links").checked) await paint(own, lines, done);
}
let speaking;

function counted(lines, side) {
  const count = lines.reduce((sum, line) => sum + words(line, side).length, 0);
  return `${count.toLocaleString("en")} ${count === 1 ? "word" : "words"}`;
}

/** Colours the words of all lines once their links are known. */
async function paint(own, lines, translations) {
  const linked = [];
  for (const [number, line] of lines.entries()) {
    const translation = translations[number];
    if (translation.text) translation.links ??= await linksOf(line, translation);
    if (own !== round) return;
    linked.push(translation.links ?? []);
    target.children[number].replaceChildren(...spans(translation.text, 1, number, (word) => translation.links?.[word] ?? -1));
  }
  paintSource(lines, linked);
}

/** The typed text once more behind the text box, where words can have colours. */
function paintSource(lines, linked) {
  const parts = lines.flatMap((line, number) => [
    ...(number ? ["\n"] : []), ...spans(line, 0, number, (word) => (linked[number]?.includes(word) ? word : -1)),
  ]);
  mirror.replaceChildren(...parts, "\n"); // as high as the text box with a line end at its end
}

/** Shows a word, null for none, with all that is linked to it. */
function choose(word) {
  for (const other of document.querySelectorAll(".chosen")) other.classList.remove("chosen");
  pair.textContent = "";
  const link = word?.dataset.link;
  if (!word) return;
  word.classList.add("chosen");
  if (!link) { pair.textContent = word.textContent; return; }
  const same = (within) => Array.from(within.querySelectorAll(`[data-link="${link}"]`));
  for (const other of [...same(mirror), ...same(target)]) other.classList.add("chosen");
  const shown = (all) => all.map((each) => each.textContent).join(" … ");
  pair.replaceChildren(text(shown(same(mirror))), " → ", text(shown(same(target))));
}

/** Whether a word may still be typed: the last input was no paste, and a word ends where the cursor stands. */
function inWord({ inputType }) {
  const before = source.value.slice(0, source.selectionStart);
  return inputType !== "insertFromPaste" && [...segmenters[way][0].segment(before)].at(-1)?.isWordLike === true;
}

/** Takes the direction whose model reads the text clearly better, unless the switch was used. */
async function follow(text, wanted) {
  await ready;
  if (directions.length < 2 || chosenByHand || BLANK.test(text)) return;
  const shares = await Promise.all(linkers.map((linker) => linker.ask("foreign", { text })));
  const other = 1 - way;
  if (wanted() && shares[other] + CLEARER < shares[way]) take(other);
}

/** Takes a direction: names, languages and words are those of its texts. */
function take(number) {
  way = number;
  find("source-name").textContent = from().name;
  find("target-name").textContent = to().name;
  source.lang = from().code;
  target.lang = to().code;
  source.placeholder = `Type or paste ${directions.length > 1 ? "text" : from().name} here`;
}

let pause;
source.addEventListener("input", (event) => {
  const typing = inWord(event);
  clearTimeout(pause);
  paintSource(typed(), []);
  pause = setTimeout(() => update(typing).catch(tell), PAUSE);
});
find("switch").hidden = directions.length < 2;
find("switch").addEventListener("click", () => {
  chosenByHand = true;
  take(1 - way);
  update().catch(tell);
});
find("links").addEventListener("change", () => update().catch(tell));
target.addEventListener("pointerover", (event) => choose(event.target.closest(".word")));
target.addEventListener("pointerleave", () => choose(null));
target.addEventListener("pointerdown", (event) => choose(event.target.closest(".word")));
target.addEventListener("blur", () => choose(null));
target.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = Array.from(target.querySelectorAll(".word"));
  if (event.key === "Escape") choose(null);
  if (!step || !all.length) return;
  event.preventDefault();
  const at = all.findIndex((word) => word === current);
  current = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1)];
  choose(current);
});
let current = null;
find("clear").addEventListener("click", () => {
  source.value = "";
  chosenByHand = false;
  source.focus();
  update().catch(tell);
});
find("copy").addEventListener("click", async () => {
  const copied = Array.from(target.children, (line) => line.textContent).join("\n");
  try {
    await navigator.clipboard.writeText(copied);
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
const tell = (error) => say(`This does not work here: ${error.message}`, true);

/** Translates a file, one line in, one line out, and offers the result. */
let job = 0;
async function translateFile(file) {
  const own = ++job, state = find("job-state"), result = find("result"), name = file.name.replace(/(\.[^.]*)?$/, `.${to().code}$1`);
  find("job").hidden = false;
  find("stop").hidden = false;
  result.hidden = true;
  find("job-name").textContent = file.name;
  let content;
  try {
    content = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    state.textContent = "This is no text in UTF-8.";
    find("stop").hidden = true;
    return;
  }
  const lines = content.split("\n"), ended = lines.at(-1) === "", written = [];
  let long = 0;
  if (ended) lines.pop();
  find("progress").max = Math.max(lines.length, 1);
  const begun = performance.now();
  for (const line of lines) {
    const translation = await translate(line.replace(/\r$/, "").replace(LINE_ENDS, " "), () => own === job);
    if (own !== job || !translation) return;
    written.push(translation.text);
    long += translation.long;
    find("progress").value = written.length;
    state.textContent = `${written.length.toLocaleString("en")} of ${lines.length.toLocaleString("en")} lines`;
  }
  state.textContent = `${lines.length.toLocaleString("en")} lines in ${((performance.now() - begun) / 1000).toFixed(1)} s. ${tooLong(long)}`;
  find("stop").hidden = true;
  URL.revokeObjectURL(result.href);
  result.href = URL.createObjectURL(new Blob([written.map((line) => `${line}\n`).join("").slice(0, ended ? undefined : -1)], { type: "text/plain" }));
  result.download = name;
  result.hidden = false;
  result.focus();
}

find("stop").addEventListener("click", () => {
  job++;
  find("job").hidden = true;
});
find("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) translateFile(file).catch(tell);
  event.target.value = "";
});
const drop = find("drop");
addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.hidden = false;
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.hidden = true; });
addEventListener("drop", (event) => {
  event.preventDefault();
  drop.hidden = true;
  const [file] = event.dataTransfer.files;
  if (file) translateFile(file).catch(tell);
});

take(0);
fillTerms(find("about"), about);
find("licence").textContent = find("licence-text").textContent;
themeButton(find("theme"), () => {});
ready.then(() => {
  return update();
}).catch(tell);
