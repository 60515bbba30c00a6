"""Engines decode with the options of headway and give its outputs; their exports follow the weights."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

import headway
from headway.core.errors import UserError
from headway.export.ctranslate2_export import _alike
from headway.predictors.predictor import Run
from headway.runs.engines import build_engine, export_folder, kept_export
from headway.runs.run import CPU, StoredRun, open_run
from headway.runs.run_folder import RunFolder, read_tensors
from headway.search.limits import Limits
from tests.conftest import Command, Reversal

pytest.importorskip("ctranslate2")


@pytest.fixture(scope="module")
def words(reversal: Reversal) -> list[str]:
    return [word for word in reversal.words if len(word) == 4][:48]


@pytest.fixture(scope="module")
def ours(reversal: Reversal) -> "headway.predictors.sequence_predictor.SequencePredictor":
    return headway.load(reversal.run, device="cpu")


@pytest.mark.parametrize(
    "options",
    [{}, {"nbest": 3, "length_penalty": 1.5}, {"beam": 1}, {"max_length": 2}, {"batch_tokens": 20}],
    ids=str,
)
def test_an_engine_gives_the_runs_outputs_and_scores(reversal: Reversal, ours, words: list[str], options: dict) -> None:
    theirs = headway.load(reversal.run, engine="ctranslate2")
    for own, other in zip(ours.predict(words, **options), theirs.predict(words, **options), strict=True):
        assert own.text == other.text
        assert own.tokens == other.tokens
        assert own.score == pytest.approx(other.score, abs=1e-4)
        assert len(other.hypotheses) == options.get("nbest", 1)
        torch.testing.assert_close(
            torch.tensor(own.hypotheses[0].log_probabilities), torch.tensor(other.hypotheses[0].log_probabilities),
            rtol=0, atol=1e-4,
        )  # fmt: skip


def test_prefixes_are_forced(reversal: Reversal, ours, words: list[str]) -> None:
    prefixes = tuple(word[0] for word in words)
    own = ours.predict(words, prefixes=prefixes)
    other = headway.load(reversal.run, engine="ctranslate2").predict(words, prefixes=prefixes)
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


@pytest.mark.parametrize("name", ["sample", "kind", "capture", "no_repeat_ngram"])
def test_an_option_that_an_engine_lacks(reversal: Reversal, name: str) -> None:
    options = {"sample": True, "kind": "mbr", "capture": "all", "no_repeat_ngram": 2}
    with pytest.raises(UserError, match=f"{name}: the engine ctranslate2 has no such option"):
        headway.load(reversal.run, engine="ctranslate2").predict("abc", **{name: options[name]})


def test_an_engine_takes_no_other_device_and_scores_no_targets(reversal: Reversal) -> None:
    with pytest.raises(UserError, match="device: an engine decodes on the CPU; received 'cuda:7'"):
        headway.load(reversal.run, device="cuda:7", engine="ctranslate2")
    with pytest.raises(UserError, match="attention and scores are one model's: give one run, and no engine"):
        headway.load(reversal.run, engine="ctranslate2").score(["abc"], ["cba"])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of exports in a cache that has none."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def made(kept: Path) -> set[Path]:
    """The exports that are kept."""
    return {path for path in kept.iterdir() if path.is_dir()}


def test_the_export_is_kept_for_all_that_it_depends_on(reversal: Reversal, tmp_path: Path, kept: Path) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "run"))
    headway.load(run, engine="ctranslate2")
    (first,) = made(kept)
    written = (first / "model.bin").stat().st_mtime_ns
    headway.load(reversal.run, engine="ctranslate2")
    assert made(kept) == {first}, "the same run elsewhere"
    assert (first / "model.bin").stat().st_mtime_ns == written
    folder = RunFolder(run)
    folder.write_weights(read_tensors(folder.checkpoints / "update-00000200" / "model.safetensors"), {})
    theirs = headway.load(run, engine="ctranslate2")
    assert len(made(kept)) == 2
    (own,), (other,) = headway.load(run, device="cpu").predict("abcd"), theirs.predict("abcd")
    assert own.score == pytest.approx(other.score, abs=1e-4)
    for file in (folder.recipe_file, sorted(folder.vocabulary.rglob("*.json"))[0]):
        before = export_folder(build_engine("ctranslate2"), open_run(run))
        file.write_text(file.read_text(encoding="utf-8") + " ", encoding="utf-8")
        assert export_folder(build_engine("ctranslate2"), open_run(run)) != before


@pytest.mark.parametrize("linked", [True, False])
def test_a_folder_of_engines_in_a_run_is_not_touched(
    reversal: Reversal, tmp_path: Path, kept: Path, linked: bool
) -> None:
    run, precious = Path(shutil.copytree(reversal.run, tmp_path / "run")), tmp_path / "precious"
    (run / "engines").symlink_to(precious) if linked else precious.symlink_to(run / "engines")
    (precious.resolve() / "ctranslate2-notes").mkdir(parents=True)
    (precious / "ctranslate2-notes" / "text").write_text("mine", encoding="utf-8")
    assert headway.load(run, engine="ctranslate2").predict("abcd")[0].text == "dcba"
    assert [path.name for path in precious.rglob("*")] == ["ctranslate2-notes", "text"]
    assert len(made(kept)) == 1


def test_processes_make_an_export_once(reversal: Reversal, kept: Path) -> None:
    engine = build_engine("ctranslate2")
    exported, both = list[Path](), Barrier(2)

    class Counted(type(engine)):  # type: ignore[misc]
        def export(self, run: Run, folder: Path) -> None:
            exported.append(folder)
            super().export(run, folder)

    class Waiting(StoredRun):
        def loaded(self) -> StoredRun:
            both.wait(60)  # until both have found no export
            return super().loaded()

    runs = [Waiting(reversal.run, CPU, None) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        paths = [pool.submit(kept_export, Counted(), run) for run in runs]
        assert {each.result() for each in paths} == made(kept)
    assert len(exported) == 1


def test_a_line_longer_than_what_an_engine_reads(reversal: Reversal) -> None:
    engine = headway.load(reversal.run, engine="ctranslate2")
    (longest,) = engine.predict("a" * 4000, max_source_length=5000, beam=1, max_length=3)
    assert len(longest.tokens) <= 3
    with pytest.raises(UserError, match=r"line 2: this line is longer than what the engine ctranslate2 reads"):
        engine.predict(["ab", "a" * 4200], max_source_length=5000, beam=1)


@pytest.mark.parametrize("damage", [lambda whole: whole[:1000], lambda whole: whole[:-9] + b"\x7f" * 9])
def test_a_damaged_export_is_made_again(reversal: Reversal, kept: Path, damage: Callable[[bytes], bytes]) -> None:
    headway.load(reversal.run, engine="ctranslate2")
    (folder,) = made(kept)
    whole = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(damage(whole))
    assert headway.load(reversal.run, engine="ctranslate2").predict("abcd")[0].text == "dcba"
    assert (folder / "model.bin").read_bytes() == whole


@pytest.mark.parametrize("name", ["attention", "alignments", "alignment-figure"])
def test_engines_give_no_attention(run_headway: Command, reversal: Reversal, tmp_path: Path, name: str) -> None:
    file = tmp_path / "file.svg"
    ended = run_headway("predict", reversal.run, "--engine", "ctranslate2", f"--{name}", file, stdin="abcd\n")
    assert (ended.code, f"error: --{name}: the engine ctranslate2 gives no attention" in ended.err) == (2, True)


def test_what_an_engine_lacks_is_refused_before_its_export(
    run_headway: Command, reversal: Reversal, kept: Path, tmp_path: Path
) -> None:
    (tmp_path / "page.txt").write_text("abcd\n")
    wanted = "error: --kind: the engine ctranslate2 has no such option; received 'mbr'"
    for words in (["--kind", "mbr"], ["--kind", "mbr", "--file", tmp_path / "page.txt"]):
        ended = run_headway("predict", reversal.run, "--engine", "ctranslate2", *words, stdin="abcd\n")
        assert (ended.code, wanted in ended.err) == (2, True)
    ended = run_headway("predict", reversal.run, "--engine", "ctranslate2", "--attention", tmp_path / "a", stdin="a\n")
    assert ended.code == 2
    assert not kept.exists()


def test_the_command_line_has_engines(run_headway: Command, reversal: Reversal) -> None:
    code, out, _ = run_headway("predict", reversal.run, "--engine", "ctranslate2", stdin="abcd\n\nbad\n")
    assert (code, out) == (0, "dcba\n\ndab\n")
    code, _, err = run_headway("predict", reversal.run, "--engine", "ctranslate3", stdin="abcd\n")
    assert code == 2
    assert err.startswith("error: --engine: unknown engine")
    assert "did you mean 'ctranslate2'?" in err
    code, _, err = run_headway("predict", reversal.run.parent, "--engine", "ctranslate2", stdin="abcd\n")
    assert (code, "this is not a run folder" in err) == (2, True)
    code, _, err = run_headway("predict", reversal.run, reversal.run, "--engine", "ctranslate2", stdin="abcd\n")
    assert (code, "an engine runs the final weights of one run" in err) == (2, True)
