"""Figures over a corpus: every kind of model, the numbers beside the pictures, refusals, constant memory."""

import csv
import gc
import json
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from headway.metrics import build_metric
from headway.models import build_model, model_section
from headway.predictors.sequence_predictor import Predictor
from headway.runs.inspect.corpus_analysis import CorpusTotals, Request, read_corpus, report
from headway.runs.inspect.corpus_figures import relative_positions, write_figures
from headway.runs.inspect.length_quality import LengthTotals
from headway.runs.inspect.totals import SPAN, within
from headway.runs.run_folder import LoadedRun
from headway.tasks import build_task
from tests.conftest import Command, Reversal

NGRAM = {"kind": "ngram", "n": 2, "global_context": True}
SMALL = {"dim": 16, "feed_forward": 16, "heads": 2}
MODELS = {
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
    "learned positions": SMALL | {"kind": "transformer", "position": "learned", "max_position": 6},
}  # fmt: skip


def untrained(predictor: Predictor, name: str) -> Predictor:
    """Another model in the place of the predictor's."""
    recipe = predictor.recipe.model_copy(update={"model": model_section(MODELS[name])})
    torch.manual_seed(1)
    size = len(predictor.source.vocabulary)
    model = build_model(recipe.model, size, size, True).eval()
    return Predictor([LoadedRun(recipe, predictor.source, predictor.target, model)], predictor.device)


def totals_of(predictor: Predictor, request: Request | None = None) -> CorpusTotals:
    totals = CorpusTotals(LengthTotals(build_metric("exact_match")))
    read_corpus(build_task("translation"), predictor, request or Request(quality=False), totals)
    return totals


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_command_draws_dev_and_its_numbers_are_those_of_the_weights(
    reversal: Reversal, predictor: Predictor, run_headway: Command, tmp_path: Path
) -> None:
    ended = run_headway("inspect", reversal.run, "--figures", tmp_path / "figures", "--within", "2")
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
        weights = each.attention["decoder.1.self"]
        queries += weights.shape[1]
        for head, t, s in np.ndindex(weights.shape):
            slow[head, s - t + SPAN] += weights[head, t, s]
    shares = {
        (row["head"], row["offset"]): float(row["share"])
        for row in rows(tmp_path / "figures" / "relative-position-decoder.csv")
        if row["attention"] == "decoder.1.self"
    }
    for offset in range(-SPAN, SPAN + 1):
        both = slow[:, offset + SPAN] / queries
        assert [shares["0", str(offset)], shares["1", str(offset)]] == pytest.approx(both, abs=1e-5)
        assert shares["mean", str(offset)] == pytest.approx(both.mean(), abs=1e-5)
    inside = slow[:, SPAN - 1 : SPAN + 2].sum() / queries / 2
    assert f"{100 * inside:.1f} %" in next(line for line in ended.out.splitlines() if line.startswith("decoder.1.self"))
    (quality,) = rows(tmp_path / "figures" / "quality-by-length.csv")  # every source is one word
    assert (quality["segments"], quality["exact_match"]) == ("16", "100")


