/* The engine in a worker of its own. The glue of its package stands before this script. */

const END = 0; // the id of the end mark
const CONTEXT = 64; // bytes before a row, by which a copy of the file is told from the engine's own table
let wasm, translator, row, place;

/**
 * The place of the end mark's vector in the engine's memory.
 *
 * This engine begins an output with that vector, where the models have zeros. No output reads the vector again, so it
 * is zeros while the first token is found. The file itself may still lie in memory, with the bytes before the vector.
 */
function findRow(model, offset, dim) {
  const memory = new Uint8Array(wasm.memory.buffer), found = [];
  const same = (at, from, count) => {
    for (let index = 0; index < count; index++) if (memory[at + index] !== model[from + index]) return false;
    return true;
  };
  for (let at = memory.indexOf(model[offset], CONTEXT); at >= 0; at = memory.indexOf(model[offset], at + 1)) {
    if (same(at, offset, dim) && !same(at - CONTEXT, offset - CONTEXT, CONTEXT)) found.push(at);
  }
  if (found.length !== 1) throw new Error(`the engine has ${found.length} vectors of the end mark`);
  return found[0];
}

async function load({ wasm: bytes, model, vocabularies, shortlist, embedding }) {
  wasm = (await WebAssembly.instantiate(bytes, __wbg_get_imports())).instance.exports;
  wasm.__wbindgen_start();
  const offset = embedding.offset + END * embedding.dim;
  translator = new Translator(model, ...vocabularies, shortlist);
  row = model.slice(offset, offset + embedding.dim);
  place = findRow(model, offset, embedding.dim);
}

function translate({ line }) {
  const restore = () => new Uint8Array(wasm.memory.buffer).set(row, place);
  try {
    const written = translator.translateBlockPhased(line, (phase) => {
      if (phase === "decode_start") new Uint8Array(wasm.memory.buffer).fill(0, place, place + row.length);
      if (phase === "first_token") restore();
    });
    return written.slice(0, written.lastIndexOf("\n")); // the last line has counts
  } finally {
    restore();
  }
}

answerWith({ load, translate });
