"""Odd numbers in training, decoding and weights, and data of which little can be learned."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis.strategies import SearchStrategy
from safetensors.torch import load_file, save

from headway.predictors.sequence_predictor import SequencePredictor
from headway.recipe import parse_recipe
from headway.runs.load import load
from headway.training.loop import train
from tools.campaigns.campaign import Campaign
from tools.campaigns.mutations import LINE_ENDS

NAN, INF = math.nan, math.inf
REALS: tuple[Any, ...] = (
    0.5, 1, 0, 0.1, 0.01, 2, 10, 0.999999, 1e-5, 1e-30, 1e-45, 1e3, 1e10, 1e30, 1e38, 1e39, 1e308, -0.0, -1, -1e-9, NAN,
    INF, -INF, True, "1e-3", None,
)  # fmt: skip
WHOLES: tuple[Any, ...] = (
    1, 2, 3, 7, 0, -1, 100, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, 1.0, 1.5, NAN, True, None,
    "2",
)  # fmt: skip
SMALL: tuple[Any, ...] = (1, 2, 3, 8, 0, -1, 10**12, 2**63, 10**30, 1.5, True, None)  # sizes that a model really gets
# Keys of a recipe and their values.
TRAINING: dict[str, tuple[Any, ...]] = {
    "optimizer.learning_rate": REALS,
    "optimizer.warmup": WHOLES,
    "optimizer.schedule": ("constant", "linear", "inverse_sqrt", "noam"),
    "optimizer.epsilon": REALS,
    "optimizer.weight_decay": REALS,
    "optimizer.betas": ([0.9, 0.98], [0, 0], [1, 1], [0.999999999, 0.999999999], [-1, 2], [NAN, 0.5], [0.9]),
    "objective.label_smoothing": REALS,
    "model.dropout": REALS,
    "model.dim": (16, 2, 4, 6, *SMALL),
    "model.heads": SMALL,
    "model.feed_forward": SMALL,
    "model.encoder.layers": SMALL,
    "model.encoder.mixer": tuple(
        {"kind": kind, name: value}
        for kind, name in (("attention", "dropout"), ("attention", "head_dim"), ("ngram", "n"), ("local", "n"))
        for value in (0, 1, 2, 5, 101, 0.5, 1.0, -1, NAN, 10**12)
    ),
    "model.position": (
        "none", "alibi", "t5", "learned", {"kind": "sinusoidal", "arrangement": "halves"},
        {"kind": "rotary", "base": 1e38}, {"kind": "rotary", "base": 0},
        {"kind": "rotary", "share": 0.01}, {"kind": "t5", "buckets": 1}, {"kind": "t5", "max_distance": 1},
    ),
    "model.first_input": ("zero", "bos", "one"),
    "model.max_position": (1, 3, 5, 10**6, *SMALL),
    "vocabulary.kind": ("char", "word", "whitespace", "bpe", "unigram"),
    "vocabulary.size": (64, *WHOLES),
    "data.max_length": WHOLES,
    "data.max_ratio": REALS,
    "training.batch_tokens": WHOLES,
    "training.batch_sentences": WHOLES,
    "training.accumulate": (1, 2, 7, *SMALL),
    "training.clip_norm": REALS,
    "training.precision": ("float32", "bf16", "auto", "float16"),
    "training.seed": WHOLES,
    "training.average.count": (1, 2, 3, *SMALL),
    "training.max_bad_updates": WHOLES,
    "training.patience": WHOLES,
    "training.minutes": (1e-9, *REALS),
    "decoding.length_penalty": REALS,
    "decoding.max_length_ratio": REALS,
    "decoding.beam": (1, 2, 9, 64, 0, -1, 10**12, 1.5, NAN),
}  # fmt: skip
DECODING: dict[str, tuple[Any, ...]] = {
    "beam": (1, 2, 9, 64, 0, -1, 10**12, 1.5, NAN, True),
    "nbest": (1, 2, 4, 0, -1, 10**12, 1.5),
    "length_penalty": REALS,
    "min_length": (0, 1, 3, 30, -1, 10**12, 1.5),
    "max_length": (1, 2, 30, 0, -1, 10**12, 1.5),
    "max_length_ratio": (1.0, 0, 1e-45, 0.5, 3, 1e308, -1, NAN, INF),
    "max_length_offset": (0, 1, 20, -1, 10**12),
    "no_repeat_ngram": (0, 1, 2, 3, 100, -1, 10**12),
    "batch_tokens": WHOLES,
    "sample": (True,),
    "temperature": REALS,
    "top_k": WHOLES,
    "top_p": REALS,
    "seed": WHOLES,
    "max_source_length": WHOLES,
    "truncate": (True,),
}
WEIGHTS = (NAN, INF, -INF, 1e38, -1e38, 1e20, 1e-45, 0.0)
DATA: dict[str, list[tuple[str, str]]] = {
    "words": [
        ("ab cd", "dc ba"),
        ("abc", "cba"),
        ("d", "d"),
        ("a b c d", "d c b a"),
        ("dd cc", "cc dd"),
        ("cab", "bac"),
    ],
    "one-token": [("a", "b")],
    "duplicates": [("ab", "ba")] * 20,
    "one-target": [("a", "x"), ("ab", "x"), ("abc", "x"), ("abcd d", "x")],
    "long": [("ab " * 60, "ba " * 60), ("a", "b" * 100)],
    "unequal": [("a " * 40, "b"), ("b", "a " * 40), ("a b", "b a")],
}
LINES = ["ab cd", "a", "", "zz", "dcba abcd", "a " * 30, "ab cd", "é\x1b"]


@dataclass(frozen=True)
class NumericsCase:
    """Settings, by key, in place of ordinary ones.

    Attributes:
        data: a key of `DATA`.
        training: changes to the recipe; with none of them and the first data, a trained run is used.
        weight: the number of a tensor of the trained weights, and what is put into one or all of its elements.
        decoding: options of prediction.
        precision: of the loaded run.
    """

    data: str = "words"
    training: tuple[tuple[str, Any], ...] = ()
    weight: tuple[int, float, bool] | None = None
    decoding: tuple[tuple[str, Any], ...] = ()
    precision: str = "float32"


def _settings(table: dict[str, tuple[Any, ...]], most: int) -> SearchStrategy[tuple[tuple[str, Any], ...]]:
    key = st.sampled_from(sorted(table)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(table[name])))
    return st.lists(key, max_size=most, unique_by=lambda pair: pair[0]).map(tuple)


class NumericsCampaign(Campaign[NumericsCase]):
    """Trains, loads and predicts: a line of output for each of input and scores that are numbers, or a named error."""

    name = "numerics"
    about = "odd numbers in training, decoding and weights; one-token, equal, long and uneven data"
    quick, together = 20, 10

    def prepare(self, folder: Path) -> None:
        self.folder = folder
        os.environ["HEADWAY_CACHE"] = str(folder / "cache")
        assert train(parse_recipe(self._tree("words", folder)), folder / "run") == 0
        predictor = load(folder / "run", device="cpu")
        assert isinstance(predictor, SequencePredictor)
        predictor.predict(LINES, nbest=2)
        predictor.predict(LINES, sample=True)

    def _tree(self, data: str, folder: Path) -> dict[str, Any]:
        rows = "".join(f"{source}\t{target}\n" for source, target in DATA[data])
        for name in ("train", "dev"):
            (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
        layers = {"layers": 1}
        return {
            "data": {name: {"tsv": str(folder / f"{name}.tsv")} for name in ("train", "dev")},
            "vocabulary": {"kind": "char", "shared": True},
            "model": {
                "dim": 8, "feed_forward": 8, "heads": 2, "dropout": 0.0,
                "encoder": dict(layers), "decoder": dict(layers),
            },
            "optimizer": {"learning_rate": 1e-2, "schedule": "constant", "warmup": 0},
            "training": {
                "updates": 4, "batch_tokens": 256, "checkpoint_every": 2, "dev_metrics": ["chrf"],
                "average": {"count": 2}, "precision": "float32",
            },
            "decoding": {"max_length_offset": 8},
        }  # fmt: skip

    def first(self) -> list[NumericsCase]:
        """Each limit of outputs, and weights of each kind that are no numbers."""
        limits = (
            {"min_length": 1},
            {"max_length": 2},
            {"no_repeat_ngram": 2, "min_length": 9},
        )
        spoilt = [NumericsCase(weight=(5, value, False)) for value in (NAN, INF, -INF)]
        return [*spoilt, *(NumericsCase(decoding=tuple(options.items())) for options in limits)]

    def cases(self) -> SearchStrategy[NumericsCase]:
        some = st.one_of(st.just(()), _settings(TRAINING, 3), _settings(TRAINING, 1))
        weight = st.tuples(st.integers(0, 60), st.sampled_from(WEIGHTS), st.booleans())
        precision = st.sampled_from(("float32",) * 5 + ("bf16", "int8", "auto"))
        none = st.none()
        return st.builds(
            NumericsCase, st.sampled_from(("words", *DATA)), some, st.one_of(none, none, none, weight),
            st.one_of(_settings(DECODING, 3), _settings(DECODING, 1)), precision,
        )  # fmt: skip

    def check(self, case: NumericsCase, folder: Path) -> None:
        run = folder / "run"
        if case.training or case.data != "words":
            tree = self._tree(case.data, folder)
            for key, value in case.training:
                change(tree, key, value)
            assert train(parse_recipe(tree), run) == 0
            check_run(run)
        else:
            shutil.copytree(self.folder / "run", run)
        if case.weight is not None:
            spoil(run, *case.weight)
        predictor = load(run, device="cpu", precision=case.precision)
        assert isinstance(predictor, SequencePredictor)
        assert case.weight is None or math.isfinite(case.weight[1]), "weights that are no numbers are loaded"
        check_outputs(predictor, dict(case.decoding))


def change(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a key of a recipe; None removes it."""
    *path, last = key.split(".")
    for name in path:
        tree = tree.setdefault(name, {})
    if value is None:
        tree.pop(last, None)
    else:
        tree[last] = copy.deepcopy(value)


