/* Recurrent encoders and decoders, as `headway.models.recurrent` has them, with parts of them switched off. */
const recurrent = (() => {
  const { linear, joined, sigmoid, viewOf, readSource } = layers;

  /* The states of a layer after one more input x and before it, the hidden vector first; `at` is the layer's number. */
  const inputOf = (cells, at, x) => linear({ weight: cells[`weight_ih_l${at}`], bias: cells[`bias_ih_l${at}`] }, x);
  const stateOf = (cells, at, h) => linear({ weight: cells[`weight_hh_l${at}`], bias: cells[`bias_hh_l${at}`] }, h);
  const CELLS = {
    LSTM(cells, at, x, [h, memory]) {
      const given = inputOf(cells, at, x), kept = stateOf(cells, at, h), size = h.length;
      const gate = (part, index) => given[part * size + index] + kept[part * size + index]; // in, forget, new, out
      const after = memory.map((old, index) => sigmoid(gate(1, index)) * old + sigmoid(gate(0, index)) * Math.tanh(gate(2, index)));
      return [after.map((value, index) => sigmoid(gate(3, index)) * Math.tanh(value)), after];
    },
    GRU(cells, at, x, [h]) {
      const given = inputOf(cells, at, x), kept = stateOf(cells, at, h), size = h.length;
      const gate = (part, index) => sigmoid(given[part * size + index] + kept[part * size + index]); // reset, update
      return [h.map((old, index) => {
        const fresh = Math.tanh(given[2 * size + index] + gate(0, index) * kept[2 * size + index]);
        return fresh + gate(1, index) * (old - fresh);
      })];
    },
    ChoGru(cells, at, x, [h]) {
      const given = linear(cells.inputs[at], x), kept = linear(cells.gates[at], h), size = h.length;
      const content = linear(cells.contents[at], h.map((old, index) => sigmoid(given[index] + kept[index]) * old));
      return [h.map((old, index) => {
        const fresh = Math.tanh(given[2 * size + index] + content[index]);
        return fresh + sigmoid(given[size + index] + kept[size + index]) * (old - fresh);
      })];
    },
  };

  const ordered = (rows, reverse) => (reverse ? [...rows.slice(0, -1).reverse(), rows.at(-1)] : rows);
  const silent = (vector) => vector.map(() => 0);

  /** All positions through one layer in one direction: its outputs, and its states after the last. */
  function read(cells, xs) {
    let states = Array.from({ length: cells.type === "LSTM" ? 2 : 1 }, () => new Float64Array(cells.hidden_size));
    const rows = xs.map((x) => (states = CELLS[cells.type](cells, 0, x, states))[0]);
    return { rows, states };
  }

  function encode({ layers: stack, reverse }, xs, off) {
    let rows = ordered(xs, reverse);
    const last = stack.map(([forward, backward], number) => {
      const ways = [read(forward, rows)];
      if (backward) {
        const { rows: turned, states } = read(backward, [...rows].reverse());
        ways.push({ rows: turned.reverse(), states });
      }
      rows = rows.map((_, place) => joined(...ways.map((way) => way.rows[place])));
      if (off.has(`encoder.${number + 1}.state`)) rows = rows.map(silent);
      return ways[0].states.map((_, kind) => joined(...ways.map((way) => way.states[kind])));
    });
    return { memory: ordered(rows, reverse), last };
  }

  function start({ start: { project, maps, size, layers: count }, attention, feeding, readout, constant }, { memory, last }) {
    const first = project && last.at(-1).map((state, kind) => {
      const made = linear(maps[kind], state.subarray(-size));
      return kind === 0 ? made.map(Math.tanh) : made;
    });
    const own = (states, number) => states.map((state) => state.subarray((number * state.length) / count, ((number + 1) * state.length) / count));
    return {
      cells: first ? Array.from({ length: count }, (_, number) => own(first, number)) : last,
      fed: feeding ? new Float64Array(readout.size) : null,
      chosen: 0, count: 0, constant: constant ? last.at(-1)[0] : null, view: attention && viewOf(attention, memory),
    };
  }

  function readOut({ kind, weight }, state, context, word) {
    if (kind === "state") return state;
    const given = linear(weight, joined(...(context ? [context] : []), state, ...(kind === "maxout" ? [word] : [])));
    return kind === "tanh" ? given.map(Math.tanh) : new Float64Array(given.length / 2).map((_, index) => Math.max(given[2 * index], given[2 * index + 1]));
  }

  /** What the next word is predicted from, and the state after one more word. */
  function step({ attention, before, feeding, readout, cells }, word, state, off) {
    const previous = state.cells.at(-1)[0];
    let chosen = state.chosen;
    const context = (query) => {
      if (!attention) return state.constant;
      const found = readSource(attention, query, state.view, state.count, "decoder.1.cross", off, state.chosen);
      chosen = found.chosen;
      return off.has("decoder.1.cross") ? silent(found.values) : found.values;
    };
    const early = before ? context(previous) : null, fed = early ?? state.fed;
    let x = fed ? joined(word, fed) : word;
    const after = state.cells.map((states, at) => {
      const made = CELLS[cells.type](cells, at, x, states);
      [x] = made;
      return made;
    });
    const hidden = readout.previous ? previous : x, top = off.has(`decoder.${after.length}.state`) ? silent(hidden) : hidden;
    const values = readOut(readout, top, early ?? context(top), word);
    return { values, state: { ...state, cells: after, chosen, count: state.count + 1, fed: feeding ? values : null } };
  }

  return { encode, start, step };
})();
