/**
 * The attention of a translation to its source, computed from the engine's file: the engine does not tell it.
 *
 * Weights are the file's integers over their factors; activations are not rounded. Shapes: S source and T target tokens
 * with their end marks, D model.
 */

const FLOATS = 0x404, INTEGERS = 0x4101, EPSILON = 1e-6, SPACE = "\u2581", UNKNOWN = 1, PENALTY = 10;
let items, keys, sides, chosen, linked;

/** The items of a binary file of Marian's: floats, or integers (out, in) with their factor. */
function readItems(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), text = new TextDecoder(), read = new Map();
  const number = (at) => Number(view.getBigUint64(at, true));
  const count = number(8), heads = [];
  let at = 16;
  for (let item = 0; item < count; item++, at += 32) heads.push([0, 8, 16, 24].map((field) => number(at + field)));
  const names = heads.map(([length]) => text.decode(bytes.subarray(at, (at += length) - 1)));
  const shapes = heads.map(([, , rank]) => Array.from({ length: rank }, () => view.getInt32((at += 4) - 4, true)));
  at += 8 + number(at);
  heads.forEach(([, kind, , size], item) => {
    const data = bytes.slice(at, (at += size)), length = shapes[item].reduce((one, other) => one * other, 1);
    if (kind === INTEGERS) {
      const factor = new DataView(data.buffer).getFloat32(length, true);
      read.set(names[item], { shape: shapes[item], values: new Int8Array(data.buffer, 0, length), factor });
    } else read.set(names[item], kind === FLOATS ? new Float32Array(data.buffer, 0, length) : text.decode(data));
  });
  return read;
}

/** The pieces of a SentencePiece model, a protocol buffer: each with its id and score, but for special ones; and those of bytes, by byte. */
function readPieces(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), text = new TextDecoder(), pieces = new Map(), bytesOf = new Map();
  let at = 0, id = 0;
  const varint = () => {
    for (let value = 0, factor = 1; ; factor *= 128) {
      value += (bytes[at] & 127) * factor;
      if (bytes[at++] < 128) return value;
    }
  };
  const skip = (wire) => { at += wire === 0 ? (varint(), 0) : wire === 1 ? 8 : wire === 5 ? 4 : varint(); };
  while (at < bytes.length) {
    const key = varint();
    if (key !== 10) { skip(key & 7); continue; }
    const end = varint() + at, piece = { id: id++, score: 0, type: 1, text: "" };
    while (at < end) {
      const field = varint();
      if (field === 10) { const length = varint(); piece.text = text.decode(bytes.subarray(at, (at += length))); }
      else if (field === 21) { piece.score = view.getFloat32(at, true); at += 4; }
      else if (field === 24) piece.type = varint();
      else skip(field & 7);
    }
    if (piece.type === 1 || piece.type === 4) pieces.set(piece.text, piece);
    if (piece.type === 6) bytesOf.set(parseInt(piece.text.slice(3), 16), piece.id);
  }
  const longest = Math.max(...Array.from(pieces.keys(), (text) => text.length));
  return { pieces, bytesOf, longest, least: Math.min(...Array.from(pieces.values(), ({ score }) => score)) };
}

