"""Engines decode with the options of headway and give its outputs; their exports follow the weights."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import headway
from headway.errors import UserError
from headway.export.ctranslate2_search import _alike
from headway.runs.run_folder import RunFolder, read_tensors
from headway.search.limits import Limits
from tests.conftest import Command, Reversal


@pytest.fixture(scope="module")
def words(reversal: Reversal) -> list[str]:
    return [word for word in reversal.words if len(word) == 4][:48]


@pytest.fixture(scope="module")
def copied(reversal: Reversal, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in a folder of its own, for the exports that engines keep in it."""
    return Path(shutil.copytree(reversal.run, tmp_path_factory.mktemp("engines") / "run"))


@pytest.fixture(scope="module")
def ours(reversal: Reversal) -> "headway.predictors.sequence_predictor.SequencePredictor":
    return headway.load(reversal.run, device="cpu")


@pytest.mark.parametrize("engine", ["ctranslate2"])
@pytest.mark.parametrize(
    "options",
    [{}, {"nbest": 3, "length_penalty": 1.5}, {"beam": 1}, {"max_length": 2}, {"batch_tokens": 20}],
    ids=str,
)
def test_an_engine_gives_the_runs_outputs_and_scores(
    copied: Path, ours, words: list[str], engine: str, options: dict
) -> None:
    pytest.importorskip(engine)
    theirs = headway.load(copied, engine=engine)
    for own, other in zip(ours.predict(words, **options), theirs.predict(words, **options), strict=True):
        assert own.text == other.text
        assert own.tokens == other.tokens
        assert own.score == pytest.approx(other.score, abs=1e-4)
        assert len(other.hypotheses) == options.get("nbest", 1)
        torch.testing.assert_close(
            torch.tensor(own.hypotheses[0].log_probabilities), torch.tensor(other.hypotheses[0].log_probabilities),
            rtol=0, atol=1e-4,
        )  # fmt: skip


@pytest.mark.parametrize("engine", ["ctranslate2"])
def test_prefixes_are_forced(copied: Path, ours, words: list[str], engine: str) -> None:
    pytest.importorskip(engine)
    prefixes = tuple(word[0] for word in words)
    own = ours.predict(words, prefixes=prefixes)
    other = headway.load(copied, engine=engine).predict(words, prefixes=prefixes)
    assert [each.text for each in own] == [each.text for each in other]
    assert all(each.text.startswith(prefix) for each, prefix in zip(other, prefixes, strict=True))
    assert [each.score for each in own] == pytest.approx([each.score for each in other], abs=1e-4)


def test_rows_with_a_prefix_are_decoded_apart_from_others() -> None:
    limits = Limits(0, [5, 5, 7, 5], [[4], [], [], [5, 6]])
    assert _alike(limits, 4) == [
        ([0, 3], Limits(0, [5, 5], [[4], [5, 6]])),
        ([1], Limits(0, [5], ())),
        ([2], Limits(0, [7], ())),
    ]
    assert _alike(Limits(0, [5, 5]), 2) == [([0, 1], Limits(0, [5, 5]))]


@pytest.mark.parametrize(
    ("options", "name"),
    [({"sample": True}, "sample"), ({"capture": "all"}, "capture"), ({"no_repeat_ngram": 2}, "no_repeat_ngram")],
)
def test_an_option_that_an_engine_lacks(copied: Path, options: dict, name: str) -> None:
    pytest.importorskip("ctranslate2")
    with pytest.raises(UserError, match=f"{name}: the engine ctranslate2 has no such option"):
        headway.load(copied, engine="ctranslate2").predict("abc", **options)


def test_an_engine_takes_no_other_device(copied: Path) -> None:
    for device in ("cuda:7", "nonsense"):
        with pytest.raises(UserError, match=f"device: an engine decodes on the CPU; received '{device}'"):
            headway.load(copied, device=device, engine="ctranslate2")


def test_an_engine_scores_no_targets(copied: Path) -> None:
    pytest.importorskip("ctranslate2")
    with pytest.raises(UserError, match="targets are scored by the run's own model"):
        headway.load(copied, engine="ctranslate2").score(["abc"], ["cba"])


def test_the_export_is_kept_and_made_anew_for_other_weights(reversal: Reversal, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    run = tmp_path / "run"
    shutil.copytree(reversal.run, run)
    headway.load(run, engine="ctranslate2")
    (first,) = (run / "engines").iterdir()
    made = (first / "model.bin").stat().st_mtime_ns
    headway.load(run, engine="ctranslate2")
    assert (first / "model.bin").stat().st_mtime_ns == made
    folder = RunFolder(run)
    folder.write_weights(read_tensors(folder.checkpoints / "update-00000200" / "model.safetensors"), {})
    theirs = headway.load(run, engine="ctranslate2")
    (second,) = (run / "engines").iterdir()
    assert second != first
    (own,), (other,) = headway.load(run, device="cpu").predict("abcd"), theirs.predict("abcd")
    assert own.score == pytest.approx(other.score, abs=1e-4)


def test_a_line_longer_than_what_an_engine_reads(copied: Path) -> None:
    pytest.importorskip("ctranslate2")
    engine = headway.load(copied, engine="ctranslate2")
    (longest,) = engine.predict("a" * 4000, max_source_length=5000, beam=1, max_length=3)
    assert len(longest.tokens) <= 3
    with pytest.raises(UserError, match=r"line 2: this line is longer than what the engine ctranslate2 reads"):
        engine.predict(["ab", "a" * 4200], max_source_length=5000, beam=1)


@pytest.mark.parametrize("damage", [lambda whole: whole[:1000], lambda whole: whole[:-9] + b"\x7f" * 9])
def test_a_damaged_export_is_made_again(
    reversal: Reversal, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes], bytes]
) -> None:
    pytest.importorskip("ctranslate2")
    run = shutil.copytree(reversal.run, tmp_path / "run")
    headway.load(run, engine="ctranslate2")
    (folder,) = (run / "engines").iterdir()
    whole = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(damage(whole))
    assert headway.load(run, engine="ctranslate2").predict("abcd")[0].text == "dcba"
    assert "this export is damaged" in caplog.text
    assert (folder / "model.bin").read_bytes() == whole


@pytest.mark.parametrize("name", ["attention", "alignments", "alignment-figure"])
def test_engines_give_no_attention(run_headway: Command, copied: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("ctranslate2")
    file = tmp_path / "file.svg"
    ended = run_headway("predict", copied, "--engine", "ctranslate2", f"--{name}", file, stdin="abcd\n")
    assert (ended.code, f"error: --{name}: the engine ctranslate2 gives no attention" in ended.err) == (2, True)


def test_the_command_line_has_engines(run_headway: Command, copied: Path) -> None:
    pytest.importorskip("ctranslate2")
    code, out, _ = run_headway("predict", copied, "--engine", "ctranslate2", stdin="abcd\n\nbad\n")
    assert (code, out) == (0, "dcba\n\ndab\n")
    code, _, err = run_headway("predict", copied, "--engine", "ctranslate3", stdin="abcd\n")
    assert code == 2
    assert err.startswith("error: --engine: unknown engine")
    assert "did you mean 'ctranslate2'?" in err
    code, _, err = run_headway("predict", copied, copied, "--engine", "ctranslate2", stdin="abcd\n")
    assert (code, "an engine runs the final weights of one run" in err) == (2, True)
