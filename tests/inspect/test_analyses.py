"""Figures over a corpus: sums against slow loops, every kind of model, the numbers beside the pictures."""

import csv
import gc
import json
import math
import pickle
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.inspect.analyses import (
    ContributionTotals,
    CorpusAnalysis,
    EntropyTotals,
    OffsetTotals,
    RelativePositionAnalysis,
    analyse,
    even_shares,
    within,
)
from headway.inspect.capture import LayerContributions, ReadOptions, read
from headway.inspect.inspect_options import SPAN
from headway.inspect.inspection import maps_of
from headway.inspect.layers import LayerTotals
from headway.metrics import build_metric
from headway.mixers import Span
from headway.models import build_model, model_section
from headway.pages import charts
from headway.predictors.captured_attention import AttentionName
from headway.predictors.output import Example
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.tasks import build_task
from tests.conftest import Command, Reversal

NGRAM = {"kind": "ngram", "n": 2, "global_context": True}
SMALL = {"dim": 16, "feed_forward": 16, "heads": 2}
SIGNED = {"layers": 2, "mixer": [{"kind": "linear", "gate": "vector"}, "delta"]}
MODELS = {
    "signed": SMALL | {"kind": "transformer", "encoder": SIGNED, "decoder": SIGNED},
    "mixed": SMALL | {
        "kind": "transformer", "encoder": {"layers": 2, "mixer": [NGRAM, "attention"]},
        "decoder": {"layers": 2, "mixer": [{"kind": "nplm", "n": 2, "blocks": 1, "block_size": 2}, "local"]},
    },
    "decoder_only": SMALL | {"kind": "decoder_only", "decoder": {"layers": 2}},
    "window below": SMALL | {
        "kind": "transformer", "encoder": {"layers": 2, "mixer": [{"kind": "local", "n": 2}, "attention"]},
        "decoder": {"layers": 1},
    },
    "recurrent": {"kind": "recurrent", "dim": 8, "encoder": {"hidden": 8}, "decoder": {"hidden": 8}},
    "no attention": {
        "kind": "recurrent", "dim": 8, "encoder": {"hidden": 8}, "decoder": {"hidden": 8},
        "attention": {"kind": "none"}, "readout": "state",
    },
    "over depth": SMALL | {
        "kind": "transformer", "encoder": {"layers": 2, "residual": "attention"},
        "decoder": {"layers": 1, "residual": {"kind": "attention", "over": "blocks"}},
    },
    "learned positions": SMALL | {"kind": "transformer", "position": "learned", "max_position": 6},
}  # fmt: skip


def untrained(predictor: SequencePredictor, name: str) -> SequencePredictor:
    """Another model in the place of the predictor's."""
    recipe = predictor.recipe.model_copy(update={"model": model_section(MODELS[name])})
    torch.manual_seed(1)
    size = len(predictor.source.vocabulary)
    model = build_model(recipe.model, size, size, True).eval()
    return SequencePredictor([Run(recipe, predictor.source, predictor.target, model)], predictor.device)


def analysis_of(predictor: SequencePredictor, *files: Path) -> CorpusAnalysis:
    analysis = CorpusAnalysis(build_metric("exact_match"), 5)
    corpus = build_task("translation").given_test_set(predictor.recipe, files[:1], *files[1:])
    analyse(predictor, corpus, analysis, ReadOptions(hypotheses=False, contributions=True))
    return analysis


