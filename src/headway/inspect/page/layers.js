/* The layers of the models that a page carries, as `headway.mixers` and `headway.models` have them, with parts of them
   switched off. Rows are lists of vectors, one a position. What a layer keeps of the rows before them is its `past`. */
const layers = (() => {
  const EPSILON = 1e-6; // of norms that have no options
  const sigmoid = (value) => 1 / (1 + Math.exp(-value));
  const softplus = (value) => (value > 20 ? value : Math.log1p(Math.exp(value)));
  const relu = (value) => Math.max(0, value);
  const swish = (value) => value * sigmoid(value);

  /** The error function to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26). */
  function erf(value) {
    const t = 1 / (1 + 0.3275911 * Math.abs(value));
    const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return Math.sign(value) * (1 - sum * Math.exp(-value * value));
  }

  const ACTIVATIONS = {
    ReluFeedForward: relu,
    GeluFeedForward: (value) => (value * (1 + erf(value / Math.SQRT2))) / 2,
    SwishFeedForward: swish,
    SwigluFeedForward: swish,
    GegluFeedForward: (value) => (value * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3)))) / 2,
  };

  function dot(x, y) {
    let sum = 0;
    for (let index = 0; index < x.length; index += 1) sum += x[index] * y[index];
    return sum;
  }

  function linear({ weight, bias }, x) {
    const size = x.length, result = new Float64Array(weight.length / size);
    for (let row = 0, at = 0; row < result.length; row += 1) {
      let sum = bias ? bias[row] : 0;
      for (let column = 0; column < size; column += 1, at += 1) sum += weight[at] * x[column];
      result[row] = sum;
    }
    return result;
  }

  function joined(...vectors) {
    const result = new Float64Array(vectors.reduce((sum, vector) => sum + vector.length, 0));
    vectors.reduce((begin, vector) => { result.set(vector, begin); return begin + vector.length; }, 0);
    return result;
  }

  function softmax(scores) {
    const most = Math.max(...scores), shares = scores.map((score) => Math.exp(score - most));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares.map((share) => share / total);
  }

  function normed(norm, x) {
    if (!norm) return x;
    const mean = norm.type === "LayerNorm" ? x.reduce((sum, value) => sum + value, 0) / x.length : 0;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const factor = 1 / Math.sqrt(variance + norm.eps);
    return x.map((value, index) => (value - mean) * factor * norm.weight[index] + (norm.bias ? norm.bias[index] : 0));
  }

  /** Rows that each receive weighted vectors of their neighbours, and all rows so far. */
  function canonised(canon, rows, past = []) {
    if (!canon) return [rows];
    const all = [...past, ...rows], width = canon.weight.length / rows[0].length;
    return [rows.map((row, index) => row.map((value, channel) => {
      let sum = value;
      for (let tap = 0; tap < width; tap += 1) sum += canon.weight[channel * width + tap] * (all[past.length + index + tap - canon.before]?.[channel] ?? 0);
      return sum;
    })), all];
  }

  const cut = (row, begin, size, count) => Array.from({ length: count }, (_, number) => row.subarray(begin + number * size, begin + (number + 1) * size));

  function rotated(frequencies, x, place) {
    if (!frequencies) return x;
    const result = x.slice(), half = frequencies.length;
    frequencies.forEach((frequency, index) => {
      const cosine = Math.cos(place * frequency), sine = Math.sin(place * frequency);
      result[index] = x[index] * cosine - x[index + half] * sine;
      result[index + half] = x[index + half] * cosine + x[index] * sine;
    });
    return result;
  }

  /** The queries, keys and values of a position, one a head. */
  function inHeads(mixer, row, place) {
    const { heads, key_value_heads: groups = heads, key_dim: keyDim, value_dim: valueDim, position, bilinear, key_bias: keyBias } = mixer, keys = heads * keyDim, frequencies = position?.frequencies;
    const query = cut(row, 0, keyDim, heads).map((x) => rotated(frequencies, normed(mixer.query_norm, x), place));
    const key = cut(row, keys, keyDim, groups).map((x) => rotated(frequencies, normed(mixer.key_norm, x), place));
    const biaffine = bilinear ? cut(bilinear, 0, keyDim ** 2, bilinear.length / keyDim ** 2) : [];
    biaffine.forEach((matrix, head) => {
      const own = query[head];
      query[head] = own.map((_, column) => {
        let sum = keyBias ? keyBias[head * keyDim + column] : 0;
        for (let index = 0; index < keyDim; index += 1) sum += own[index] * matrix[index * keyDim + column];
        return sum;
      });
    });
    return { query, key, value: cut(row, keys + groups * keyDim, valueDim, groups) };
  }

  /** The vectors that heads read, side by side; one that is off is zero. `added` is what positions add to a score. */
  function attend(query, keys, values, valueDim, name, off, added = () => 0) {
    const read = new Float64Array(query.length * valueDim);
    query.forEach((own, head) => {
      if (off.has(`${name}:head=${head + 1}`)) return;
      const group = Math.floor((head * keys[0].length) / query.length), begin = head * valueDim;
      const shares = softmax(keys.map((key, place) => dot(own, key[group]) / Math.sqrt(own.length) + added(head, place)));
      shares.forEach((share, place) => {
        const value = values[place][group];
        for (let index = 0; index < valueDim; index += 1) read[begin + index] += share * value[index];
      });
    });
    return read;
  }

  const silenced = (hidden, heads, name, off) => hidden.map((value, index) => (off.has(`${name}:head=${Math.floor((index * heads) / hidden.length) + 1}`) ? 0 : value));

  /** What one head writes into its matrix and reads of it, position by position. */
  function remembered({ type, key_dim: keyDim }, rows, memory, backwards) {
    const { sums } = memory, width = sums.length / keyDim;
    const found = (vector) => {
      const read = new Float64Array(width);
      for (let row = 0, at = 0; row < keyDim; row += 1) for (let column = 0; column < width; column += 1, at += 1) read[column] += vector[row] * sums[at];
      return read;
    };
    return rows.map(({ query, key, value, decay, scale }) => {
      const kept = decay.map(Math.exp);
      for (let at = 0; at < sums.length; at += 1) sums[at] *= kept.length > 1 ? kept[Math.floor(at / width)] : kept[0];
      const before = backwards ? found(query) : null, known = type === "DeltaRule" ? found(key) : null;
      for (let row = 0, at = 0; row < keyDim; row += 1) for (let column = 0; column < width; column += 1, at += 1) sums[at] += scale * key[row] * (value[column] - (known ? known[column] : 0));
      return before ?? found(query);
    });
  }

  /** The logarithm of what stays of a head's memory at a position, and what is written there is multiplied by. */
  function gates({ type, gate, gates: plain, decay, rate, beta, negative_eigenvalues: wide, heads, key_dim: keyDim }, x, direction) {
    const given = [plain ?? decay ?? []].flat().reduce((vector, map) => linear(map, vector), x), width = gate === "vector" ? keyDim : 1;
    const scales = beta && linear(beta, x);
    return Array.from({ length: heads }, (_, head) => {
      const at = direction * heads + head, own = rate ? Math.exp(rate[at]) : 0;
      const scale = scales ? (wide ? 2 : 1) * sigmoid(scales[at]) : 1;
      if (gate === "none") return { decay: [0], scale };
      if (gate === "fixed") return { decay: [Math.log1p(-(2 ** (-5 - head)))], scale };
      const part = given.subarray(at * width, (at + 1) * width);
      if (type === "DeltaRule") return { decay: part.map((value) => -softplus(value) * own), scale };
      return gate === "scalar" ? { decay: [-softplus(part[0]) * own], scale: softplus(part[0]) } : { decay: part.map((value) => -softplus(-value) / 16), scale };
    });
  }

  /* What positions read of themselves and others, before the last map, and the mixer's past with them in it. */
  const MIXERS = {
    Attention(mixer, xs, past, { name, off, first, view }) {
      const begin = past?.held.length ?? 0, source = view?.keys.length ?? 0, { causal, n: window, heads, value_share: share, position: { bias } } = mixer;
      const [projected, canon] = canonised(mixer.canon, xs.map((x) => linear(mixer.in_projection, x)), past?.canon);
      const fresh = projected.map((row, index) => inHeads(mixer, row, begin + index));
      if (mixer.shares_values) first.values ??= fresh.map(({ value }) => value);
      let reached = past?.held.at(-1)?.gates ?? new Float64Array(heads);
      fresh.forEach((each, index) => {
        if (mixer.forget) each.gates = reached = linear(mixer.forget, xs[index]).map((value, head) => reached[head] - softplus(-value));
        if (share) each.value = each.value.map((own, head) => own.map((value, at) => share[0] * value + (1 - share[0]) * first.values[index][head][at]));
      });
      const held = [...(past?.held ?? []), ...fresh], middle = bias ? (bias.length / heads - 1) / 2 : 0;
      const keys = [...(view?.keys ?? []), ...held.map(({ key }) => key)], values = [...(view?.values ?? []), ...held.map(({ value }) => value)];
      const rows = fresh.map((own, index) => attend(own.query, keys, values, mixer.value_dim, name, off, (head, at) => {
        const other = at - source, distance = other - begin - index;
        if (other < 0) return 0;
        if ((causal && distance > 0) || (window && Math.abs(distance) >= window)) return -Infinity;
        return (bias ? bias[head * (2 * middle + 1) + middle + distance] : 0) - (own.gates ? Math.abs(own.gates[head] - held[other].gates[head]) : 0);
      }));
      return { rows, past: { held, canon } };
    },

    Ngram(mixer, xs, past = [], { name, off }) {
      const { heads, head_dim: headDim, n, spans, weight, bias, global_weight: global, causal } = mixer, window = spans.length - (global ? 1 : 0);
      const held = [...past, ...xs.map((x) => linear(mixer.in_projection, x))];
      const rows = xs.map((_, index) => {
        const place = past.length + index, seen = causal ? held.slice(0, place + 1) : held;
        const hidden = new Float64Array(heads * headDim).map((_, row) => (bias ? bias[row] : 0));
        const add = (given, of, step, first) => {
          for (let row = 0; row < hidden.length; row += 1) {
            const begin = row - (row % headDim);
            let sum = 0;
            for (let column = 0; column < headDim; column += 1) sum += of[(row * headDim + column) * step + first] * given[begin + column];
            hidden[row] += sum;
          }
        };
        spans.forEach((span, number) => {
          if (off.has(`${name}:offset=${span}`)) return;
          if (number === window) add(seen[0].map((_, column) => Math.max(...seen.map((each) => each[column]))), global, 1, 0);
          else if (seen[place + number + 1 - n]) add(seen[place + number + 1 - n], weight, window, number);
        });
        return silenced(hidden.map(relu), heads, name, off);
      });
      return { rows, past: held };
    },

    LightConv(mixer, xs, past = [], { name, off }) {
      const { heads, spans, before } = mixer, weights = cut(mixer.weight, 0, spans.length, heads).map((own) => softmax([...own]));
      const held = [...past, ...xs.map((x) => {
        const given = linear(mixer.in_projection, x), half = given.length / 2;
        return given.subarray(0, half).map((value, index) => value * sigmoid(given[half + index]));
      })];
      const rows = xs.map((_, index) => {
        const sums = new Float64Array(held[0].length);
        spans.forEach((span, number) => {
          const other = held[past.length + index + number - before];
          if (other && !off.has(`${name}:offset=${span}`)) other.forEach((value, at) => { sums[at] += weights[Math.floor((at * heads) / other.length)][number] * value; });
        });
        return silenced(sums, heads, name, off);
      });
      return { rows, past: held };
    },

    Nplm(mixer, xs, past = [], { name, off }) {
      const { n, blocks, block_size: blockSize, spans, near, far, kernels, bias } = mixer, held = [...past, ...xs], dim = xs[0].length;
      const window = mixer.causal ? n : 2 * n - 1, sides = mixer.causal ? 1 : 2, hidden = near.length / dim / window, size = kernels ? kernels.length / blockSize / sides : 0;
      const rows = xs.map((_, index) => {
        const place = past.length + index, sums = new Float64Array(hidden).map((_, row) => (bias ? bias[row] : 0));
        spans.forEach((span, number) => {
          if (off.has(`${name}:offset=${span}`)) return;
          const block = number - window, side = Math.floor(block / blocks), nearest = n + (block % blocks) * blockSize;
          const add = (given, value) => { for (let row = 0; row < hidden; row += 1) for (let column = 0; column < dim; column += 1) sums[row] += value(row, column) * given[column]; };
          if (block < 0) {
            const other = held[place + number + 1 - n];
            if (other) add(other, (row, column) => near[(row * dim + column) * window + number]);
            return;
          }
          for (let kernel = 0; kernel < size; kernel += 1) {
            const mean = new Float64Array(dim);
            for (let tap = 0; tap < blockSize; tap += 1) held[place + (side ? 1 : -1) * (nearest + tap)]?.forEach((value, at) => { mean[at] += kernels[(side * size + kernel) * blockSize + tap] * value; });
            add(mean, (row, column) => far[((side * hidden + row) * size * dim + kernel * dim + column) * blocks + (block % blocks)]);
          }
        });
        return silenced(sums.map(relu), 1, name, off);
      });
      return { rows, past: held };
    },

    Ssru({ in_projection: map, bias, causal }, xs, past) {
      const size = xs[0].length, given = xs.map((x) => linear(map, x));
      const gate = (row, at, side) => sigmoid(row[(side + 1) * size + at] + bias[side * size + at]);
      const run = (rows, side, begin) => rows.map((row) => (begin = begin.map((mean, at) => gate(row, at, side) * mean + (1 - gate(row, at, side)) * row[at])));
      const means = run(given, 0, past ?? new Float64Array(size));
      const back = causal ? null : run([...given].reverse(), 1, new Float64Array(size)).reverse();
      const rows = means.map((mean, index) => mean.map((value, at) => Math.max(0, value + (back ? back[index][at] - (1 - gate(given[index], at, 1)) * given[index][at] : 0))));
      return { rows, past: means.at(-1) };
    },

    LinearAttention(mixer, xs, past, { name, off }) {
      const { heads, key_dim: keyDim, value_dim: valueDim } = mixer, delta = mixer.type === "DeltaRule", plain = !delta && mixer.gate === "none";
      const [projected, canon] = canonised(mixer.canon, xs.map((x) => linear(mixer.in_projection, x)), past?.canon);
      const unit = (x) => x.map((value) => value / Math.max(Math.sqrt(dot(x, x)), 1e-12)), above = (value) => (value > 0 ? value : Math.expm1(value)) + 1;
      const feature = delta ? unit : plain ? (x) => x.map(above) : (x) => x;
      const given = projected.map((row) => {
        const { query, key, value } = inHeads({ heads, key_dim: keyDim, value_dim: valueDim }, row, 0);
        return { query: query.map((x) => feature(!delta && !plain ? x.map((each) => each / Math.sqrt(keyDim)) : x)), key: key.map(feature), value: plain ? value.map((x) => joined(x, [1])) : value };
      });
      const memories = Array.from({ length: heads }, (_, head) => ({ sums: past?.memories[head].sums.slice() ?? new Float64Array(keyDim * (valueDim + (plain ? 1 : 0))) }));
      const pass = (order, direction, states) => {
        const faded = order.map((index) => gates(mixer, xs[index], direction));
        return states.map((memory, head) => {
          const read = remembered(mixer, order.map((index, turn) => ({ query: given[index].query[head], key: given[index].key[head], value: given[index].value[head], ...faded[turn][head] })), memory, direction === 1);
          return order.map((_, index) => read[order.indexOf(index)]);
        });
      };
      const order = [...xs.keys()], reads = pass(order, 0, memories);
      const back = mixer.causal ? null : pass([...order].reverse(), 1, memories.map(({ sums }) => ({ sums: new Float64Array(sums.length) })));
      const rows = xs.map((x, index) => {
        const parts = reads.map((read, head) => {
          const whole = back ? read[index].map((value, at) => value + back[head][index][at]) : read[index];
          return normed(mixer.norm, plain ? whole.subarray(0, valueDim).map((value) => value / whole[valueDim]) : whole);
        });
        const gate = mixer.output_gate && linear(mixer.output_gate, x);
        return silenced(joined(...parts).map((value, at) => (gate ? value * swish(gate[at]) : value)), heads, name, off);
      });
      return { rows, past: { canon, memories } };
    },
  };
  for (const name of ["LocalAttention", "DependencyAttention", "MergedAttention"]) MIXERS[name] = MIXERS.Attention;
  MIXERS.DeltaRule = MIXERS.LinearAttention;

  /** What attention to a source needs of it, the same for every position: of a mixer that reads it, or of cross-attention. */
  function viewOf(reader, memory) {
    if (reader.score) return { keys: memory.map((x) => (reader.score.source ? linear(reader.score.source, x) : x)), values: memory };
    const { heads, key_dim: keyDim, value_dim: valueDim } = reader;
    if (reader.type === "MergedAttention") {
      const held = canonised(reader.canon, memory.map((x) => linear(reader.in_projection, x)))[0].map((row) => inHeads(reader, row, 0));
      return { keys: held.map(({ key }) => key), values: held.map(({ value }) => value) };
    }
    const rows = memory.map((x) => linear(reader.memory_projection, x));
    return { keys: rows.map((row) => cut(row, 0, keyDim, heads)), values: rows.map((row) => cut(row, heads * keyDim, valueDim, heads)) };
  }

  /** What position `place` of a target reads of a source, and the position it chose; `previous` is that of the one before. */
  function readSource(cross, x, { keys, values }, place, name, off, previous = 0) {
    if (cross.type === "MultiHeadCross") {
      const queries = cut(linear(cross.query_projection, x), 0, cross.key_dim, cross.heads);
      return { values: linear(cross.out_projection, attend(queries, keys, values, cross.value_dim, name, off)), chosen: 0 };
    }
    const { scale, choice, score: { target, v, weight }, window: { type, hidden, v: toCentre, width } } = cross, query = target ? linear(target, x) : x;
    const centre = hidden ? keys.length * sigmoid(dot(toCentre.weight, linear(hidden, x).map(Math.tanh))) : Math.min(place, keys.length - 1);
    const scores = keys.map((key, at) => {
      if ((type !== "Global" && Math.abs(at - centre) > width) || (choice === "monotonic" && at < previous)) return -Infinity;
      if (v) return dot(v.weight, key.map((value, index) => Math.tanh(value + query[index])));
      return scale * dot(query, weight ? weight.subarray(at * query.length, (at + 1) * query.length) : key);
    });
    const chosen = scores.indexOf(Math.max(...scores));
    const shares = choice === "soft" ? softmax(scores) : scores.map((_, at) => Number(at === chosen));
    const weights = hidden ? shares.map((share, at) => share * Math.exp(-2 * ((at - centre) / width) ** 2)) : shares;
    return { values: values[0].map((_, channel) => values.reduce((sum, value, at) => sum + weights[at] * value[channel], 0)), chosen };
  }

  /** The mean of the outputs so far, weighed by how they match a query. */
  function overDepth({ query }, outputs) {
    const weights = softmax(outputs.map((x) => dot(query, x) / Math.sqrt(dot(x, x) / x.length + EPSILON)));
    return outputs[0].map((_, channel) => outputs.reduce((sum, x, index) => sum + weights[index] * x[channel], 0));
  }

  /** Rows, each the outputs so far, after a sublayer within its residual. */
  function within({ norm, post, depth, begins }, rows, isOff, sublayer) {
    const given = rows.map((outputs) => (depth ? overDepth(depth, outputs) : outputs[0]));
    return sublayer(post ? given : given.map((x) => normed(norm, x))).map((values, index) => {
      const outputs = rows[index], added = isOff ? values.map(() => 0) : values, last = outputs.at(-1);
      const total = begins ? added : last.map((value, at) => value + added[at]);
      return [...(begins ? outputs : outputs.slice(0, -1)), post ? normed(norm, total) : total];
    });
  }

  function fed({ type, gate, inner, outer }, xs, canon) {
    const act = ACTIVATIONS[type];
    return canon(xs.map((x) => (gate ? joined(linear(gate, x), linear(inner, x)) : linear(inner, x)))).map((hidden) => {
      const half = hidden.length / 2;
      return linear(outer, gate ? hidden.subarray(0, half).map((value, index) => act(value) * hidden[half + index]) : hidden.map((value) => act(value)));
    });
  }

  /** Rows through the blocks of a stack, with a view of the source for each that reads one, and the stack's past with them. */
  function through(name, blocks, xs, past, views, off) {
    const begin = past?.count ?? 0, first = {};
    let rows = xs.map((x) => [x]);
    const parts = blocks.map((block, number) => {
      const { mixer, cross } = block, layer = `${name}.${number + 1}`, before = past?.parts[number] ?? {}, after = {};
      const canon = (point) => (given) => {
        const [made, kept] = canonised(block[point], given, before[point]);
        after[point] = kept;
        return made;
      };
      rows = within(block.mixer_residual, rows, off.has(`${layer}.self`), (given) => {
        const mixed = MIXERS[mixer.type](mixer, canon("mixer_canon")(given), before.mixer, { name: `${layer}.self`, off, first, view: cross ? null : views?.[number] });
        after.mixer = mixed.past;
        return mixer.out_projection ? mixed.rows.map((row) => linear(mixer.out_projection, row)) : mixed.rows;
      });
      if (cross) rows = within(block.cross_residual, rows, off.has(`${layer}.cross`), (given) => given.map((x, index) => readSource(cross, x, views[number], begin + index, `${layer}.cross`, off).values));
      rows = within(block.feed_forward_residual, rows, off.has(`${layer}.feed_forward`), (given) => fed(block.feed_forward, canon("feed_forward_canon")(given), canon("feed_forward_inner_canon")));
      return after;
    });
    return { rows, past: { count: begin + xs.length, parts } };
  }

  /** The vectors at the top of a stack. */
  const ended = (rows, end, norm) => rows.map((outputs) => normed(norm, end ? overDepth(end, outputs) : outputs[0]));

  return { linear, joined, normed, sigmoid, viewOf, readSource, through, ended };
})();
