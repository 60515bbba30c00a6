/* The model that the page carries, with parts of it switched off, and its search: both as `headway predict` has them. */
function createModel(spec) {
  const PAD_BOS = 2, BOS = 1, EOS = 2; // tokens below the end mark are never written
  const bytes = Uint8Array.from(atob(spec.weights), (char) => char.charCodeAt(0));
  const all = new Float32Array(bytes.buffer);

  /** A tree with the values in the place of [first, count]. */
  function resolved(tree) {
    if (Array.isArray(tree)) return typeof tree[0] === "number" ? all.subarray(tree[0], tree[0] + tree[1]) : tree.map(resolved);
    if (tree === null || typeof tree !== "object") return tree;
    return Object.fromEntries(Object.entries(tree).map(([name, value]) => [name, resolved(value)]));
  }

  const { dim } = spec;
  const { source, target, encoder, decoder, encoderNorm, decoderNorm, projection } = resolved({
    source: spec.source, target: spec.target, encoder: spec.encoder, decoder: spec.decoder,
    encoderNorm: spec.encoderNorm, decoderNorm: spec.decoderNorm, projection: spec.projection,
  });

  function linear({ weight, bias }, x) {
    const size = x.length, result = new Float32Array(weight.length / size);
    for (let row = 0, at = 0; row < result.length; row += 1) {
      let sum = bias ? bias[row] : 0;
      for (let column = 0; column < size; column += 1, at += 1) sum += weight[at] * x[column];
      result[row] = sum;
    }
    return result;
  }

  function normed(norm, x) {
    if (!norm) return x;
    const mean = norm.centred ? x.reduce((sum, value) => sum + value, 0) / x.length : 0;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    const factor = 1 / Math.sqrt(variance + norm.eps);
    return x.map((value, index) => (value - mean) * factor * norm.weight[index] + (norm.bias ? norm.bias[index] : 0));
  }

  function embed({ tokens, positions, scale, zeroFirst, norm }, id, place) {
    const x = new Float32Array(dim);
    for (let index = 0; index < dim; index += 1) {
      const token = zeroFirst && place === 0 ? 0 : tokens[id * dim + index] * scale;
      x[index] = token + (positions ? positions[place * dim + index] : 0);
    }
    return normed(norm, x);
  }

  /** The vectors of heads, side by side; one that is off is zero. */
  function attend({ heads, keyDim, valueDim }, query, keys, values, name, off) {
    const mean = new Float32Array(heads * valueDim);
    for (let head = 0; head < heads; head += 1) {
      if (off.has(`${name}:head=${head + 1}`)) continue;
      const scores = keys.map((key) => {
        let sum = 0;
        for (let index = head * keyDim; index < (head + 1) * keyDim; index += 1) sum += query[index] * key[index];
        return sum / Math.sqrt(keyDim);
      });
      const most = Math.max(...scores), shares = scores.map((score) => Math.exp(score - most));
      const total = shares.reduce((sum, share) => sum + share, 0);
      values.forEach((value, place) => {
        const share = shares[place] / total;
        for (let index = head * valueDim; index < (head + 1) * valueDim; index += 1) mean[index] += share * value[index];
      });
    }
    return mean;
  }

  /** What a position reads of itself and others. `held` is what each position gives; those after `place` may be missing. */
  const MIXERS = {
    attention: {
      hold(mixer, x) {
        const projected = linear(mixer.in, x), keys = mixer.heads * mixer.keyDim;
        return { query: projected.subarray(0, keys), key: projected.subarray(keys, 2 * keys), value: projected.subarray(2 * keys) };
      },
      read: (mixer, held, place, name, off) => attend(mixer, held[place].query, held.map(({ key }) => key), held.map(({ value }) => value), name, off),
    },
    ngram: {
      hold: (mixer, x) => linear(mixer.in, x),
      read(mixer, held, place, name, off) {
        const { heads, headDim, n, spans, weight, bias, global } = mixer, window = spans.length - (global ? 1 : 0);
        const hidden = bias ? bias.slice() : new Float32Array(heads * headDim);
        const add = (given, of, step, first) => {
          for (let row = 0; row < hidden.length; row += 1) {
            const begin = row - (row % headDim);
            let sum = 0;
            for (let column = 0; column < headDim; column += 1) sum += of[(row * headDim + column) * step + first] * given[begin + column];
            hidden[row] += sum;
          }
        };
        spans.forEach((span, index) => {
          if (off.has(`${name}:offset=${span}`)) return;
          if (index === window) add(held[0].map((_, column) => Math.max(...held.map((each) => each[column]))), global, 1, 0);
          else if (held[place + index + 1 - n]) add(held[place + index + 1 - n], weight, window, index);
        });
        return hidden.map((value, row) => (off.has(`${name}:head=${Math.floor(row / headDim) + 1}`) ? 0 : Math.max(0, value)));
      },
    },
  };

  function within(block, kind, x, sublayer) {
    const norm = block.norms[kind], added = sublayer(block.post ? x : normed(norm, x));
    const total = x.map((value, index) => value + added[index]);
    return block.post ? normed(norm, total) : total;
  }

  function fed({ inner, outer, activation }, x) {
    const act = activation === "relu" ? (value) => Math.max(0, value) : (value) => value / (1 + Math.exp(-value));
    return linear(outer, linear(inner, x).map(act));
  }

  /** Views of an encoded source, one for each block of the decoder. */
  function encode(ids, off) {
    let rows = ids.map((id, place) => embed(source, id, place));
    encoder.forEach((block, number) => {
      const { mixer, norms, post } = block, name = `encoder.${number + 1}.self`;
      const held = rows.map((x) => MIXERS[mixer.kind].hold(mixer, post ? x : normed(norms.mixer, x)));
      rows = rows.map((x, place) => within(block, "mixer", x, () => linear(mixer.out, MIXERS[mixer.kind].read(mixer, held, place, name, off))));
      rows = rows.map((x) => within(block, "feedForward", x, (y) => fed(block.feedForward, y)));
    });
    const memory = rows.map((x) => normed(encoderNorm, x));
    return decoder.map(({ cross }) => {
      const keys = cross.heads * cross.keyDim, projected = memory.map((x) => linear(cross.memory, x));
      return { keys: projected.map((each) => each.subarray(0, keys)), values: projected.map((each) => each.subarray(keys)) };
    });
  }

  /** The log probabilities of what follows a token, and what each block holds by now. */
  function step(views, held, token, off) {
    let x = embed(target, token, held.length ? held[0].length : 0);
    const now = decoder.map((block, number) => {
      const { mixer, cross } = block, kind = MIXERS[mixer.kind], before = held[number] ?? [];
      let mine = before;
      x = within(block, "mixer", x, (y) => {
        mine = [...before, kind.hold(mixer, y)];
        return linear(mixer.out, kind.read(mixer, mine, before.length, `decoder.${number + 1}.self`, off));
      });
      const { keys, values } = views[number];
      x = within(block, "cross", x, (y) => linear(cross.out, attend(cross, linear(cross.query, y), keys, values, `decoder.${number + 1}.cross`, off)));
      x = within(block, "feedForward", x, (y) => fed(block.feedForward, y));
      return mine;
    });
    const logits = linear(projection, normed(decoderNorm, x));
    const most = logits.reduce((one, other) => Math.max(one, other), -Infinity);
    const total = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    return { held: now, logs: logits.map((logit) => logit - total) };
  }

  const penalty = (length) => ((5 + length) / 6) ** spec.search.alpha;

  /** The best outputs of a sentence of the page that begin with `forced`, best first, without the parts that are off. */
  function search(number, off, forced = []) {
    const { ids, longest: asked } = spec.sentences[number], { beam, nbest, shortest } = spec.search;
    const views = encode(ids, off), longest = Math.max(asked, forced.length);
    let alive = [{ sum: 0, ids: [], chosen: [], ...step(views, [], BOS, off) }], finished = [];
    for (let time = 0; time <= longest; time += 1) {
      const candidates = [];
      for (const before of alive) {
        before.logs.forEach((log, token) => {
          const possible = time < forced.length ? token === forced[time] : time === longest ? token === EOS : token >= PAD_BOS && (token !== EOS || time >= shortest);
          if (possible) candidates.push({ before, token, log, sum: before.sum + log });
        });
      }
      candidates.sort((one, other) => other.sum - one.sum).splice(2 * beam);
      for (const { before, token, log, sum } of candidates.slice(0, beam)) {
        if (token === EOS) finished.push({ ids: before.ids, logs: [...before.chosen, log], score: sum / penalty(time + 1) });
      }
      finished = finished.sort((one, other) => other.score - one.score).slice(0, beam);
      const chosen = candidates.filter(({ token }) => token !== EOS).slice(0, beam);
      if (!chosen.length || (finished.length === beam && chosen[0].sum / penalty(time + 1) <= finished[0].score)) break;
      if (time === longest) break;
      alive = chosen.map(({ before, token, log, sum }) => ({
        sum, ids: [...before.ids, token], chosen: [...before.chosen, log], ...step(views, before.held, token, off),
      }));
    }
    return finished.slice(0, nbest);
  }

  /** The most probable tokens after some others, with their log probabilities. */
  function next(number, off, before, count) {
    const views = encode(spec.sentences[number].ids, off);
    let after = step(views, [], BOS, off);
    for (const token of before) after = step(views, after.held, token, off);
    return [...after.logs].map((log, token) => ({ token, log })).slice(PAD_BOS).sort((one, other) => other.log - one.log).slice(0, count);
  }

  return { search, next, tokens: spec.tokens, knows: (number) => Boolean(spec.sentences[number]) };
}
