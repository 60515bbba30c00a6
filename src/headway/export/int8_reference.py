"""The computation of browser engines in numpy: the expected outputs of an exported student, and its calibration.

Shapes: B sources of one length, S source, D model, K heads, V vocabulary, R rows that are still decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.processing.marian_binary import MOST, Floats, Item, Items, Quantized, embeddings, quantized
from headway.processing.shortlist import END, Shortlist
from headway.tasks.marian_transformer import OUTPUT_BIAS
from headway.tasks.student import EPSILON, factor_name, student_options
from headway.tensors.saturation import EVERY, SHIFT, unsaturated

LONGEST = 256  # tokens of an output
EXACT = 1 << 24  # float32 adds integers exactly up to this sum
SEVEN_BITS = 64  # the largest weight for which no two products saturate
LEAST_SCALE = 0.85  # activations are not scaled below this: 7-bit weights lose less
DEVIATIONS = 1.1  # standard deviations above the mean of the largest activations
TOGETHER, FEWER = 64, 16  # sources per batch; fewer if all logits are kept


class Written(NamedTuple):
    """An output: ids without the end mark, and the log probability of each, and of the end mark if it was written."""

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]


def longest_of(length: int) -> int:
    """The maximum output length for a source of `length` tokens, including its end mark."""
    return min(2 * length + 4, LONGEST)


class Reference:
    """A student as engines compute it: int8 products, summed in integers; all else in float32."""

    def __init__(
        self, items: Mapping[str, Item], where: str, shortlist: Shortlist | None = None, *, shared: bool = True
    ) -> None:
        options = student_options(items, where)
        self.heads, self.layers = options["transformer-heads"], (options["enc-depth"], options["dec-depth"])
        self.items, self.shortlist, self.shared = items, shortlist, shared
        self.floats: dict[str, Floats] = {}
        self.matrices: dict[str, Quantized] = {}
        for name, item in items.items():
            if isinstance(item, Quantized):
                self.matrices[name] = item
            elif not isinstance(item, bytes):
                self.floats[name] = item
        self._wide = {name: self._read(name, matrix) for name, matrix in self.matrices.items()}
        self._shifts = {name: SHIFT * wide.sum(0) for name, wide in self._wide.items()}
        source, self.output = embeddings(items.keys())
        self.size, self.dim = self.matrices[self.output].values.shape
        self._sources, self._targets = (self._vectors(name) for name in (source, self.output))
        self._positions = _positions(LONGEST, self.dim)

    def _vectors(self, embedding: str) -> Floats:
        """The scaled vectors (V, D) of an embedding."""
        return self.matrices[embedding].floats * np.float32(self.dim**0.5)

    def _read(self, name: str, matrix: Quantized) -> NDArray[Any]:
        """The matrix (in, out) in a float type that sums the integers exactly."""
        fits = MOST * MOST * matrix.values.shape[1] < EXACT
        return np.ascontiguousarray(matrix.values.T, dtype=np.float32 if fits else np.float64)

    def translate(self, sources: Sequence[Sequence[int]]) -> list[Written]:
        """The greedy output for each source (ids without the end mark)."""
        outputs: dict[int, Written] = {}
        for rows, ids in _batches(sources):
            outputs |= zip(rows, self._decode(self._encode(ids), ids), strict=True)
        return [outputs[row] for row in range(len(sources))]

    def logits(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, Floats]]:
        """For each source, in any order, its position and the logits (T, V) of each token of its output and the end."""
        for rows, ids in _batches(sources, FEWER):
            lengths = [len(outputs[row]) + 1 for row in rows]
            given = np.array([[*outputs[row], *[END] * (max(lengths) - len(outputs[row]))] for row in rows])
            (means, views), positions = self._start(self._encode(ids)), self._first(max(lengths))
            x: Floats = np.zeros((len(rows), 1, self.dim), np.float32)
            steps = list[Floats]()
            for step in range(max(lengths)):
                steps.append(self._step(x + positions[step], means, views))
                x = self._targets[given[:, step]][:, None]
            for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                yield row, np.stack([logits[place] for logits in steps[:length]])

    def product(self, x: Floats, name: str, bias: str | None = None) -> Floats:
        """(..., out) of x (..., in): round both to integers, multiply, and scale back to floats."""
        factor, wide = self.floats[factor_name(name)][0], self._wide[name]
        rounded = np.clip(np.rint(x * factor), -MOST, MOST).astype(wide.dtype)
        unit = np.float32(1) / (factor * self.matrices[name].factor)
        shift = self._shifts[name]  # engines subtract it in floats, with rounding
        y: Floats = (rounded @ wide + shift).astype(np.float32) * unit
        y += (0 if bias is None else self.floats[bias][0]) - unit * shift.astype(np.float32)
        return y

    def _first(self, length: int) -> Floats:
        """The first positions (L, D)."""
        return self._positions[:length] if length <= LONGEST else _positions(length, self.dim)

    def _encode(self, ids: NDArray[Any]) -> Floats:
        """The encoder's output (B, S, D)."""
        x: Floats = self._sources[ids] + self._first(ids.shape[1])
        for layer in range(1, self.layers[0] + 1):
            name = f"encoder_l{layer}"
            x = self._norm(x + self._attend(x, self._view(x, f"{name}_self"), f"{name}_self"), f"{name}_self_Wo")
            x = self._feed(x, f"{name}_ffn")
        return x

    def _decode(self, memory: Floats, ids: NDArray[Any]) -> list[Written]:
        count, (means, views) = len(ids), self._start(memory)
        allowed = None
        if self.shortlist is not None:
            sources = ids.tolist()
            allowed = np.stack([self.shortlist.allowed(each, self.size, shared=self.shared) for each in sources])
        written: list[list[tuple[int, float]]] = [[] for _ in ids]
        x: Floats = np.zeros((count, 1, self.dim), np.float32)  # the first input is a zero vector
        alive = np.arange(count)
        for step in range(longest_of(ids.shape[1])):
            logits = self._step(x + self._positions[step], means, views)
            if allowed is not None:
                logits = np.where(allowed, logits, -np.inf)
            best = logits.argmax(1)
            largest = logits.max(1)
            scores = -np.log(np.exp(logits - largest[:, None]).sum(1))
            for row, id, score in zip(alive, best.tolist(), scores.tolist(), strict=True):
                written[row].append((id, score))
            going = best != END
            if not going.any():
                break
            if not going.all():
                alive, best = alive[going], best[going]
                means = [mean[going] for mean in means]
                views = [(keys[going], values[going]) for keys, values in views]
                allowed = None if allowed is None else allowed[going]
            x = self._targets[best][:, None]
        return [
            Written(tuple(id for id, _ in each if id != END), tuple(score for _, score in each)) for each in written
        ]

    def _start(self, memory: Floats) -> tuple[list[Floats], list[tuple[Floats, Floats]]]:
        """For each layer of the decoder, the means (B, 1, D) before the first position, and the view of the source."""
        layers = range(1, self.layers[1] + 1)
        views = [self._view(memory, f"decoder_l{layer}_context") for layer in layers]
        return [np.zeros((len(memory), 1, self.dim), np.float32) for _ in layers], views

    def _step(self, x: Floats, means: list[Floats], views: Sequence[tuple[Floats, Floats]]) -> Floats:
        """The logits (R, V) after the inputs x (R, 1, D). The means are replaced."""
        for index, view in enumerate(views):
            name = f"decoder_l{index + 1}"
            gate = (1 / (1 + np.exp(-self.product(x, f"{name}_rnn_Wf", f"{name}_rnn_bf")))).astype(np.float32)
            means[index] = gate * means[index] + (1 - gate) * self.product(x, f"{name}_rnn_W")
            x = self._norm(np.maximum(means[index], 0) + x, f"{name}_rnn_ffn")
            x = self._norm(x + self._attend(x, view, f"{name}_context"), f"{name}_context_Wo")
            x = self._feed(x, f"{name}_ffn")
        return self.product(x[:, 0], self.output, OUTPUT_BIAS)

    def _view(self, x: Floats, name: str) -> tuple[Floats, Floats]:
        """Keys (B, K, d, S) and values (B, K, S, d) of x (B, S, D)."""
        keys, values = (self._heads(self.product(x, f"{name}_W{part}", f"{name}_b{part}")) for part in "kv")
        return keys.swapaxes(2, 3), values

    def _heads(self, x: Floats) -> Floats:
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    def _attend(self, x: Floats, view: tuple[Floats, Floats], name: str) -> Floats:
        """Attention of x (B, T, D) to the keys and values in `view`."""
        keys, values = view
        scores = self._heads(self.product(x, f"{name}_Wq", f"{name}_bq")) @ keys
        scores *= np.float32((self.dim // self.heads) ** -0.5)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        joined = np.ascontiguousarray((weights @ values).swapaxes(1, 2)).reshape(x.shape)
        return self.product(joined, f"{name}_Wo", f"{name}_bo")

    def _feed(self, x: Floats, name: str) -> Floats:
        hidden = np.maximum(self.product(x, f"{name}_W1", f"{name}_b1"), 0)
        return self._norm(x + self.product(hidden, f"{name}_W2", f"{name}_b2"), f"{name}_ffn")

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scale = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(EPSILON))
        y: Floats = self.floats[f"{name}_ln_scale"][0] * centred * scale + self.floats[f"{name}_ln_bias"][0]
        return y


def _positions(length: int, dim: int) -> Floats:
    """(L, D): all sines, then all cosines, of angles that are rounded as in engines."""
    half, channels = dim // 2, np.arange(dim)
    frequencies = (1e-4 ** ((channels % half) / (half - 1))).astype(np.float32)
    offsets = (channels // half * (np.pi / 2)).astype(np.float32)
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies + offsets
    return np.sin(angles.astype(np.float64)).astype(np.float32)


def _batches(sources: Sequence[Sequence[int]], most: int = TOGETHER) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
    """Batches of sources of the same length, which avoids padding: their positions, and their ids with the end mark."""
    rows_by_length = defaultdict[int, list[int]](list)
    for row, source in enumerate(sources):
        rows_by_length[len(source)].append(row)
    for rows in rows_by_length.values():
        for some in (rows[start : start + most] for start in range(0, len(rows), most)):
            yield some, np.array([[*sources[row], END] for row in some])


class Partial(Reference):
    """A student with some of the roundings of an engine.

    Args:
        items: as of `Reference`.
        where: the file, for messages.
        shortlist: as of `Reference`.
        shared: as of `Reference`.
        floats: the matrices that are not rounded, as of `student_items`.
        activations: whether the inputs of products are rounded.
    """

    def __init__(
        self,
        items: Mapping[str, Item],
        where: str,
        shortlist: Shortlist | None = None,
        *,
        shared: bool = True,
        floats: Mapping[str, Floats] | None = None,
        activations: bool = False,
    ) -> None:
        self._unrounded, self._activations = floats or {}, activations
        super().__init__(items, where, shortlist, shared=shared)

    def _vectors(self, embedding: str) -> Floats:
        return np.ascontiguousarray(self._wide[embedding].T) * np.float32(self.dim**0.5)

    def _read(self, name: str, matrix: Quantized) -> NDArray[Any]:
        return np.ascontiguousarray(self._unrounded.get(name, matrix.floats).T)

    def product(self, x: Floats, name: str, bias: str | None = None) -> Floats:
        if self._activations:
            factor = self.floats[factor_name(name)][0]
            x = (np.clip(np.rint(x * factor), -MOST, MOST) / factor).astype(np.float32)
        y: Floats = x @ self._wide[name]
        return y if bias is None else y + self.floats[bias][0]


class Calibration(Partial):
    """A student with rounded weights, which records the activations that each matrix is multiplied with.

    Attributes:
        largest: by matrix, the largest activation of each position.
        rows: by matrix, the activations (R, in) of some positions.
    """

    def __init__(self, items: Items, where: str) -> None:
        super().__init__(items, where)
        self.largest = defaultdict[str, list[float]](list)
        self.rows = defaultdict[str, list[Floats]](list)

    def product(self, x: Floats, name: str, bias: str | None = None) -> Floats:
        rows = x.reshape(-1, x.shape[-1])
        first = -len(self.largest[name]) % EVERY
        self.largest[name] += np.abs(rows).max(1).tolist()
        self.rows[name].append(rows[first::EVERY])
        return super().product(x, name, bias)


def matrices_of(items: Mapping[str, Item]) -> dict[str, Quantized]:
    return {name: item for name, item in items.items() if isinstance(item, Quantized)}


def calibrated(items: Items, floats: Mapping[str, Floats], sources: Sequence[Sequence[int]], *, largest: bool) -> Items:
    """The items with the factors of activations, measured while sources are translated.

    Processors that add two products in 16 bits must not saturate. For that, activations are scaled down or, if they
    would lose too much, the matrix gets seven bits.

    Args:
        items: the items without factors.
        floats: the matrices before rounding.
        sources: ids, without end marks.
        largest: take the largest activation of all; else the mean of each position's largest, plus 1.1 deviations.
    """
    notes, found = Calibration(items, "the student"), dict(items)
    notes.translate(sources)
    for name, matrix in matrices_of(items).items():
        if name not in notes.largest:  # the source's own embedding, which is only read
            continue
        maxima = np.array(notes.largest[name])
        bound = maxima.max() if largest else maxima.mean() + DEVIATIONS * maxima.std()
        factor = MOST / max(float(bound), 1e-6)
        rounded = np.clip(np.rint(np.concatenate(notes.rows[name]) * factor), -MOST, MOST)
        scale, narrow = unsaturated(rounded, matrix.values), quantized(floats[name], SEVEN_BITS)
        if scale < LEAST_SCALE or np.allclose(
            narrow.floats, floats[name], rtol=0, atol=1e-6 * np.abs(floats[name]).max()
        ):
            found[name], scale = narrow, 1.0  # includes imported matrices of seven bits
        found[factor_name(name)] = np.array([factor * scale], np.float32)
    return found


def saturating(items: Items, sources: Sequence[Sequence[int]]) -> list[str]:
    """The matrices for which some sums of two products, while sources are translated, pass 16 bits."""
    notes = Calibration(items, "the student")
    notes.translate(sources)
    found = list[str]()
    for name, rows in notes.rows.items():
        rounded = np.clip(np.rint(np.concatenate(rows) * notes.floats[factor_name(name)][0]), -MOST, MOST)
        if unsaturated(rounded, notes.matrices[name].values) < 1:
            found.append(name)
    return found
