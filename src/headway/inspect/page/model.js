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

  const model = resolved(spec.model), { projection } = model;

  function embed({ weight, embedding_dim: dim }, table, scale, id, place, zero = false) {
    return new Float64Array(dim).map((_, index) => (zero ? 0 : weight[id * dim + index] * scale) + (table ? table[place * dim + index] : 0));
  }

  const embedded = ({ tokens, position, scale, norm, zero_first: zeroFirst }, id, place) => layers.normed(norm, embed(tokens, position.table, scale, id, place, zeroFirst && place === 0));

  const read = (ids) => ids.map((id, place) => embedded(model.source_embedding, id, place));
  const placed = (tokens, id, place) => embed(tokens, model.position.table, model.scale, id, place);

  /* Of each kind of model its state before the first token, and what one token makes of a state: the vector that the
     next one is predicted from, and the state after it. */
  const { begin, extend } = {
    Transformer: {
      begin(ids, off) {
        const { encoder, decoder, encoder_end: end, encoder_norm: norm } = model;
        const memory = layers.ended(layers.through("encoder", encoder, read(ids), null, null, off).rows, end, norm);
        return { past: null, views: decoder.map(({ cross, mixer }) => layers.viewOf(cross ?? mixer, memory)) };
      },
      extend({ past, views }, token, off) {
        const made = layers.through("decoder", model.decoder, [embedded(model.target_embedding, token, past?.count ?? 0)], past, views, off);
        return { values: layers.ended(made.rows, model.decoder_end, model.decoder_norm)[0], state: { past: made.past, views } };
      },
    },
    DecoderOnly: {
      begin: (ids, off) => layers.through("decoder", model.decoder, ids.map((id, place) => placed(model.source_tokens, id, place)), null, null, off).past,
      extend(past, token, off) {
        const made = layers.through("decoder", model.decoder, [placed(model.target_tokens, token, past.count)], past, null, off);
        return { values: layers.ended(made.rows, model.end, model.norm)[0], state: made.past };
      },
    },
    Recurrent: {
      begin: (ids, off) => recurrent.start(model.decoder, recurrent.encode(model.encoder, read(ids), off)),
      extend: (state, token, off) => recurrent.step(model.decoder, embedded(model.target_embedding, token, 0), state, off),
    },
  }[model.type];

  /** The log probabilities of what follows a token, and the state after it. */
  function step(before, token, off) {
    const { values, state } = extend(before, token, off), logits = layers.linear(projection, values);
    const most = logits.reduce((one, other) => Math.max(one, other), -Infinity);
    const total = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
    return { state, logs: logits.map((logit) => logit - total) };
  }

  const { exponent, kind, stop } = spec.search.ranking;
  const penalty = (length) => (kind === "power" ? length : (5 + length) / 6) ** exponent;
  const ended = (finished, best, length) => stop === "full" || best / penalty(length) <= finished.at(stop === "best" ? 0 : -1).score;

  /** The tokens that would complete as many as come twice in no output. */
  function repeated(ids) {
    const size = spec.search.no_repeat, ending = ids.slice(ids.length - size + 1).join(), found = new Set();
    if (size > 0) for (let at = 0; at + size <= ids.length; at += 1) if (size === 1 || ids.slice(at, at + size - 1).join() === ending) found.add(ids[at + size - 1]);
    return found;
  }

  /** The best outputs of a sentence of the page that begin with `forced`, best first, without the parts that are off. */
  function search(number, off, forced = []) {
    const { ids, longest: asked } = spec.sentences[number], { beam, nbest, shortest } = spec.search;
    const longest = Math.max(asked, forced.length);
    let alive = [{ sum: 0, ids: [], chosen: [], ...step(begin(ids, off), BOS, off) }], finished = [];
    for (let time = 0; time <= longest; time += 1) {
      const candidates = [];
      for (const before of alive) {
        const again = repeated(before.ids), possible = (token) => (time < forced.length ? token === forced[time] : time === longest ? token === EOS : token >= PAD_BOS && (token !== EOS || time >= shortest));
        const free = time >= forced.length && time < longest, stuck = free && !before.logs.some((_, token) => possible(token) && !again.has(token));
        before.logs.forEach((log, token) => {
          if (possible(token) && (!free || stuck || !again.has(token))) candidates.push({ before, token, log, sum: before.sum + log });
        });
      }
      candidates.sort((one, other) => other.sum - one.sum).splice(2 * beam);
      for (const { before, token, log, sum } of candidates.slice(0, beam)) {
        if (token === EOS) finished.push({ ids: before.ids, logs: [...before.chosen, log], score: sum / penalty(time + 1) });
      }
      finished = finished.sort((one, other) => other.score - one.score).slice(0, beam);
      const chosen = candidates.filter(({ token }) => token !== EOS).slice(0, beam);
      if (!chosen.length || (finished.length === beam && ended(finished, chosen[0].sum, time + 1))) break;
      if (time === longest) break;
      alive = chosen.map(({ before, token, log, sum }) => ({
        sum, ids: [...before.ids, token], chosen: [...before.chosen, log], ...step(before.state, token, off),
      }));
    }
    return finished.slice(0, nbest);
  }

  /** The most probable tokens after some others, with their log probabilities. */
  function next(number, off, before, count) {
    const { ids, longest } = spec.sentences[number];
    let after = step(begin(ids, off), BOS, off);
    for (const token of before) after = step(after.state, token, off);
    const possible = ({ token }) => (before.length < longest ? token >= PAD_BOS : token === EOS);
    return [...after.logs].map((log, token) => ({ token, log })).filter(possible).sort((one, other) => other.log - one.log).slice(0, count);
  }

  return { search, next, tokens: spec.tokens, knows: (number) => Boolean(spec.sentences[number]) };
}