def check_run(run: Path) -> None:
    """A finished run has weights that are numbers, and metrics that can be read."""
    weights = load_file(run / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in weights.values()), "weights that are no numbers"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["update"] for line in lines] == sorted(line["update"] for line in lines)
    assert json.loads((run / "manifest.json").read_text(encoding="utf-8"))["status"] == "finished"


def spoil(run: Path, number: int, value: float, everywhere: bool) -> None:
    """Put a number into a tensor of the weights, and its new hash where it is compared."""
    weights = load_file(run / "model.safetensors")
    name = sorted(weights)[number % len(weights)]
    tensor = weights[name].clone()
    if everywhere:
        tensor.fill_(value)
    elif tensor.numel():
        tensor.view(-1)[number % tensor.numel()] = value
    content = save({**weights, name: tensor})
    (run / "model.safetensors").write_bytes(content)
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["model_sha256"] = hashlib.sha256(content).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def check_limits(tokens: Sequence[str], options: dict[str, Any]) -> None:
    """An output is as long as it may be, and has no n-gram twice."""
    assert options.get("min_length", 0) <= len(tokens) <= options.get("max_length", INF), f"{len(tokens)} tokens"
    if size := options.get("no_repeat_ngram", 0):
        ngrams = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
        assert len(ngrams) == len(set(ngrams)), f"the same {size} tokens twice"


def check_outputs(predictor: SequencePredictor, options: dict[str, Any]) -> None:
    """As many outputs as lines, each of one line, with scores that are numbers, best first, the same each time."""
    predictions = predictor.predict(LINES, **options)
    assert len(predictions) == len(LINES), "lines are lost"
    count = options.get("nbest", 1)
    for line, prediction in zip(LINES, predictions, strict=True):
        assert len(prediction.hypotheses) == count, "another number of outputs"
        assert not set("".join(hypothesis.text for hypothesis in prediction.hypotheses)) & set(LINE_ENDS)
        scores = [hypothesis.score for hypothesis in prediction.hypotheses]
        assert all(map(math.isfinite, scores)), f"scores {scores}"
        assert options.get("sample") or scores == sorted(scores, reverse=True), "not the best first"
        assert line or not prediction.text
        for hypothesis in prediction.hypotheses if line else ():
            check_limits(hypothesis.tokens, options)
    again = predictor.predict(LINES, **options)
    assert [one.text for one in again] == [one.text for one in predictions], "a second call differs"
    targets = ["ba" for _ in LINES]
    for scored in predictor.score(LINES, targets):
        assert all(value == value and value <= 1e-6 for value in scored.log_probabilities), "no log probabilities"
