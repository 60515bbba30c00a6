"""Marian in float64, one position at a time, from the names of its arrays; and small random models of it."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from tests.tasks.marian import SOURCES, TARGETS, sentencepiece_model

Array = NDArray[Any]
DIM, HIDDEN, HEADS, PIECES = 8, 12, 2, 45
POST = {"transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": ""}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
ALL, NONE = {"tied-embeddings-all": True}, {"tied-embeddings-all": False}
TARGET = {**NONE, "tied-embeddings": True}


def options(**changes: Any) -> dict[str, Any]:
    """Options of a model, as Marian writes them."""
    return {
        "type": "transformer", "dim-emb": DIM, "dim-vocabs": [PIECES, PIECES], "enc-depth": 2, "dec-depth": 2,
        "transformer-dim-ffn": HIDDEN, "transformer-heads": HEADS, "transformer-ffn-depth": 2,
        "transformer-ffn-activation": "relu", "transformer-no-projection": False, "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "self-attention", "transformer-guided-alignment-layer": "last",
        "transformer-tied-layers": [], "transformer-train-position-embeddings": False, "skip": False,
        "version": "v1.12.16 abc 2023-02-20", **POST, **ALL, **changes,
    }  # fmt: skip


def random_arrays(given: dict[str, Any], seed: int = 1) -> dict[str, Array]:
    """Arrays of a model, large enough that every part of it counts."""
    random = np.random.default_rng(seed)
    pre, recurrent = given["transformer-preprocess"] == "n", given["transformer-decoder-autoreg"] == "rnn"
    arrays: dict[str, Array] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        arrays[name] = random.normal(0, 0.6, (rows, columns)).astype(np.float32)

    def norm(name: str, suffix: str = "_pre" if pre else "") -> None:
        arrays[f"{name}_ln_scale{suffix}"] = (1 + random.normal(0, 0.3, (1, DIM))).astype(np.float32)
        matrix(f"{name}_ln_bias{suffix}", 1, DIM)

    def attention(name: str) -> None:
        for part in "qkvo":
            matrix(f"{name}_W{part}", DIM, DIM)
            matrix(f"{name}_b{part}", 1, DIM)
        norm(f"{name}_Wo")

    sizes = given["dim-vocabs"]
    if given.get("tied-embeddings-all"):
        matrix("Wemb", sizes[0], DIM)
    else:
        matrix("encoder_Wemb", sizes[0], DIM)
        matrix("decoder_Wemb", sizes[1], DIM)
        if not given.get("tied-embeddings"):
            matrix("decoder_ff_logit_out_Wt", sizes[1], DIM)
    matrix("decoder_ff_logit_out_b", 1, sizes[1])
    for side, depth in (("encoder", given["enc-depth"]), ("decoder", given["dec-depth"])):
        for layer in range(1, depth + 1):
            name = f"{side}_l{layer}"
            if side == "decoder" and recurrent:
                matrix(f"{name}_rnn_W", DIM, DIM)
                matrix(f"{name}_rnn_Wf", DIM, DIM)
                matrix(f"{name}_rnn_bf", 1, DIM)
                norm(f"{name}_rnn" if pre else f"{name}_rnn_ffn")
            else:
                attention(f"{name}_self")
            if side == "decoder":
                attention(f"{name}_context")
            hidden = given["transformer-dim-ffn"]
            matrix(f"{name}_ffn_W1", DIM, hidden)
            matrix(f"{name}_ffn_b1", 1, hidden)
            matrix(f"{name}_ffn_W2", hidden, DIM)
            matrix(f"{name}_ffn_b2", 1, DIM)
            norm(f"{name}_ffn_ffn")
        if pre:
            norm(f"{side}_top", "")
    return arrays


def write_npz(file: Path, arrays: dict[str, Array], given: dict[str, Any]) -> Path:
    """A model as Marian writes it."""
    lines = []
    for key, value in given.items():
        if isinstance(value, list):
            lines.append(f"{key}:" + ("".join(f"\n  - {each}" for each in value) or "\n  []"))
        else:
            lines.append(
                f"{key}: " + ('""' if value == "" else str(value).lower() if value in (True, False) else f"{value}")
            )
    text = "\n".join(lines).encode() + b"\0"
    np.savez(file, **{"special:model.yml": np.frombuffer(text, np.uint8), **arrays})  # type: ignore[arg-type]
    return file


def write_model(folder: Path, seed: int = 1, **changes: Any) -> tuple[Path, dict[str, Array], dict[str, Any]]:
    """A random model in `model.npz`, with `vocab.spm`, `source.spm` and `target.spm` as Marian trains them."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, lines in (("vocab", [*SOURCES, *TARGETS]), ("source", SOURCES), ("target", TARGETS)):
        (folder / f"{name}.spm").write_bytes(marian_pieces(lines))
        sizes[name] = len(SentencePieceProcessor(model_file=str(folder / f"{name}.spm")))
    given = options(**changes)
    names = ("vocab", "vocab") if given["tied-embeddings-all"] else ("source", "target")
    given["dim-vocabs"] = [sizes[name] for name in names]
    arrays = random_arrays(given, seed)
    return write_npz(folder / "model.npz", arrays, given), arrays, given


