"""Oracles: slow float64 loops, written straight from the equations, that the fast code must equal.

Each takes the module whose weights it reads, and plain tensors. Shapes: B batch, L length, S source, K heads, D model.
"""

import math

import torch
from torch import Tensor

from headway.mixers.attention import Attention
from headway.mixers.canon import Canon
from headway.mixers.dependency_attention import DependencyAttention
from headway.mixers.lightconv import LightConv
from headway.mixers.local import LocalAttention
from headway.mixers.ngram import Ngram
from headway.mixers.nplm import Nplm
from headway.mixers.positions import Sinusoidal
from headway.mixers.relative import Alibi, Rotary, T5Bias
from headway.mixers.ssru import Ssru
from headway.models.block import Block, Residual
from headway.models.components import ReluFeedForward, SwigluFeedForward
from headway.models.cross_attention import CrossMixer, MultiHeadCross
from headway.models.decoder_only import DecoderOnly
from headway.models.layer_attention import LayerAttention, LayerAverage
from headway.models.scored_attention import Dot, General, LocalMonotonic, Location, ScoredAttention
from headway.models.transformer import Transformer


def linear(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """One vector through W x + b."""
    return weight @ x + bias


def softmax(scores: list[Tensor]) -> list[Tensor]:
    top = max(score.item() for score in scores)
    exponentials = [(score - top).exp() for score in scores]
    return [each / sum(exponentials) for each in exponentials]


def heads_of(weight: Tensor, bias: Tensor, heads: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(weight.chunk(heads), bias.chunk(heads), strict=True))


def parts_of(projection: torch.nn.Linear, heads: int | tuple[int, ...], sizes: tuple[int, ...]):
    """The projections of which one below the other make `projection`, to heads of these sizes."""
    parts, first = [], 0
    for size, count in zip(sizes, heads if isinstance(heads, tuple) else [heads] * len(sizes), strict=True):
        rows = slice(first, first + count * size)
        parts.append((projection.weight[rows], projection.bias[rows]))
        first = rows.stop
    assert first == len(projection.weight)
    return parts


def attention_rows(
    queries: list[Tensor],
    memory: list[Tensor],
    projections: list[tuple[Tensor, Tensor]],
    allowed: list[list[bool]],
    heads: int,
    bias=lambda head, query, key: 0.0,
    turn=lambda vector, position: vector,
    norms=(lambda vector: vector,) * 2,
    groups: int | None = None,
) -> tuple[list[Tensor], list[list[list[Tensor]]]]:
    """Equation 1 for every query vector: the heads' concatenated means, and weights [head][query][key].

    `bias` is added to a score, `turn` changes a query or key by its position, after the norms of either. Heads of
    queries share those of `groups` of keys and values.
    """
    query = heads_of(*projections[0], heads)
    key, value = (
        [part for part in heads_of(*each, groups or heads) for _ in range(heads // (groups or heads))]
        for each in projections[1:]
    )
    means: list[list[Tensor]] = [[] for _ in queries]
    weights: list[list[list[Tensor]]] = [[] for _ in range(heads)]
    for head in range(heads):
        keys = [turn(norms[1](linear(*key[head], each)), index) for index, each in enumerate(memory)]
        values = [linear(*value[head], each) for each in memory]
        for position, x in enumerate(queries):
            q = turn(norms[0](linear(*query[head], x)), position)
            seen = [index for index in range(len(memory)) if allowed[position][index]]
            row = [torch.zeros((), dtype=x.dtype) for _ in memory]
            mean = torch.zeros_like(values[0])
            if seen:
                scores = [(q * keys[index]).sum() / math.sqrt(len(q)) for index in seen]
                shares = softmax([score + bias(head, position, i) for score, i in zip(scores, seen, strict=True)])
                for index, share in zip(seen, shares, strict=True):
                    row[index] = share
                    mean = mean + share * values[index]
            means[position].append(mean)
            weights[head].append(row)
    return [torch.cat(each) for each in means], weights


def t5_bucket(offset: int, causal: bool, buckets: int, max_distance: int) -> int:
    """Half of the buckets (of a side) hold one distance each, the others ever more; Raffel et al. 2020, section 2.1."""
    size, first = buckets, 0
    if not causal:
        size = buckets // 2
        first = size if offset > 0 else 0
    distance = max(0, -offset) if causal else abs(offset)
    exact = size // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(size - 1, exact + int(share * (size - exact)))


def position_bias(mixer: Attention):
    """What is added to the score of a head, query and key: T5's learned number, or ALiBi's slope times distance."""
    position = mixer.position

    def bias(head: int, query: int, key: int):
        if isinstance(position, T5Bias):
            bucket = t5_bucket(key - query, position.causal, position.buckets, position.max_distance)
            return position.table[bucket, head]
        if isinstance(position, Alibi):
            return -alibi_slope(head, mixer.heads) * abs(key - query)
        return 0.0

    return bias


def alibi_slope(head: int, heads: int) -> float:
    """A geometric sequence from 2^(-8/K) on; Press et al. 2022, section 3, and the interpolation of their code."""
    power = 1
    while 2 * power <= heads:
        power *= 2
    return 2 ** (-8 / power * (head + 1)) if head < power else 2 ** (-8 / (2 * power) * (2 * (head - power) + 1))


def rotation(mixer: Attention):
    """Each pair of dimensions turned by position * base^(-2i/r), as complex numbers; Su et al. 2021, equation 34."""

    def turn(vector: Tensor, position: int) -> Tensor:
        if not isinstance(mixer.position, Rotary):
            return vector
        rotated = mixer.position.rotated
        result = vector.clone()
        for i in range(rotated // 2):
            angle = position * mixer.position.frequencies[i].item()
            a, b = vector[i], vector[i + rotated // 2]
            result[i] = a * math.cos(angle) - b * math.sin(angle)
            result[i + rotated // 2] = a * math.sin(angle) + b * math.cos(angle)
        return result

    return turn


def root_mean_square_norm(norm: torch.nn.RMSNorm | None):
    """Zhang and Sennrich 2019: x_i w_i over the root of the mean square; x itself without a norm."""

    def normalised(x: Tensor) -> Tensor:
        return x if norm is None else x / (sum(each * each for each in x) / len(x) + norm.eps).sqrt() * norm.weight

    return normalised


def forgotten(mixer: Attention, row: Tensor, real: Tensor):
    """Lin et al. 2025, equation 5: the sum of log f_l over what lies between query and key, the later one included."""

    def bias(head: int, query: int, key: int):
        total = torch.zeros((), dtype=row.dtype)
        for position in range(min(query, key) + 1, max(query, key) + 1) if mixer.forget is not None else ():
            if real[position]:
                logit = mixer.forget.weight[head] @ row[position] + mixer.forget.bias[head]
                total = total + (1 / (1 + (-logit).exp())).log()
        return total

    return bias


def attention(mixer: Attention, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Self-attention (Vaswani et al. 2017, equation 1 and section 3.2.2): values (B, L, D), weights (B, K, L, L).

    Local attention is the same over fewer positions.
    """
    n = mixer.n if isinstance(mixer, LocalAttention) else math.inf
    heads = mixer.heads, mixer.key_value_heads, mixer.key_value_heads
    projections = parts_of(mixer.in_projection, heads, (mixer.key_dim, mixer.key_dim, mixer.value_dim))
    norms = [root_mean_square_norm(norm) for norm in (mixer.query_norm, mixer.key_norm)]
    values, all_weights, read = [], [], x
    if mixer.canon is not None:
        inner = mixer.in_projection
        joined = torch.stack([torch.stack([linear(inner.weight, inner.bias, vector) for vector in row]) for row in x])
        read, eye = canon(mixer.canon, joined, mask), torch.eye(joined.shape[2], dtype=x.dtype)
        projections = list(zip(*(t.split(mixer.widths) for t in (eye, torch.zeros_like(eye[0]))), strict=True))
    for row, joined, real in zip(x, read, mask, strict=True):
        length = len(row)
        allowed = [
            [bool(real[t] and real[s]) and (s <= t or not mixer.causal) and abs(s - t) < n for s in range(length)]
            for t in range(length)
        ]
        near, lost = position_bias(mixer), forgotten(mixer, row, real)
        means, weights = attention_rows(
            list(joined), list(joined), projections, allowed, mixer.heads,
            lambda head, query, key, near=near, lost=lost: near(head, query, key) + lost(head, query, key),
            rotation(mixer), norms, mixer.key_value_heads,
        )  # fmt: skip
        out = [linear(mixer.out_projection.weight, mixer.out_projection.bias, mean) for mean in means]
        values.append(torch.stack([each if real[t] else torch.zeros_like(each) for t, each in enumerate(out)]))
        all_weights.append(torch.stack([torch.stack([torch.stack(r) for r in head]) for head in weights]))
    return torch.stack(values), torch.stack(all_weights)


def ngram(mixer: Ngram, x: Tensor, mask: Tensor) -> Tensor:
    """Multi-head neural n-grams (Loem et al. 2023, equations 4 to 8), one neighbour after another."""
    values = []
    for row, real in zip(x, mask, strict=True):
        length = int(real.sum())
        heads = heads_of(mixer.in_projection.weight, mixer.in_projection.bias, mixer.heads)
        projected = [[linear(*head, row[t]) for t in range(length)] for head in heads]  # equation 6
        out = []
        for t in range(len(row)):
            hidden = [_ngram_head(mixer, k, projected[k], t) for k in range(mixer.heads)] if real[t] else []
            joined = linear(mixer.out_projection.weight, mixer.out_projection.bias, torch.cat(hidden)) if hidden else 0
            out.append(joined if hidden else torch.zeros_like(row[t]))  # equation 4
        values.append(torch.stack(out))
    return torch.stack(values)


def _ngram_head(mixer: Ngram, k: int, projected: list[Tensor], t: int) -> Tensor:
    """Equation 5, or 8 with a global context."""
    total = mixer.bias[k * mixer.head_dim : (k + 1) * mixer.head_dim]
    for term in ngram_contributions(mixer, k, projected, t).values():
        total = total + term
    return total.clamp(min=0)


def ngram_contributions(mixer: Ngram, k: int, projected: list[Tensor], t: int) -> dict[int | str, Tensor]:
    """The terms of each offset, and of the context, in the hidden layer of head k at position t."""
    d, last, terms = mixer.head_dim, 0 if mixer.causal else mixer.n - 1, {}
    for index, offset in enumerate(range(1 - mixer.n, last + 1)):
        terms[offset] = torch.zeros(d, dtype=projected[0].dtype)
        if 0 <= t + offset < len(projected):
            terms[offset] = mixer.weight[k, :, :, index] @ projected[t + offset]
    if mixer.global_weight is not None:
        seen = projected[: t + 1] if mixer.prefix else projected
        highest = torch.stack([torch.stack([vector[i] for vector in seen]).max() for i in range(d)])  # equation 7
        terms["context"] = mixer.global_weight[k] @ highest
    return terms


def lightconv(mixer: LightConv, x: Tensor, mask: Tensor) -> Tensor:
    """Lightweight convolution (Wu et al. 2019, section 3), one position of a window after another."""
    out_weight, out_bias, dim = mixer.out_projection.weight, mixer.out_projection.bias, x.shape[2]
    values = []
    for row, real in zip(x, mask, strict=True):
        gated = _gated(mixer, row[: int(real.sum())])
        out = []
        for t in range(len(row)):
            terms = lightconv_contributions(mixer, gated, t) if real[t] else {}
            average = sum(terms.values(), torch.zeros(dim, dtype=x.dtype))
            out.append(linear(out_weight, out_bias, average) if terms else average)
        values.append(torch.stack(out))
    return torch.stack(values)


def _gated(mixer: LightConv, row: Tensor) -> list[Tensor]:
    """GLU (Dauphin et al. 2017) of each vector: the first half of its projection times the sigmoid of the second."""
    projected = [linear(mixer.in_projection.weight, mixer.in_projection.bias, vector) for vector in row]
    size = row.shape[1]
    return [vector[:size] / (1 + (-vector[size:]).exp()) for vector in projected]


def lightconv_contributions(mixer: LightConv, gated: list[Tensor], t: int) -> dict[int, Tensor]:
    """The terms (D,) of each offset in the sum of position t: softmax(W_h)_j times what channel c of head h has there.

    Equation 2 of the paper counts taps from 1; heads are ceil(c H / d) with channels from 1.
    """
    dim, width, terms = len(gated[0]), mixer.width, {}
    shares = [softmax(list(head)) for head in mixer.weight]
    for j in range(1, width + 1):
        offset = j - width if mixer.causal else j - math.ceil((width + 1) / 2)
        there = gated[t + offset] if 0 <= t + offset < len(gated) else torch.zeros_like(gated[0])
        heads = [math.ceil(channel * mixer.heads / dim) for channel in range(1, dim + 1)]
        terms[offset] = torch.stack([shares[head - 1][j - 1] * there[c] for c, head in enumerate(heads)])
    return terms


def nplm(mixer: Nplm, x: Tensor, mask: Tensor) -> Tensor:
    """Recent vectors and averages over blocks of distant ones through one hidden layer (Sun and Iyyer 2021)."""
    values = []
    for row, real in zip(x, mask, strict=True):
        length = int(real.sum())
        out = [_nplm_position(mixer, row[:length], t) if real[t] else torch.zeros_like(row[t]) for t in range(len(row))]
        values.append(torch.stack(out))
    return torch.stack(values)


def _nplm_position(mixer: Nplm, row: Tensor, t: int) -> Tensor:
    hidden = mixer.bias
    for _, term in nplm_contributions(mixer, row, t):
        hidden = hidden + term
    return linear(mixer.out_projection.weight, mixer.out_projection.bias, hidden.clamp(min=0))


def nplm_contributions(mixer: Nplm, row: Tensor, t: int) -> list[tuple[tuple[int, int], Tensor]]:
    """The terms of each offset, or block of offsets, in the hidden layer of position t: its bounds and a vector."""

    def at(position: int) -> Tensor:
        return row[position] if 0 <= position < len(row) else torch.zeros_like(row[0])

    last, terms = 0 if mixer.causal else mixer.n - 1, []
    for index, offset in enumerate(range(1 - mixer.n, last + 1)):
        terms.append(((offset, offset), mixer.near[:, :, index] @ at(t + offset)))
    for side, direction in enumerate([-1] if mixer.causal else [-1, 1]):
        for m in range(mixer.blocks):
            averages = []
            for kernel in mixer.kernels[side]:
                first = mixer.n + m * mixer.block_size
                positions = [t + direction * (first + i) for i in range(mixer.block_size)]
                averages.append(sum(kernel[i] * at(position) for i, position in enumerate(positions)))
            bounds = sorted((positions[0] - t, positions[-1] - t))
            terms.append((tuple(bounds), mixer.far[side, :, :, m] @ torch.cat(averages)))
    return terms


def ssru(mixer: Ssru, x: Tensor, mask: Tensor) -> Tensor:
    """Kim et al. 2019: f_t = sigmoid(W_f x_t + b), c_t = f_t c_{t-1} + (1 - f_t) W x_t, z_t = ReLU(c_t).

    In both directions, what the mean from the right is before it reads x_t is added, times its gate at t.
    """
    values = []
    for row, real in zip(x, mask, strict=True):
        places = [t for t in range(len(row)) if real[t]]
        means = {t: after for t, _, after in _ssru_means(mixer, row, places, 0)}
        if not mixer.causal:
            for t, kept, _ in _ssru_means(mixer, row, places[::-1], 1):
                means[t] = means[t] + kept
        values.append(torch.stack([means[t].clamp(min=0) if real[t] else row[t] * 0 for t in range(len(row))]))
    return torch.stack(values)


def _ssru_means(mixer: Ssru, row: Tensor, places: list[int], direction: int) -> list[tuple[int, Tensor, Tensor]]:
    """Place by place, what the gate keeps of the mean so far, and the mean after the place."""
    dim, zero, found = row.shape[1], torch.zeros_like(row[0]), []
    part = slice(direction * dim, (direction + 1) * dim)
    mean = zero
    for t in places:
        gate = 1 / (1 + (-linear(mixer.in_projection.weight[dim:][part], mixer.bias[part], row[t])).exp())
        kept = gate * mean
        mean = kept + (1 - gate) * linear(mixer.in_projection.weight[:dim], zero, row[t])
        found.append((t, kept, mean))
    return found


def cross_attention(cross: MultiHeadCross, x: Tensor, memory: Tensor, memory_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Attention from the target to the source: values (B, L, D), weights (B, K, L, S)."""
    projections = [
        (cross.query_projection.weight, cross.query_projection.bias),
        *parts_of(cross.memory_projection, cross.heads, (cross.key_dim, cross.value_dim)),
    ]
    values, all_weights = [], []
    for row, source, real in zip(x, memory, memory_mask, strict=True):
        allowed = [[bool(each) for each in real] for _ in row]
        means, weights = attention_rows(list(row), list(source), projections, allowed, cross.heads)
        values.append(torch.stack([linear(cross.out_projection.weight, cross.out_projection.bias, m) for m in means]))
        all_weights.append(torch.stack([torch.stack([torch.stack(r) for r in head]) for head in weights]))
    return torch.stack(values), torch.stack(all_weights)


def layer_norm(norm: torch.nn.LayerNorm, x: Tensor) -> Tensor:
    mean = x.sum(-1, keepdim=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]
    return (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias


def feed_forward(network: ReluFeedForward | SwigluFeedForward, x: Tensor, near=lambda hidden: hidden) -> Tensor:
    """Equation 2: max(0, x W1 + b1) W2 + b2; or (SiLU(x W1) * x V) W2. `near` stands before the activation."""
    if isinstance(network, SwigluFeedForward):
        gate, inner = near(torch.cat([x @ network.gate.weight.T, x @ network.inner.weight.T], -1)).chunk(2, -1)
        return (gate / (1 + (-gate).exp()) * inner) @ network.outer.weight.T
    inner = near(x @ network.inner.weight.T + network.inner.bias).clamp(min=0)
    return inner @ network.outer.weight.T + network.outer.bias


def residual(around: Residual, x: Tensor, sublayer) -> Tensor:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) with pre-norm."""
    if around.post:
        return layer_norm(around.norm, x + sublayer(x))
    return x + sublayer(layer_norm(around.norm, x))


def scored_attention(cross: ScoredAttention, x: Tensor, memory: Tensor, memory_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Soft attention of one head with a global or local-m window: values (B, L, E), weights (B, 1, L, S)."""
    values, all_weights = [], []
    for row, source, real in zip(x, memory, memory_mask, strict=True):
        length, rows = int(real.sum()), []
        for position, query in enumerate(row):
            centre = min(position, length - 1)
            near = [j for j in range(length) if _seen(cross, j, centre)]
            scores = softmax([_pair_score(cross, source[j], query, j) * cross.scale for j in near])
            weights = [torch.zeros((), dtype=x.dtype) for _ in source]
            for j, weight in zip(near, scores, strict=True):
                weights[j] = weight
            rows.append(torch.stack(weights))
        all_weights.append(torch.stack(rows)[None])
        values.append(torch.stack([sum(w * s for w, s in zip(weights, source, strict=True)) for weights in rows]))
    return torch.stack(values), torch.stack(all_weights)


def _seen(cross: ScoredAttention, j: int, centre: int) -> bool:
    return not isinstance(cross.window, LocalMonotonic) or abs(j - centre) <= cross.window.width


def _pair_score(cross: ScoredAttention, s: Tensor, h: Tensor, position: int) -> Tensor:
    score = cross.score
    if isinstance(score, Dot):
        return (s * h).sum()
    if isinstance(score, General):
        return s @ (score.source.weight.T @ h)
    if isinstance(score, Location):
        return score.weight[position] @ h
    return score.v.weight[0] @ torch.tanh(score.source.weight @ s + score.target.weight @ h)


def read_source(cross: CrossMixer, x: Tensor, memory: Tensor, memory_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Any cross-attention that there is an oracle for."""
    oracle = cross_attention if isinstance(cross, MultiHeadCross) else scored_attention
    return oracle(cross, x, memory, memory_mask)


def canon(layer: Canon | None, x: Tensor, mask: Tensor) -> Tensor:
    """Allen-Zhu 2025: h'_t = h_t + w_0 h_t + w_1 h_{t-1} + w_2 h_{t-2} + w_3 h_{t-3}, channel by channel.

    One position later each where the layer is not causal. Without a layer, h' = h.
    """
    if layer is None:
        return x
    later = 0 if layer.causal else 1
    result = x
    for row, real in enumerate(mask):
        for t in range(x.shape[1]):
            for j in range(4):
                s = t - j + later
                if 0 <= s < x.shape[1] and real[s]:
                    term = layer.weight[:, 3 - j] * x[row, s]
                    result = result.index_put((torch.tensor(row), torch.tensor(t)), term, accumulate=True)
    return result


def encoder_layer(layer: Block, x: Tensor, mask: Tensor) -> Tensor:
    x = residual(layer.mixer_residual, x, lambda y: attention(layer.mixer, canon(layer.mixer_canon, y, mask), mask)[0])
    return _feed(layer, x, mask)


def decoder_layer(layer: Block, x: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
    x = residual(layer.mixer_residual, x, lambda y: attention(layer.mixer, canon(layer.mixer_canon, y, mask), mask)[0])
    x = residual(layer.cross_residual, x, lambda y: read_source(layer.cross, y, memory, memory_mask)[0])
    return _feed(layer, x, mask)


def _feed(layer: Block, x: Tensor, mask: Tensor) -> Tensor:
    def fed(y: Tensor) -> Tensor:
        y = canon(layer.feed_forward_canon, y, mask)
        return feed_forward(layer.feed_forward, y, lambda hidden: canon(layer.feed_forward_inner_canon, hidden, mask))

    return residual(layer.feed_forward_residual, x, fed)


def sinusoid(position: int, dim: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D))."""
    values = [
        (math.sin if index % 2 == 0 else math.cos)(position / 10000 ** (2 * (index // 2) / dim)) for index in range(dim)
    ]
    return torch.tensor(values, dtype=torch.float32).double()  # the model's table is float32


def embed(tokens: torch.nn.Embedding, ids: Tensor) -> Tensor:
    dim = tokens.embedding_dim
    positions = torch.stack([sinusoid(position, dim) for position in range(ids.shape[1])])
    return torch.stack([tokens.weight[row] for row in ids]) * math.sqrt(dim) + positions


def transformer(model: Transformer, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
    """Logits (B, T, V) of a Transformer with self-attention, sinusoidal positions and ReLU."""
    memory = embed(model.source_embedding.tokens, source)
    for layer in model.encoder:
        memory = encoder_layer(layer, memory, source_mask)
    x = embed(model.target_embedding.tokens, target)
    pre = not model.decoder[0].mixer_residual.post
    if pre:
        memory = layer_norm(model.encoder_norm, memory)
    for layer in model.decoder:
        x = decoder_layer(layer, x, target_mask, memory, source_mask)
    if pre:
        x = layer_norm(model.decoder_norm, x)
    return x @ model.projection.weight.T


def decoder_only(model: DecoderOnly, source: list[int], target: list[int]) -> Tensor:
    """Logits (T, V) after BOS, y1 .. yn of one pair, given the ids x1 .. xm EOS and BOS y1 .. yn: no batch, no padding.

    Of a model with self-attention, no or sinusoidal positions, and ReLU.
    """
    tables = [model.source_tokens.weight] * len(source) + [model.target_tokens.weight] * len(target)
    rows = []
    for position, (table, token) in enumerate(zip(tables, [*source, *target], strict=True)):
        vector = table[token] * math.sqrt(table.shape[1])
        rows.append(vector + sinusoid(position, len(vector)) if isinstance(model.position, Sinusoidal) else vector)
    x = torch.stack(rows)[None]
    for layer in model.decoder:
        x = encoder_layer(layer, x, torch.ones(x.shape[:2], dtype=torch.bool))
    if not model.decoder[0].mixer_residual.post:
        x = layer_norm(model.norm, x)
    return x[0, len(source) :] @ model.projection.weight.T


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, mask: Tensor, smoothing: float) -> Tensor:
    """- sum over positions and words of q(word) log p(word), q = (1 - s) [word = target] + s / V."""
    total = torch.zeros((), dtype=logits.dtype)
    size = logits.shape[-1]
    for row, target, real in zip(logits, targets, mask, strict=True):
        if not real:
            continue
        log_p = row - torch.log(sum(row[v].exp() for v in range(size)))
        for word in range(size):
            share = smoothing / size + (1 - smoothing) * float(word == target)
            total = total - share * log_p[word]
    return total


def dependency_weights(mixer: DependencyAttention, x: Tensor, mask: Tensor) -> Tensor:
    """A_dep = softmax(Q U K^T / sqrt(d) [+ u K^T / sqrt(d)]) of each dependency head, (B, N, L, L)."""
    parts = parts_of(mixer.in_projection, mixer.heads, (mixer.key_dim, mixer.key_dim, mixer.value_dim))
    queries, keys, _ = (heads_of(weight, bias, mixer.heads) for weight, bias in parts)
    size, result = mixer.key_dim, torch.zeros(len(x), mixer.dependency_heads, *[x.shape[1]] * 2, dtype=x.dtype)
    rows = []
    for b in range(len(x)):
        for n in range(mixer.dependency_heads):
            q, k = ([linear(*each[n], word) for word in x[b]] for each in (queries, keys))
            for t in range(x.shape[1]):
                seen = [s for s in range(x.shape[1]) if mask[b, t] and mask[b, s] and (s <= t or not mixer.causal)]
                scores = []
                for s in seen:
                    score = sum(q[t][i] * mixer.bilinear[n, i, j] * k[s][j] for i in range(size) for j in range(size))
                    if mixer.key_bias is not None:
                        score = score + sum(mixer.key_bias[n, 0, j] * k[s][j] for j in range(size))
                    scores.append(score / math.sqrt(size))
                rows += [(b, n, t, s, share) for s, share in zip(seen, softmax(scores) if seen else [], strict=True)]
    for b, n, t, s, share in rows:
        result = result.index_put(tuple(map(torch.tensor, (b, n, t, s))), share)
    return result


def dependency_loss(weights: Tensor, heads: Tensor, taught: tuple[int, ...]) -> Tensor:
    """L_dep (equation 4): the mean of - log A[t, head(t)] over the supervised edges of a batch, and over heads."""
    losses = []
    for b, row in enumerate(heads.tolist()):
        for t, head in enumerate(row):
            if head >= 0:
                losses += [-torch.log(weights[b, h, t, head]) for h in taught]
    return sum(losses) / len(losses)


def guided_alignment(weights: Tensor, links: list[list[tuple[int, int, float]]], head: int) -> Tensor:
    """L_a of Garg et al. (2019): the mean over linked target tokens of - sum_s G[t, s] log A[t, s]; links (t, s, G)."""
    losses = {}
    for b, pair in enumerate(links):
        for t, s, share in pair:
            losses[b, t] = losses.get((b, t), 0) - share * torch.log(weights[b, head, t, s])
    return sum(losses.values()) / len(losses)


def mean_head(weights: Tensor, heads: tuple[int, ...] | None) -> Tensor:
    """One sentence's (K, L, S) to (L, S)."""
    chosen = range(len(weights)) if heads is None else heads
    return sum(weights[h] for h in chosen) / len(chosen)


def projected_attention(encoder: Tensor, cross: Tensor, back: Tensor, target: str) -> Tensor:
    """D' of one sentence without padding: D_pseudo[t, q] = sum_ij C[t, i] E[i, j] C_back[j, q] (equations 9, 12)."""
    length, source = cross.shape
    rows = []
    for t in range(length):
        pseudo = [
            sum(cross[t, i] * encoder[i, j] * back[j, q] for i in range(source) for j in range(source))
            for q in range(t + 1)
        ]
        row = softmax(pseudo) if target == "softmax" else [each / sum(pseudo) for each in pseudo]
        rows.append(torch.stack(row + [torch.zeros_like(row[0])] * (length - t - 1)))
    return torch.stack(rows)


def backward_attention(scores: Tensor) -> Tensor:
    """C_back (equation 11) of one sentence and head, from scores (T, S): (S, T), each row a softmax over the target."""
    return torch.stack([torch.stack(softmax(list(column))) for column in scores.T])


def synchronous_loss(projected: Tensor, decoder: Tensor) -> Tensor:
    """L_sync (equation 13) of one sentence."""
    size = len(decoder)
    return sum((projected[t, q] - decoder[t, q]) ** 2 for t in range(size) for q in range(size))


def layer_attention(module: LayerAttention, layers: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Kaneko and Komachi, equations 4 to 9, for one token: L vectors (D,) to (J d,), and the weights (J, L)."""
    heads, d = module.heads, module.size // module.heads
    concatenated, weights = [], []
    for j in range(heads):
        values, scores = [], []
        for number, h in enumerate(layers):
            of_value = slice(j * d, (j + 1) * d)
            of_key = slice(module.size + j * d, module.size + (j + 1) * d)
            weight, bias = module.weight[number].T, module.bias[number, 0]
            values.append(linear(weight[of_value], bias[of_value], h))  # equation 4
            key = [max(each, each * 0) for each in linear(weight[of_key], bias[of_key], h)]  # equation 5
            score = module.score_bias[number, 0, j]
            for e in range(d):
                score = score + module.score_weight[number, 0, j, e] * key[e]  # equation 6
            scores.append(score)
        shares = softmax(scores)  # equation 7
        concatenated.append(sum(share * value for share, value in zip(shares, values, strict=True)))  # equation 8
        weights.append(torch.stack(shares))
    return torch.cat(concatenated), torch.stack(weights)  # equation 9


def single_head_layer_attention(module: LayerAttention, layers: list[Tensor]) -> Tensor:
    """The same with one head, written without heads."""
    size = module.size
    scores, values = [], []
    for number, h in enumerate(layers):
        both = linear(module.weight[number].T, module.bias[number, 0], h)
        values.append(both[:size])
        scores.append((module.score_weight[number].flatten() * both[size:].clamp(min=0)).sum())
        scores[-1] = scores[-1] + module.score_bias[number].sum()
    return sum(share * value for share, value in zip(softmax(scores), values, strict=True))


def layer_average(module: LayerAverage, layers: list[Tensor]) -> Tensor:
    """The mean over layers of a linear map of each, for one token."""
    mapped = [linear(module.weight[number].T, module.bias[number, 0], h) for number, h in enumerate(layers)]
    return sum(mapped) / len(mapped)