def draw(analysis: CorpusAnalysis, folder: Path, *names: str) -> None:
    """Write the charts with these names alone: drawing takes most of the time."""
    charts = {chart.name: chart for each in analysis.analyses for chart in each.result()}
    for name in names:
        charts[name].write(folder, "")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_command_draws_dev_and_its_numbers_are_those_of_the_weights(
    reversal: Reversal, predictor: SequencePredictor, run_headway: Command, tmp_path: Path
) -> None:
    ended = run_headway("inspect", "figures", reversal.run, "--output", tmp_path / "figures", "--within", "2")
    assert ended.code == 0, ended.err
    names = {"entropy", "quality-by-length"}
    names |= {f"{name}-{stack}" for name in ("relative-position", "within") for stack in ("encoder", "decoder")}
    suffixes = ("png", "svg", "csv")
    found = {path.name for path in (tmp_path / "figures").iterdir()}
    assert found == {f"{name}.{suffix}" for name in names for suffix in suffixes}
    assert (tmp_path / "figures" / "entropy.png").read_bytes().startswith(b"\x89PNG")
    assert "16 of 16 sentences read" in ended.out

    dev = reversal.words[:16]
    forced = predictor.force(dev, [word[::-1] for word in dev], capture="all")
    slow = np.zeros((2, 2 * SPAN + 1))
    queries = 0
    for each in forced:
        weights = each.attention["decoder.2.self"]
        queries += weights.shape[1]
        for head, t, s in np.ndindex(weights.shape):
            slow[head, s - t + SPAN] += weights[head, t, s]
    shares = {
        (row["head"], row["offset"]): float(row["share"])
        for row in rows(tmp_path / "figures" / "relative-position-decoder.csv")
        if row["attention"] == "decoder.2.self"
    }
    for offset in range(-SPAN, SPAN + 1):
        both = slow[:, offset + SPAN] / queries
        assert [shares["1", str(offset)], shares["2", str(offset)]] == pytest.approx(both, abs=1e-5)
        assert shares["mean", str(offset)] == pytest.approx(both.mean(), abs=1e-5)
    inside = slow[:, SPAN - 1 : SPAN + 2].sum() / queries / 2
    assert f" {100 * inside:.1f} " in next(
        line for line in ended.out.splitlines() if line.startswith("decoder layer 2, self")
    )
    (quality,) = rows(tmp_path / "figures" / "quality-by-length.csv")  # every source is one word
    assert (quality["segments"], quality["exact_match"]) == ("16", "100")


def test_files_are_read_with_references_and_without(
    reversal: Reversal, predictor: SequencePredictor, run_headway: Command, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(charts, "panel_chart", lambda panels, path, **_: path.touch())  # numbers alone are looked at
    (tmp_path / "source").write_text("abc\n\nabcd abcd\n", encoding="utf-8")
    (tmp_path / "target").write_text("cba\nb\ndcba dcba\n", encoding="utf-8")
    given = ("--output", tmp_path / "out", "--json", "--input", tmp_path / "source")
    own = run_headway("inspect", "figures", reversal.run, *given)
    assert own.code == 0, own.err
    content = json.loads(own.out)
    assert (content["sentences"], content["read"], content["window"]) == (3, 2, 5)
    assert not (tmp_path / "out" / "quality-by-length.csv").exists()
    assert len(content["files"]) == 15
    found = predictor.predict(["abc", "abcd abcd"], capture="all")
    queries = [row for each in found for row in each.attention["decoder.2.cross"][0]]
    bits = [sum(-p * np.log2(p) for p in row if p > 0) for row in queries]
    assert content["attention"]["decoder.2.cross"]["entropy_by_head"][0] == pytest.approx(np.mean(bits), abs=1e-5)
    forced = run_headway("inspect", "figures", reversal.run, *given, "--reference", tmp_path / "target")
    assert json.loads(forced.out)["attention"]["decoder.1.cross"] != content["attention"]["decoder.1.cross"]
    assert [row["segments"] for row in rows(tmp_path / "out" / "quality-by-length.csv")] == ["1", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--output", "out", "--within", "22"), "--within.*less than or equal to 21"),
        (("--output", "out", "--reference", "x"), "--reference: references need their sources"),
        (("--output", "out", "--input", "x"), "--input: there is no such file; received 'x'"),
        (("--output", "out", "--input", "empty"), "--input: there is nothing to read: every line is empty"),
        (("--output", "out", "--input", "empty", "--reference", "three"), "this line has no partner"),
    ],
)
def test_users_mistakes(
    arguments: tuple[str, ...], message: str, reversal: Reversal, run_headway: Command,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n \n")
    Path("three").write_text("a\na\na\n")
    ended = run_headway("inspect", "figures", reversal.run, *arguments)
    assert ended.code == 2
    assert re.search(message, ended.err), ended.err
    assert not Path("out").exists()


def test_layers_without_weights_have_their_contributions(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "mixed"))
    assert list(analysis.contributions.totals) == ["encoder.1.self", "decoder.1.self"]
    assert set(analysis.relative.totals) == {"encoder.2.self", "decoder.2.self"}
    said = analysis.text(quality=False)
    assert "encoder layer 1, self: no weights; largest contributions:" in said
    assert "; largest gradient x input: offset " in said
    assert "nothing" not in said
    draw(analysis, tmp_path, "contributions-encoder", "contributions-decoder")
    spans = rows(tmp_path / "contributions-encoder.csv")
    assert [row["part"] for row in spans] == ["-1", "0", "+1", "global"] * 2
    assert {row["layer"] for row in spans} == {"encoder.1.self"}
    assert {row["part"] for row in rows(tmp_path / "contributions-decoder.csv")} == {"-1", "0", "-3..-2"}
    drawn = (tmp_path / "contributions-encoder.svg").read_text()
    for text in ("global", "encoder: norm of the contribution"):
        assert f"<!-- {text} -->" in drawn