def write_model_with_table(folder: Path) -> tuple[dict[str, Array], dict[str, Any], list[str]]:
    """As OPUS-MT has it: `opus.npz` and `vocab.yml` for the `source.spm` and `target.spm` that `write_model` wrote."""
    sides = [SentencePieceProcessor(model_file=str(folder / f"{side}.spm")) for side in ("source", "target")]
    known = {side.id_to_piece(id) for side in sides for id in range(2, len(side))}
    tokens = ["</s>", "<unk>", ">>fra<<", *sorted(known), "<pad>"]
    given = options() | {"dim-vocabs": [len(tokens)] * 2}
    arrays = random_arrays(given)
    write_npz(folder / "opus.npz", arrays, given)
    lines = (f"{json.dumps(token, ensure_ascii=False)}: {id}\n" for id, token in enumerate(tokens))
    (folder / "vocab.yml").write_text("".join(lines), encoding="utf-8")
    return arrays, given, tokens


def marian_pieces(lines: Sequence[str]) -> bytes:
    """A unigram model with the end mark as 0 and the unknown token as 1."""
    return sentencepiece_model(list(lines), PIECES, eos_id=0, unk_id=1, bos_id=-1, pad_id=-1)


class Marian:
    """What Marian computes, by the names of its arrays."""

    def __init__(self, arrays: dict[str, Array], given: dict[str, Any]) -> None:
        self.arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self.options, self.pre = given, given["transformer-preprocess"] == "n"
        tied = given.get("tied-embeddings-all")
        self.source = self.arrays["Wemb" if tied else "encoder_Wemb"]
        self.target = self.arrays["Wemb" if tied else "decoder_Wemb"]
        self.output = self.arrays.get("decoder_ff_logit_out_Wt", self.target)

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """(T + 1, V): for each prefix of the target; `source` ends with the end mark."""
        memory = self.encode(source)
        inputs: list[Array | None] = [None, *(self.target[id] for id in target)]
        states: list[list[Array]] = [[] for _ in range(self.options["dec-depth"])]
        return np.stack([self.step(memory, each, place, states) for place, each in enumerate(inputs)])

    def greedy(self, source: Sequence[int], longest: int) -> list[int]:
        """The best ids one after the other, without the end mark."""
        found: list[int] = []
        while len(found) < longest:
            best = int(self.logits(source, found)[-1].argmax())
            if best == 0:
                break
            found.append(best)
        return found

    def encode(self, source: Sequence[int]) -> Array:
        vectors = [self.placed(self.source[id], place) for place, id in enumerate(source)]
        for layer in range(1, self.options["enc-depth"] + 1):
            name = f"encoder_l{layer}"
            read = [self.before(f"{name}_self_Wo", x) for x in vectors]
            vectors = [
                self.after(f"{name}_self_Wo", x, self.attend(f"{name}_self", given, read))
                for x, given in zip(vectors, read, strict=True)
            ]
            vectors = [self.feed_forward(name, x) for x in vectors]
        return np.stack([self.norm("encoder_top", x) if self.pre else x for x in vectors])

    def step(self, memory: Array, vector: Array | None, place: int, states: list[list[Array]]) -> Array:
        x = self.placed(np.zeros(DIM) if vector is None else vector, place)
        for layer, state in enumerate(states, start=1):
            name = f"decoder_l{layer}"
            if self.options["transformer-decoder-autoreg"] == "rnn":
                given = self.before(f"{name}_rnn", x)
                gate = 1 / (1 + np.exp(-(given @ self.arrays[f"{name}_rnn_Wf"] + self.arrays[f"{name}_rnn_bf"][0])))
                last = state[-1] if state else np.zeros(DIM)
                state.append(gate * last + (1 - gate) * (given @ self.arrays[f"{name}_rnn_W"]))
                x = self.after(f"{name}_rnn_ffn", x, np.maximum(state[-1], 0))
            else:
                state.append(self.before(f"{name}_self_Wo", x))
                x = self.after(f"{name}_self_Wo", x, self.attend(f"{name}_self", state[-1], state))
            given = self.before(f"{name}_context_Wo", x)
            x = self.after(f"{name}_context_Wo", x, self.attend(f"{name}_context", given, list(memory)))
            x = self.feed_forward(name, x)
        x = self.norm("decoder_top", x) if self.pre else x
        return self.output @ x + self.arrays["decoder_ff_logit_out_b"][0]

    def placed(self, vector: Array, place: int) -> Array:
        half = DIM // 2
        signal = [math.sin(place * 1e-4 ** ((c % half) / (half - 1)) + (c // half) * math.pi / 2) for c in range(DIM)]
        return vector * math.sqrt(DIM) + np.array(signal)

    def attend(self, name: str, x: Array, read: Sequence[Array]) -> Array:
        def mapped(part: str, vector: Array) -> Array:
            return vector @ self.arrays[f"{name}_W{part}"] + self.arrays[f"{name}_b{part}"][0]

        query, keys, values = mapped("q", x), [mapped("k", each) for each in read], [mapped("v", each) for each in read]
        size, heads = DIM // HEADS, []
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = np.array([query[part] @ key[part] / math.sqrt(size) for key in keys])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            heads.append(sum(weight * value[part] for weight, value in zip(weights, values, strict=True)))
        return mapped("o", np.concatenate(heads))

    def feed_forward(self, name: str, x: Array) -> Array:
        given = self.before(f"{name}_ffn_ffn", x)
        hidden = given @ self.arrays[f"{name}_ffn_W1"] + self.arrays[f"{name}_ffn_b1"][0]
        kind = self.options["transformer-ffn-activation"]
        if kind == "relu":
            active = np.maximum(hidden, 0)
        elif kind == "swish":
            active = hidden / (1 + np.exp(-hidden))
        else:
            active = np.array([each * (1 + math.erf(each / math.sqrt(2))) / 2 for each in hidden])
        written = active @ self.arrays[f"{name}_ffn_W2"] + self.arrays[f"{name}_ffn_b2"][0]
        return self.after(f"{name}_ffn_ffn", x, written)

    def before(self, name: str, x: Array) -> Array:
        return self.norm(name, x, "_pre") if self.pre else x

    def after(self, name: str, x: Array, written: Array) -> Array:
        return x + written if self.pre else self.norm(name, x + written)

    def norm(self, name: str, x: Array, suffix: str = "") -> Array:
        scale, bias = self.arrays[f"{name}_ln_scale{suffix}"][0], self.arrays[f"{name}_ln_bias{suffix}"][0]
        return scale * (x - x.mean()) / math.sqrt(x.var() + 1e-6) + bias
