"""The oracle of recurrent models: one sentence, one time step, one source position at a time, from the equations.

It reads the weights of a model and none of its code. Shapes: B batch, S source, T target, V vocabulary.
"""

import math

import torch
from torch import Tensor

from headway.models.recurrent import Recurrent, RecurrentConfig
from headway.models.recurrent.cells import ChoGru
from headway.tensors.batch import Batch
from tests.reference import cross_attention, softmax

State = list[Tensor]  # h, and the memory cell c of an LSTM


def gru(weights: list[Tensor], x: Tensor, state: State) -> State:
    """Cho et al. (2014), with the reset gate after the product, as cuDNN has it."""
    w, u, b, d = weights
    (h,) = state
    w_r, w_z, w_n = w.chunk(3)
    u_r, u_z, u_n = u.chunk(3)
    b_r, b_z, b_n = b.chunk(3)
    d_r, d_z, d_n = d.chunk(3)
    r = torch.sigmoid(w_r @ x + b_r + u_r @ h + d_r)
    z = torch.sigmoid(w_z @ x + b_z + u_z @ h + d_z)
    n = torch.tanh(w_n @ x + b_n + r * (u_n @ h + d_n))
    return [(1 - z) * n + z * h]


def cho_gru(weights: list[Tensor], x: Tensor, state: State) -> State:
    """Cho et al. (2014), equations 5 to 8: the reset gate comes before the product."""
    w, b, u_gates, u = weights
    (h,) = state
    w_r, w_z, w_n = w.chunk(3)
    b_r, b_z, b_n = b.chunk(3)
    u_r, u_z = u_gates.chunk(2)
    r = torch.sigmoid(w_r @ x + u_r @ h + b_r)
    z = torch.sigmoid(w_z @ x + u_z @ h + b_z)
    return [z * h + (1 - z) * torch.tanh(w_n @ x + u @ (r * h) + b_n)]


def lstm(weights: list[Tensor], x: Tensor, state: State) -> State:
    """Hochreiter and Schmidhuber (1997), with a forget gate."""
    w, u, b, d = weights
    h, c = state
    i, f, g, o = (w @ x + b + u @ h + d).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return [torch.sigmoid(o) * torch.tanh(c), c]