def test_attention_over_depth_is_drawn_like_that_over_layers(predictor: SequencePredictor, tmp_path: Path) -> None:
    deep = untrained(predictor, "over depth")
    analysis = analysis_of(deep)
    assert not any(AttentionName.parse(name).to_layers for name in analysis.entropies.totals)
    draw(analysis, tmp_path, "encoder-layer-weights", "decoder-layer-weights")
    found = [(int(row["sublayer"]), int(row["output"]), float(row["mean"])) for row in rows(
        tmp_path / "encoder-layer-weights.csv")]  # fmt: skip
    # The queries of a new model are zero: plain means over 1 to 5 outputs.
    assert [share for *_, share in found] == pytest.approx(
        [1 / sublayer if output < sublayer else 0 for sublayer in range(1, 6) for output in range(5)]
    )
    assert "<!-- sublayer 5 -->" in (tmp_path / "encoder-layer-weights.svg").read_text()
    decoder = rows(tmp_path / "decoder-layer-weights.csv")
    assert [float(row["mean"]) for row in decoder] == pytest.approx([1, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    (prediction,) = deep.predict(["ab"], capture="*.layers")
    assert prediction.attention.columns["encoder.layers"] == [
        "embeddings", "output 1", "output 2", "output 3", "output 4"
    ]  # fmt: skip
    assert prediction.attention["encoder.layers"].shape == (5, len(prediction.attended), 5)
    assert {each.title for each in maps_of(next(read(deep, [Example("ab")], ReadOptions())))} >= {"Encoder: depth"}


def test_a_decoder_only_model_is_one_sequence_with_layers_from_one(
    predictor: SequencePredictor, tmp_path: Path
) -> None:
    analysis = analysis_of(untrained(predictor, "decoder_only"))
    draw(analysis, tmp_path, "relative-position-decoder", "entropy")
    drawn = (tmp_path / "relative-position-decoder.svg").read_text()
    assert [f"<!-- layer {layer} -->" in drawn for layer in range(4)] == [False, True, True, False]
    assert {row["attention"] for row in rows(tmp_path / "entropy.csv")} >= {"decoder.1.cross", "decoder.2.self"}
    (chart,) = analysis.entropies.result()
    assert [panel.title for panel in chart.panels] == ["decoder, self", "decoder, cross"]
    assert all([x for x, _ in panel.lines["uniform attention"]] == [1, 2] for panel in chart.panels)
    titles = [row[0] for row in analysis.table().rows]
    assert sorted(titles) == [f"decoder layer {layer}, {kind}" for layer in (1, 2) for kind in ("cross", "self")]
    assert set(analysis.relative.totals) == {"decoder.1.self", "decoder.2.self"}
    shares = analysis.relative.totals["decoder.1.self"].shares()
    assert shares.sum(1) == pytest.approx(1, abs=1e-5)
    assert (shares[:, SPAN + 2 :] == 0).all()


def test_even_weights_are_those_of_the_layer_that_sees_furthest(predictor: SequencePredictor) -> None:
    totals = analysis_of(untrained(predictor, "window below")).relative.totals
    encoder = [totals[f"encoder.{layer}.self"] for layer in (1, 2)]
    near, far = (total.even_shares() for total in encoder)
    assert within(near, 2) == pytest.approx(1)
    assert within(far, 2) < 0.9
    np.testing.assert_array_equal(even_shares(encoder), far)
    analysis = RelativePositionAnalysis(2)
    analysis.totals = {name: total for name, total in totals.items() if name.startswith("encoder")}
    panel = analysis.result()[0].panels[0]
    assert dict(panel.lines["uniform attention"])[0] == pytest.approx(100 * far[SPAN + 1])


def test_the_figures_of_signed_weights_say_so(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "signed"))
    said = "encoder layer 1, self; encoder layer 2, self; decoder layer 1, self; decoder layer 2, self"
    assert analysis.table().notes[-1] == f"signed weights count by their absolute values: {said}"
    shares = ("relative-position-encoder", "within-decoder")
    draw(analysis, tmp_path, *shares, "entropy")
    for name in shares:
        assert "<!-- share of the absolute weight (%) -->" in (tmp_path / f"{name}.svg").read_text()
    entropy = (tmp_path / "entropy.svg").read_text()
    assert entropy.count("<!-- entropy of absolute weights (bits) -->") == 2  # and cross-attention as ever
    assert entropy.count("<!-- entropy (bits) -->") == 1


def test_a_model_without_self_attention_is_told(predictor: SequencePredictor, tmp_path: Path) -> None:
    analysis = analysis_of(untrained(predictor, "recurrent"))
    assert list(analysis.entropies.totals) == ["decoder.1.cross"]
    assert "no self-attention and no n-grams: nothing by relative position" in analysis.text(quality=True)
    assert {path.stem for path in analysis.write(tmp_path)} == {"entropy"}
    silent = analysis_of(untrained(predictor, "no attention"))
    assert "this model has no attention: no entropy" in silent.text(quality=True)
    assert silent.write(tmp_path) == []


def test_pairs_that_are_longer_than_the_positions_are_left_out(predictor: SequencePredictor, tmp_path: Path) -> None:
    short = untrained(predictor, "learned positions")  # at most five pieces, of which the first is a mark
    assert short.can_read("abcd", "abcd")
    assert not short.can_read("abcde", "abcd")
    assert not short.can_read("abcd", "abcde")
    for name, lines in (("source", ["abcd", "abcde", "a"]), ("target", ["a", "a", "abcde"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    analysis = analysis_of(short, tmp_path / "source", tmp_path / "target")
    assert (analysis.examples, analysis.read) == (3, 1)


def test_a_few_examples_at_a_time_are_in_memory(predictor: SequencePredictor, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("abcd\n" * 300)
    corpus = build_task("translation").given_test_set(predictor.recipe, [tmp_path / "source"])
    assert corpus.size == 300
    alive: list[weakref.ref] = []
    for captured in read(predictor, corpus.examples, ReadOptions()):
        alive.append(weakref.ref(captured.views[0]))
        if len(alive) % 100 == 0:
            gc.collect()
            assert sum(view() is not None for view in alive) <= 64
    assert len(alive) == 300


LENGTHS = (3, 1, 7, 26)


def corpus(causal: bool, seed: int = 1) -> list[np.ndarray]:
    """Self-attention (2, L, L) of sentences, some of it on nothing but the query itself."""
    random, found = np.random.default_rng(seed), []
    for length in LENGTHS:
        weights = random.random((2, length, length)) ** 3
        if causal:
            weights = np.tril(weights)
        weights /= weights.sum(2, keepdims=True)
        weights[1, 0] = np.eye(length)[0]
        found.append(weights.astype(np.float32))
    return found


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_equal_loops(causal):
    totals, sentences = OffsetTotals(2), corpus(causal)
    for weights in sentences:
        totals.add(weights)
    queries = sum(LENGTHS)
    for head in range(2):
        slow, even = {}, {}
        for weights in sentences:
            length = weights.shape[1]
            for t in range(length):
                for s in range(t + 1 if causal else length):
                    offset = max(-SPAN - 1, min(SPAN + 1, s - t))
                    slow[offset] = slow.get(offset, 0) + float(weights[head, t, s]) / queries
                    even[offset] = even.get(offset, 0) + 1 / (t + 1 if causal else length) / queries
        for offset in range(-SPAN - 1, SPAN + 2):
            assert totals.shares()[head, offset + SPAN + 1] == pytest.approx(slow.get(offset, 0), abs=1e-7)
            assert totals.even_shares()[offset + SPAN + 1] == pytest.approx(even.get(offset, 0), abs=1e-7)
        for n in (1, 2, 5, SPAN + 1):
            inside = sum(share for offset, share in slow.items() if abs(offset) < n)
            assert within(totals.shares(), n)[head] == pytest.approx(inside, abs=1e-6)
    assert totals.shares().sum(1) == pytest.approx(1, abs=1e-6)
    assert slow[-SPAN - 1] > 0  # some of it is further off than is counted one by one


def test_entropies_equal_loops():
    totals, sentences = EntropyTotals(2), corpus(causal=True)
    # Rows that give a part of their weight, or nothing, to these keys, as a decoder-only model's do to the source.
    sentences.append(np.array([[[0.1, 0.3], [0.0, 0.0]], [[0.0, 0.5], [0.2, 0.2]]], dtype=np.float32))
    for weights in sentences:
        totals.add(weights)
    for head in range(2):
        bits = []
        for weights in sentences:
            for row in weights[head].astype(float):
                if row.sum() > 0:
                    bits.append(sum(-p / row.sum() * math.log2(p / row.sum()) for p in row if p > 0))
        assert totals.mean()[head] == pytest.approx(sum(bits) / len(bits), abs=1e-6)
    assert not totals.signed
    full = EntropyTotals(3)
    full.add(np.full((3, 5, 8), 1 / 8))
    assert full.mean() == pytest.approx(3)
    assert full.even_mean() == pytest.approx(3)


@pytest.mark.parametrize("make", [OffsetTotals, EntropyTotals])
def test_signed_weights_count_as_shares_of_their_absolute_values(make):
    signed, plain, random = make(2), make(2), np.random.default_rng(2)
    for weights in corpus(causal=True):
        plain.add(weights)
        signs, sizes = random.choice([-1, 1], weights.shape), random.uniform(0.1, 9, (*weights.shape[:2], 1))
        signed.add((weights * signs * sizes).astype(np.float32))
    assert (signed.signed, plain.signed) == (True, False)
    for own, other in zip(numbers_of(signed), numbers_of(plain), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-7)


def numbers_of(totals: OffsetTotals | EntropyTotals) -> tuple[object, object]:
    if isinstance(totals, OffsetTotals):
        return totals.shares(), totals.even_shares()
    return totals.mean(), totals.even_mean()


def contribution(length: int, seed: int) -> LayerContributions:
    random, shape = np.random.default_rng(seed), (2, length, 3)
    parts = (Span.of(-1), Span.of(0), Span.of(1))
    return LayerContributions(["x"] * length, parts, random.random(shape), random.standard_normal(shape))


def test_parts_equal_loops():
    found = [contribution(length, length) for length in LENGTHS]
    totals = ContributionTotals(2, found[0].spans)
    for each in found:
        totals.add(each)
    norm, gradient = totals.means()
    for head in range(2):
        for place in range(3):
            rows = [(each, t) for each in found for t in range(len(each.tokens))]
            slow = sum(float(each.norm[head, t, place]) for each, t in rows) / len(rows)
            assert norm[head, place] == pytest.approx(slow)
            slow = sum(abs(float(each.gradient_input[head, t, place])) for each, t in rows) / len(rows)
            assert gradient[head, place] == pytest.approx(slow)


def test_layers_equal_all_words_at_once():
    random, totals = np.random.default_rng(1), LayerTotals()
    weights, rows = [], []
    for pieces, first in ((6, [1, 2, 4]), (3, [1]), (2, []), (9, [1, 3, 4, 7])):
        attention = random.dirichlet(np.ones(pieces), (2, 4, pieces)).astype(np.float32)
        of_layers = (0.5 + 1e-4 * random.random((len(first), 3, 2))).astype(np.float32)
        totals.add(attention, first, of_layers)
        weights += list(of_layers.astype(np.float64))
        for word, place in enumerate(first):
            mean = attention[:, :, place].astype(np.float64).mean(1)
            shares = of_layers[word].astype(np.float64).mean(0)
            rows.append([*(np.std(mean[layer]) for layer in range(2)), np.std(shares @ mean)])
    found, evenness = totals.weights(), totals.evenness()
    np.testing.assert_allclose(found.mean, np.mean(weights, 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, np.std(weights, 0), rtol=1e-9)
    first, last, mixed = np.mean(rows, 0)
    assert (evenness.layers, evenness.last, evenness.mixed) == (
        [pytest.approx(first), pytest.approx(last)], pytest.approx(last), pytest.approx(mixed)
    )  # fmt: skip
    assert found.words == 8


def test_sums_are_as_large_after_many_sentences_as_after_one():
    sizes = {}
    for count in (1, 50):
        relative, entropies, layers = OffsetTotals(2), EntropyTotals(2), LayerTotals()
        parts = ContributionTotals(2, [Span.of(0)] * 3)
        for number in range(count):
            weights = corpus(causal=False)[2]
            relative.add(weights)
            entropies.add(weights)
            parts.add(contribution(5, number))
            layers.add(weights[None], [0, 1], np.full((2, 1, 1), 1.0))
        sizes[count] = [len(pickle.dumps(vars(each))) for each in (relative, entropies, parts, layers)]
    for one, many in zip(sizes[1], sizes[50], strict=True):
        assert many <= one + 8  # a count takes a byte or two more