def test_files_are_read_with_references_and_without(
    reversal: Reversal, predictor: Predictor, run_headway: Command, tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("abc\n\nabcd abcd\n", encoding="utf-8")
    (tmp_path / "target").write_text("cba\nb\ndcba dcba\n", encoding="utf-8")
    given = ("--figures", tmp_path / "out", "--json", "--input", tmp_path / "source")
    own = run_headway("inspect", reversal.run, *given)
    assert own.code == 0, own.err
    content = json.loads(own.out)
    assert (content["sentences"], content["read"], content["window"]) == (3, 2, 5)
    assert not (tmp_path / "out" / "quality-by-length.csv").exists()
    assert len(content["files"]) == 15
    found = predictor.predict(["abc", "abcd abcd"], capture="all")
    queries = [row for each in found for row in each.attention["decoder.1.cross"][0]]
    bits = [sum(-p * np.log2(p) for p in row if p > 0) for row in queries]
    assert content["attention"]["decoder.1.cross"]["entropy_by_head"][0] == pytest.approx(np.mean(bits), abs=1e-5)
    forced = run_headway("inspect", reversal.run, *given, "--reference", tmp_path / "target")
    assert json.loads(forced.out)["attention"]["decoder.0.cross"] != content["attention"]["decoder.0.cross"]
    assert [row["segments"] for row in rows(tmp_path / "out" / "quality-by-length.csv")] == ["1", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--figures", "out", "--parameters"),
            "say what to look at; received '--parameters --figures'; allowed: one of",
        ),
        (("--figures", "out", "--within", "22"), "--within: no such window; received 22; allowed: 1 to 21"),
        (("--figures", "out", "--reference", "x"), "--reference: references need their sources"),
        (("--figures", "out", "--input", "x"), "--input: there is no such file; received 'x'"),
        (("--figures", "out", "--input", "empty"), "--input: there is nothing to read: every line is empty or too lo"),
        (("--figures", "out", "--input", "empty", "--reference", "three"), "this line has no partner"),
        (
            ("model.dim=8", "--figures", "out"),
            "KEY.PATH=VALUE: this does not go with --figures; allowed: with --parameters",
        ),
        (("--figures", "out", "--input", "three", "--input", "three"), "--input: --figures reads one file"),
        (("--parameters", "--no-quality"), "--quality: this does not go with --parameters; allowed: with --figures"),
    ],
)
def test_users_mistakes(
    arguments: tuple[str, ...], message: str, reversal: Reversal, run_headway: Command,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("\n \n")
    Path("three").write_text("a\na\na\n")
    ended = run_headway("inspect", reversal.run, *arguments)
    assert ended.code == 2
    assert re.search(message, ended.err), ended.err
    assert not Path("out").exists()


def test_layers_without_weights_have_their_parts(predictor: Predictor, tmp_path: Path) -> None:
    totals = totals_of(untrained(predictor, "mixed"))
    assert list(totals.parts) == ["encoder.0.self", "decoder.0.self"]
    assert set(totals.relative) == {"encoder.1.self", "decoder.1.self"}
    said = report(totals, Request(quality=False))
    assert "encoder.0.self: no weights; largest shares:" in said
    assert "nothing" not in said
    write_figures(totals, tmp_path, 5)
    parts = rows(tmp_path / "contributions-encoder.csv")
    assert [row["part"] for row in parts] == ["-1", "0", "+1", "global"] * 2
    assert {row["part"] for row in rows(tmp_path / "contributions-decoder.csv")} == {"-1", "0", "-3..-2"}
    drawn = (tmp_path / "contributions-encoder.svg").read_text()
    assert "<!-- global -->" in drawn
    assert "<!-- encoder: norm of the share -->" in drawn


def test_even_weights_are_those_of_the_layer_that_sees_furthest(predictor: Predictor) -> None:
    totals = totals_of(untrained(predictor, "window below"))
    near, far = (totals.relative[f"encoder.{layer}.self"].even_shares() for layer in (0, 1))
    assert within(near, 2) == pytest.approx(1)
    assert within(far, 2) < 0.9
    own = {layer: totals.relative[f"encoder.{layer}.self"] for layer in (0, 1)}
    (panel,) = relative_positions("encoder.self", own, 2).panels
    assert dict(panel.lines["evenly"])[0] == pytest.approx(100 * far[SPAN + 1])


def test_a_decoder_only_model_is_read_as_one_sequence(predictor: Predictor) -> None:
    totals = totals_of(untrained(predictor, "decoder_only"))
    assert set(totals.relative) == {"decoder.0.self", "decoder.1.self"}
    assert set(totals.entropies) == {f"decoder.{layer}.{kind}" for layer in (0, 1) for kind in ("self", "cross")}
    each = totals.relative["decoder.0.self"].shares()
    assert each.sum(1) == pytest.approx(1, abs=1e-5)
    assert (each[:, SPAN + 2 :] == 0).all()


def test_what_a_recurrent_model_does_not_have_is_said(predictor: Predictor, tmp_path: Path) -> None:
    totals = totals_of(untrained(predictor, "recurrent"))
    assert list(totals.entropies) == ["decoder.0.cross"]
    assert "no self-attention and no n-grams: nothing by relative position" in report(totals, Request())
    assert {path.stem for path in write_figures(totals, tmp_path, 5)} == {"entropy"}
    silent = totals_of(untrained(predictor, "no attention"))
    assert "this model has no attention: no entropy" in report(silent, Request())
    assert write_figures(silent, tmp_path, 5) == []


def test_pairs_that_are_longer_than_the_positions_are_left_out(predictor: Predictor, tmp_path: Path) -> None:
    own = untrained(predictor, "learned positions")  # at most five pieces, of which the first is a mark
    assert own.can_read("abcd", "abcd")
    assert not own.can_read("abcde", "abcd")
    assert not own.can_read("abcd", "abcde")
    for name, lines in (("source", ["abcd", "abcde", "a"]), ("target", ["a", "a", "abcde"])):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    totals = totals_of(own, Request(tmp_path / "source", tmp_path / "target", quality=False))
    assert (totals.examples, totals.read) == (3, 1)


def test_one_chunk_at_a_time_is_in_memory(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("abcd\n" * 300)
    readings = build_task("translation").readings(predictor, tmp_path / "source", None)
    assert readings.examples == 300
    alive: list[weakref.ref] = []
    for chunk in readings.chunks:
        alive += [weakref.ref(reading) for reading in chunk.readings]
        gc.collect()
        assert sum(each() is not None for each in alive) <= 64
    assert len(alive) == 300