def weights_of(cells: torch.nn.RNNBase | ChoGru, layer: int = 0) -> list[Tensor]:
    if isinstance(cells, ChoGru):
        inputs = cells.inputs[layer]
        return [inputs.weight, inputs.bias, cells.gates[layer].weight, cells.contents[layer].weight]
    return [getattr(cells, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def cell_of(config: RecurrentConfig):
    return {"gru": gru, "cho_gru": cho_gru, "lstm": lstm}[config.cell]


def read(config: RecurrentConfig, model: Recurrent, words: list[Tensor]) -> tuple[list[Tensor], list[State]]:
    """The encoder's top states for each word, in their order, and the last state of each layer."""
    if config.encoder.reverse:
        words = [*reversed(words[:-1]), words[-1]]
    directions = 2 if config.encoder.bidirectional else 1
    size, count = config.encoder.hidden // directions, 2 if config.cell == "lstm" else 1
    last = []
    for layer in range(config.encoder.layers):
        ways, ends = [], []
        for backwards in range(directions):
            weights = weights_of(model.encoder.layers[layer][backwards])
            state = [torch.zeros(size, dtype=words[0].dtype) for _ in range(count)]
            outputs = []
            for word in reversed(words) if backwards else words:
                state = cell_of(config)(weights, word, state)
                outputs.append(state[0])
            ways.append(outputs[::-1] if backwards else outputs)
            ends.append(state)
        words = [torch.cat(parts) for parts in zip(*ways, strict=True)]
        last.append([torch.cat(parts) for parts in zip(*ends, strict=True)])
    if config.encoder.reverse:
        words = [*reversed(words[:-1]), words[-1]]
    return words, last


def first_state(config: RecurrentConfig, model: Recurrent, last: list[State]) -> list[State]:
    """The decoder's state before the first word, layer by layer."""
    if config.decoder.start == "copy":
        return last
    layers, size = config.decoder.layers, config.decoder.hidden
    states: list[State] = [[] for _ in range(layers)]
    for number, (top, layer) in enumerate(zip(last[-1], model.decoder.start.maps, strict=True)):
        backward = top[len(top) // 2 :] if config.encoder.bidirectional else top
        projected = layer.weight @ backward + layer.bias
        for place in range(layers):
            part = projected[place * size : (place + 1) * size]
            states[place].append(part.tanh() if number == 0 else part)
    return states


def score(config: RecurrentConfig, model: Recurrent, s: Tensor, h: Tensor, position: int) -> Tensor:
    """How well position j, with the encoder's state s, suits the decoder's state h."""
    unscaled = unscaled_score(config, model, s, h, position)
    return unscaled / math.sqrt(len(h)) if config.attention.scaled else unscaled


def unscaled_score(config: RecurrentConfig, model: Recurrent, s: Tensor, h: Tensor, position: int) -> Tensor:
    kind, module = config.attention.score, model.decoder.attention.score
    if kind == "dot":
        return s @ h
    if kind == "general":
        return s @ (module.source.weight.t() @ h)
    if kind == "location":
        return module.weight[position] @ h
    joined = torch.cat([module.source.weight, module.target.weight], 1) @ torch.cat([s, h])
    return module.v.weight[0] @ joined.tanh()


def window(config: RecurrentConfig, model: Recurrent, h: Tensor, time: int, length: int) -> list[Tensor | None]:
    """The factor of each position's weight, None where it is out of sight."""
    kind, width = config.attention.window, config.attention.width
    one = torch.ones((), dtype=h.dtype)
    if kind == "global":
        return [one] * length
    if kind == "local-m":
        return [one if abs(j - min(time, length - 1)) <= width else None for j in range(length)]
    module = model.decoder.attention.window
    p = length * torch.sigmoid(module.v.weight[0] @ torch.tanh(module.hidden.weight @ h))
    deviation = width / 2
    return [
        torch.exp(-((j - p) ** 2) / (2 * deviation**2)) if abs(j - p.item()) <= width else None for j in range(length)
    ]


def attend(
    config: RecurrentConfig, model: Recurrent, source: list[Tensor], h: Tensor, time: int, place: int
) -> tuple[Tensor, list[Tensor], int]:
    """The context, the weights of all positions, and the position chosen by hard attention."""
    if config.attention.score_kind() == "multi_head":
        return (*multi_head(model, source, h), place)
    factors = window(config, model, h, time, len(source))
    if config.attention.kind == "monotonic":
        factors = [factor if j >= place else None for j, factor in enumerate(factors)]
    seen = [j for j, factor in enumerate(factors) if factor is not None]
    shares = softmax([score(config, model, source[j], h, j) for j in seen])
    weights = [torch.zeros((), dtype=h.dtype) for _ in source]
    for j, share in zip(seen, shares, strict=True):
        weights[j] = share * factors[j]
    if config.attention.kind != "soft":
        place = max(seen, key=lambda j: weights[j].item())
        weights = [torch.ones_like(each) if j == place else torch.zeros_like(each) for j, each in enumerate(weights)]
    return sum(weight * s for weight, s in zip(weights, source, strict=True)), weights, place


def multi_head(model: Recurrent, source: list[Tensor], h: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The context, and the weights of each source position, those of every head one below the other."""
    memory, mask = torch.stack(source)[None], torch.ones(1, len(source), dtype=torch.bool)
    values, weights = cross_attention(model.decoder.attention, h[None, None], memory, mask)
    return values[0, 0], list(weights[0, :, 0].T)


def readout(config: RecurrentConfig, model: Recurrent, h: Tensor, context: Tensor | None, word: Tensor) -> Tensor:
    if config.readout.kind == "state":
        return h
    parts, weight = [h] if context is None else [context, h], model.decoder.readout.weight.weight
    if config.readout.kind == "tanh":
        return torch.tanh(weight @ torch.cat(parts))
    both = weight @ torch.cat([*parts, word])
    return torch.stack([torch.maximum(both[2 * i], both[2 * i + 1]) for i in range(len(both) // 2)])


def sentence(config: RecurrentConfig, model: Recurrent, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
    """Logits (T, V) and weights (T, S), or (T, S, K) of many heads, for one pair without padding."""
    scale = math.sqrt(config.dim) if config.scale_embeddings else 1.0
    embedded = [model.source_embedding.tokens.weight[id] * scale for id in source]
    words = [model.target_embedding.tokens.weight[id] * scale for id in target]
    values, last = read(config, model, embedded)
    end = last[-1][0]
    states = first_state(config, model, last)
    attention, place, fed = config.attention, 0, torch.zeros(model.decoder.readout.size, dtype=embedded[0].dtype)
    logits, rows = [], []
    for time, word in enumerate(words):
        context, x, previous = None, word, states[-1][0]
        if attention.kind == "last":  # Cho et al. (2014), section 2.2: c is the last state, whatever the time
            context = end
        elif attention.kind != "none" and attention.timing == "bahdanau":
            context, weights, place = attend(config, model, values, states[-1][0], time, place)
        if context is not None and attention.timing == "bahdanau":
            x = torch.cat([word, context])
        if attention.input_feeding:
            x = torch.cat([word, fed])
        for layer in range(config.decoder.layers):
            states[layer] = cell_of(config)(weights_of(model.decoder.cells, layer), x, states[layer])
            x = states[layer][0]
        if attention.kind not in ("last", "none") and attention.timing == "luong":
            context, weights, place = attend(config, model, values, x, time, place)
        fed = readout(config, model, previous if config.readout.state == "previous" else x, context, word)
        logits.append(model.projection.weight @ fed)
        if attention.kind not in ("last", "none"):
            rows.append(torch.stack(weights))
    return torch.stack(logits), torch.stack(rows) if rows else None


def recurrent(config: RecurrentConfig, model: Recurrent, batch: Batch) -> list[tuple[Tensor, Tensor | None]]:
    """`sentence` for each row of a batch."""
    return [
        sentence(config, model, batch.source[row][batch.source_mask[row]], batch.target_input[row][target])
        for row, target in enumerate(batch.target_mask)
    ]