/** The tokens of a text, the likeliest of a side's unigram model: [{id, start, end, known}], with places in the text. */
function tokens(text, { pieces, bytesOf, longest, least }) {
  let read = "";
  const places = []; // of each unit of what is read, where it stands in the text
  for (let at = 0; at < text.length; at++) {
    const blank = text[at] === SPACE || /\p{White_Space}/u.test(text[at]);
    if (/(?![\u200c\u200d])\p{Default_Ignorable_Code_Point}/u.test(text[at])) continue; // as the engine's rules have it
    if (blank ? read.endsWith(SPACE) || !read : false) continue;
    if (!read) { read = SPACE; places.push(at); } // which no character of the text is
    read += blank ? SPACE : text[at];
    places.push(at);
  }
  while (read.endsWith(SPACE)) { read = read.slice(0, -1); places.pop(); }
  const best = [{ score: 0 }];
  for (let start = 0; start < read.length; start++) {
    if (!best[start]) continue;
    const character = String.fromCodePoint(read.codePointAt(start));
    let alone = false;
    const offer = (end, id, score) => {
      const total = best[start].score + score;
      if (!best[end] || total > best[end].score) best[end] = { score: total, from: start, id };
    };
    for (let end = start + 1; end <= Math.min(read.length, start + longest); end++) {
      const piece = pieces.get(read.slice(start, end));
      if (piece) offer(end, piece.id, piece.type === 4 ? 0 : piece.score);
      alone ||= piece && end === start + character.length;
    }
    if (!alone) offer(start + character.length, UNKNOWN, least - PENALTY);
  }
  const found = [];
  for (let end = read.length; end > 0; end = best[end].from) {
    const { id, from } = best[end], known = id !== UNKNOWN;
    const place = { start: places[from], end: end === 1 ? places[0] : places[end - 1] + 1, known };
    if (!known && bytesOf.size) found.unshift(...Array.from(utf8.encode(read.slice(from, end)), (byte) => ({ id: bytesOf.get(byte), ...place })));
    else if (!known && found[0]?.id === UNKNOWN) found[0].start = places[from];
    else found.unshift({ id, ...place });
  }
  return found;
}

const floats = (name) => items.get(name), utf8 = new TextEncoder();

/** Rows (n, in) times a matrix, plus a bias where there is one: (n, out). */
function product(x, weight, bias) {
  const { shape: [width, height], values, factor } = items.get(weight), rows = x.length / width, added = items.get(bias);
  const y = new Float32Array(rows * height);
  for (let out = 0; out < height; out++) {
    const base = out * width, plus = added ? added[out] : 0;
    for (let row = 0, from = 0; row < rows; row++, from += width) {
      let sum = 0;
      for (let index = 0; index < width; index++) sum += x[from + index] * values[base + index];
      y[row * height + out] = sum / factor + plus;
    }
  }
  return y;
}

/** LayerNorm of x + change, rows of D. */
function normed(x, change, name) {
  const scale = floats(`${name}_ln_scale`), bias = floats(`${name}_ln_bias`), dim = scale.length, y = x.map((value, at) => value + change[at]);
  for (let from = 0; from < y.length; from += dim) {
    const row = y.subarray(from, from + dim);
    const mean = row.reduce((sum, value) => sum + value, 0) / dim;
    const spread = Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / dim + EPSILON);
    for (let at = 0; at < dim; at++) row[at] = (scale[at] * (row[at] - mean)) / spread + bias[at];
  }
  return y;
}

/** The weights of each head, (queries, memory), of attention to a memory; with the rows that it gives. */
function attention(x, memory, name) {
  const [query, key, value] = [[x, "q"], [memory, "k"], [memory, "v"]].map(([rows, part]) => product(rows, `${name}_W${part}`, `${name}_b${part}`));
  const dim = floats(`${name}_Wo_ln_scale`).length, heads = keys.heads, size = dim / heads;
  const queries = x.length / dim, positions = memory.length / dim, mixed = new Float32Array(x.length);
  const weights = Array.from({ length: heads }, (_, head) => {
    const all = new Float32Array(queries * positions);
    for (let row = 0; row < queries; row++) {
      const own = all.subarray(row * positions, (row + 1) * positions), at = row * dim + head * size;
      for (let other = 0; other < positions; other++) {
        for (let index = 0; index < size; index++) own[other] += query[at + index] * key[other * dim + head * size + index];
        own[other] /= Math.sqrt(size);
      }
      const most = Math.max(...own), total = own.reduce((sum, score) => sum + Math.exp(score - most), 0);
      own.forEach((score, other) => { own[other] = Math.exp(score - most) / total; });
      for (let other = 0; other < positions; other++) {
        for (let index = 0; index < size; index++) mixed[at + index] += own[other] * value[other * dim + head * size + index];
      }
    }
    return all;
  });
  return { weights, rows: product(mixed, `${name}_Wo`, `${name}_bo`) };
}

function feedForward(x, name) {
  const inner = product(x, `${name}_W1`, `${name}_b1`).map((value) => Math.max(value, 0));
  return normed(x, product(inner, `${name}_W2`, `${name}_b2`), `${name}_ffn`);
}

/** The simpler simple recurrent unit: c = f c + (1 - f) W x, f = sigmoid(W_f x + b_f); its output is relu(c). */
function recurrent(x, name) {
  const forget = product(x, `${name}_Wf`, `${name}_bf`), y = product(x, `${name}_W`), dim = floats(`${name}_bf`).length;
  for (let at = 0; at < y.length; at++) {
    const share = 1 / (1 + Math.exp(-forget[at]));
    y[at] = (at < dim ? 0 : share * y[at - dim]) + (1 - share) * y[at];
  }
  return y.map((value) => Math.max(value, 0));
}

/** The vectors of a side's tokens with those of their positions; null stands for a vector of zeros. */
function embedded(ids, side) {
  const { shape: [, dim], values, factor } = items.get("Wemb") ?? items.get(`${side}_Wemb`), half = dim / 2, x = new Float32Array(ids.length * dim);
  ids.forEach((id, position) => {
    for (let at = 0; at < dim; at++) {
      const angle = position * 1e-4 ** ((at % half) / Math.max(half - 1, 1)) + (at < half ? 0 : Math.PI / 2);
      x[position * dim + at] = (id === null ? 0 : (Math.sqrt(dim) * values[id * dim + at]) / factor) + Math.sin(angle);
    }
  });
  return x;
}

/** The attention (T, S) of a target to its source, of the chosen heads. */
function attended(source, target) {
  let memory = embedded(source, "encoder"), x = embedded([null, ...target.slice(0, -1)], "decoder");
  for (let layer = 1; layer <= keys.encoder; layer++) {
    const name = `encoder_l${layer}`;
    memory = feedForward(normed(memory, attention(memory, memory, `${name}_self`).rows, `${name}_self_Wo`), `${name}_ffn`);
  }
  for (let layer = 1; ; layer++) {
    const name = `decoder_l${layer}`;
    x = normed(x, recurrent(x, `${name}_rnn`), `${name}_rnn_ffn`);
    const { weights, rows } = attention(x, memory, `${name}_context`);
    if (layer === chosen.layer) {
      const heads = weights.filter((_, head) => chosen.heads.length === 0 || chosen.heads.includes(head + 1));
      return heads[0].map((_, at) => heads.reduce((sum, head) => sum + head[at], 0) / heads.length);
    }
    x = feedForward(normed(x, rows, `${name}_context_Wo`), `${name}_ffn`);
  }
}

/** For each token, whether the shortlist (u64 sizes and offsets, u32 ids) has it as a source: others have the end mark alone. */
function linkedTokens(shortlist) {
  const view = new DataView(shortlist.buffer, shortlist.byteOffset), number = (at) => Number(view.getBigUint64(at, true));
  const count = number(32), from = 48 + 8 * count;
  return Array.from({ length: count - 1 }, (_, id) => {
    const start = number(48 + 8 * id), length = number(56 + 8 * id) - start;
    return length > 1 || (length === 1 && view.getUint32(from + 4 * start, true) !== 0);
  });
}

function load({ model, vocabularies, shortlist, layer, heads }) {
  items = readItems(model);
  const size = (key) => Number(items.get("special:model.yml").match(new RegExp(`^${key}: (\\d+)`, "m"))[1]);
  keys = { heads: size("transformer-heads"), encoder: size("enc-depth") };
  sides = vocabularies.map(readPieces);
  chosen = { layer, heads };
  linked = shortlist && linkedTokens(shortlist);
}

/** The share of a text's characters that stand in tokens that no source of training had. */
function foreign({ text }) {
  const strange = tokens(text, sides[0]).filter(({ id, known }) => !known || (linked && !linked[id]));
  const places = strange.filter(({ start }, at) => start !== strange[at - 1]?.start); // bytes of a character are in one place
  return places.reduce((sum, { start, end }) => sum + end - start, 0) / Math.max(1, text.length);
}

/** The tokens of both sides, and the weight of every source token for each target token. */
function links({ source, target }) {
  const [read, written] = [source, target].map((text, side) => tokens(text, sides[side]));
  const [from, to] = [read, written].map((side) => [...side.map(({ id }) => id), 0]);
  return { source: read, target: written, weights: attended(from, to), width: from.length };
}

answerWith({ load, links, foreign });
