"""Comparing what exists already: runs, files of outputs, and both; mistakes are found before anything is decoded."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import headway
from headway.comparison.cells import CellName, CellResult, write_result
from headway.comparison.differences import banded_curves
from headway.comparison.options import ScoreOptions
from headway.core.errors import UserError
from headway.grids import run as run_module
from headway.grids.compare import Existing, name_runs
from headway.optimizers.optimizers import OptimizerConfig
from headway.processing.text.text_processor import PreparationConfig, TextConfig
from headway.runs.packing import pack_run
from headway.runs.run import open_run
from headway.training.loop import train
from tests.comparison.toys import REFERENCES, cells_of, hypotheses
from tests.conftest import Command, Reversal
from tests.runs.old_runs import copied
from tests.training import toys


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "references.txt", REFERENCES * 10)
    for name, kept in (("good", 0.95), ("bad", 0.6)):
        for seed in (1, 2, 3):
            write(tmp_path / f"{name}{seed}.txt", hypotheses(80, seed=seed, kept=kept))
    return tmp_path


def test_outputs_of_other_systems(files: Path, run_headway: Command) -> None:
    names = [f"{name}:{seed}={files / f'{name}{seed}.txt'}" for name in ("bad", "good") for seed in (1, 2, 3)]
    ended = run_headway(
        "compare", "--hypotheses", *names, "--references", files / "references.txt", "--metric", "bleu", "ter",
        "--margin", "bleu=1", "--json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    values = json.loads(ended.out)
    assert list(values["variants"]) == ["bad", "good"]
    assert [(pair["metric"], pair["verdict"]) for pair in values["pairs"]] == [("bleu", "better"), ("ter", "better")]
    assert values["metrics"]["bleu"]["margin"] == 1
    assert values["tests"] == [{"name": "references", "segments": 80}]


def test_seeds_that_are_added_until_there_is_a_verdict_are_looks(files: Path) -> None:
    def compared(seeds: int, *names: str) -> tuple[int, float, float]:
        given = [f"{name}:{seed}={files / f'{name}{seed}.txt'}" for name in names for seed in range(1, seeds + 1)]
        found = headway.compare(
            hypotheses=given, references=files / "references.txt", metrics=["bleu"], output=files / "out"
        )
        (pair,) = found.pairs
        assert pair.adjusted_p_value == pytest.approx(found.looks * (pair.p_value or 1))
        half = pair.estimate.half_width(1 - 0.05 / found.looks)
        assert pair.interval == pytest.approx((pair.difference - half, pair.difference + half))
        return found.looks, *pair.interval

    for seed in (1, 2, 3):
        shutil.copy(files / f"good{seed}.txt", files / f"third{seed}.txt")
    first = compared(2, "bad", "good")
    assert compared(3, "bad", "good")[0] == 2
    assert compared(2, "bad", "good") == first, "the same look again"
    assert compared(3, "bad", "third")[0] == 1, "a pair that was not compared before"
    assert first[0] == 1


def test_a_copy_is_no_seed(files: Path, run_headway: Command, caplog: pytest.LogCaptureFixture) -> None:
    copied = shutil.copy(files / "good1.txt", files / "copy.txt")
    (files / "link.txt").symlink_to(files / "good1.txt")

    def compared(second: Path) -> tuple[int, str]:
        names = [f"bad:1={files}/bad1.txt", f"bad:2={files}/bad2.txt", f"good:1={files}/good1.txt", f"good:2={second}"]
        ended = run_headway("compare", "--hypotheses", *names, "--references", files / "references.txt")
        return ended.code, ended.err

    for same in (files / "good1.txt", files / "link.txt"):
        told = f"error: {same}: this is seed 1 of good again; a seed is a training of its own; received 'seed 2'\n"
        assert compared(same) == (2, told)
    code, err = compared(Path(copied))
    assert (code, f"{copied}: the same as good, seed 1" in err) == (0, True)


def test_a_copy_of_a_run_is_no_seed(reversal: Reversal, tmp_path: Path) -> None:
    again = shutil.copytree(reversal.run, tmp_path / "again")
    with pytest.raises(UserError, match="again: this is seed 1 of a again; a seed is a training of its own"):
        headway.compare([f"a:1={reversal.run}", f"a:2={again}", f"b:1={reversal.run}", f"b:2={again}"])


def test_two_files_have_an_interval_and_no_verdict(files: Path, run_headway: Command) -> None:
    ended = run_headway(
        "compare", "--hypotheses", files / "bad1.txt", files / "good1.txt", "--references", files / "references.txt"
    )
    assert ended.code == 0
    assert "no verdict" in ended.out
    assert "One seed says nothing of the method" in ended.out
    assert "chrF2" in ended.out


@pytest.fixture
def runs(reversal: Reversal, tmp_path: Path) -> Path:
    """A trained run, and one of another recipe with the weights of an early checkpoint."""
    shutil.copytree(reversal.run, tmp_path / "late-1")
    early = shutil.copytree(reversal.run, tmp_path / "early")
    first = sorted((early / "checkpoints").iterdir())[0]
    shutil.copy(first / "model.safetensors", early / "model.safetensors")
    manifest = json.loads((early / "manifest.json").read_text())
    (early / "manifest.json").write_text(json.dumps(manifest | {"model_sha256": sha_of(early)}))
    recipe = yaml.safe_load((early / "recipe.yaml").read_text())
    recipe["training"]["updates"] = 200
    (early / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def sha_of(run: Path) -> str:
    from headway.core.files import sha256

    return sha256(run / "model.safetensors")


def test_runs_on_their_dev_and_outputs_beside_them(runs: Path, reversal: Reversal, run_headway: Command) -> None:
    dev = [line.split("\t") for line in (reversal.recipe.parent / "dev.tsv").read_text().splitlines()]
    other = write(runs / "other.txt", [target for _, target in dev])
    command = ("compare", runs / "early", runs / "late-1", "--hypotheses", f"oracle={other}", "--output", runs / "out")
    ended = run_headway(*command, "--json", "--metric", "exact_match")
    assert ended.code == 0, ended.err
    values = json.loads(ended.out)
    assert list(values["variants"]) == ["early", "late-1", "oracle"]
    assert values["variants"]["oracle"]["exact_match"]["mean"] == 100
    assert values["variants"]["late-1"]["exact_match"]["mean"] >= values["variants"]["early"]["exact_match"]["mean"]
    assert values["variants"]["late-1"]["parameters"] == values["variants"]["early"]["parameters"] > 0
    assert len(values["pairs"]) == 3
    outputs = (runs / "out" / "cells" / "late-1-1.dev.txt").read_text().splitlines()
    assert len(outputs) == len(dev)
    kept = runs / "out" / "cells" / "late-1-1.json"
    before = kept.stat().st_mtime_ns
    again = run_headway(*command, "--json", "--metric", "exact_match")
    assert again.out == ended.out
    assert kept.stat().st_mtime_ns == before
    for name in ("early", "late-1"):
        recipe = yaml.safe_load((runs / name / "recipe.yaml").read_text())
        recipe["decoding"]["max_length"] = 1
        (runs / name / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    run_headway(*command, "--json", "--metric", "exact_match")
    outputs = (runs / "out" / "cells" / "late-1-1.dev.txt").read_text().splitlines()
    assert {len(line) for line in outputs} <= {0, 1}, "decoded anew: the search is another"


def test_a_run_that_was_stopped_has_no_verdict(runs: Path) -> None:
    manifest = json.loads((runs / "early" / "manifest.json").read_text())
    (runs / "early" / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    (pair,) = headway.compare([runs / "early", runs / "late-1"], ["exact_match"]).pairs
    assert pair.words == "no verdict: the training of early, seed 1 is not complete"


def test_runs_with_rates_of_their_own_are_untuned_unless_a_grid_tuned_them(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipes of runs say as much as those of a grid's cells: the difference may be that of the rates."""
    toys = {(cell.variant, cell.seed): cell for cell in cells_of(a=0.5, b=0.9)}

    def decoded(name: CellName, *_: object, **__: object) -> CellResult:
        assert name.path is not None
        return replace(toys[name.variant, name.seed], rate=open_run(name.path).recipe.optimizer.learning_rate)

    monkeypatch.setattr(run_module, "result_of_run", decoded)

    def words(folder: Path) -> str:
        names = [f"{name}:{seed}={folder / f'{name}-{seed}'}" for name, seed in toys]
        return headway.compare(names, ["bleu"]).pairs[0].words

    for name, rate in (("a", 0.001), ("b", 0.002)):
        for seed in (1, 2, 3):
            copied = shutil.copytree(runs / "late-1", runs / "cells" / f"{name}-{seed}")
            recipe = yaml.safe_load((copied / "recipe.yaml").read_text())
            recipe["training"]["seed"], recipe["optimizer"]["learning_rate"] = seed, rate
            (copied / "recipe.yaml").write_text(yaml.safe_dump(recipe))
            manifest = json.loads((copied / "manifest.json").read_text()) | {"model_sha256": copied.name}
            (copied / "manifest.json").write_text(json.dumps(manifest))
    assert words(runs / "cells") == "better, untuned"
    (runs / "tuning").mkdir()
    assert words(runs / "cells") == "better, order of short runs unknown"


def test_runs_on_a_test_set_of_files(runs: Path, run_headway: Command) -> None:
    write(runs / "test.src", ["abc", "dcb", "ab"])
    write(runs / "test.ref", ["cba", "bcd", "ba"])
    write(runs / "lengths", ["3", "3", "2"])
    files = ("--test-source", runs / "test.src", "--test-references", runs / "test.ref", "--by", runs / "lengths")
    ended = run_headway("compare", runs / "early", runs / "late-1", *files, "--json", "--output", runs / "by")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["tests"] == [{"name": "test", "segments": 3}]
    assert next(iter(json.loads(ended.out)["variants"]["early"])) == "exact_match"  # that of the runs


def test_packs_are_compared_like_their_runs(runs: Path, run_headway: Command) -> None:
    packed = runs / "early.zip"
    pack_run(runs / "early", packed)
    files = ("--test-source", write(runs / "a", ["abc", "dcb"]), "--test-references", write(runs / "b", ["cba", "bcd"]))
    ended = run_headway("compare", packed, runs / "late-1", f"again={runs / 'early'}", *files, "--json")
    assert ended.code == 0, ended.err
    assert f"{runs / 'early'}: the same as" in ended.err
    of_pack, _, again = json.loads(ended.out)["variants"].values()
    del of_pack["decoding_tokens_per_second"], again["decoding_tokens_per_second"]
    assert of_pack == again


def test_alignments_of_runs(runs: Path, run_headway: Command) -> None:
    write(runs / "test.src", ["abc", "dcb", "ab"])
    write(runs / "test.ref", ["cba", "bcd", "ba"])
    write(runs / "gold", ["1 1 1 S", "2 1 1", "3 1 1 P"])  # in NAACL's format
    files = ("--test-source", runs / "test.src", "--test-references", runs / "test.ref", "--alignments", runs / "gold")
    ended = run_headway("compare", runs / "early", runs / "late-1", *files, "--json", "--output", runs / "out")
    assert ended.code == 0, ended.err
    values = json.loads(ended.out)
    assert list(values["metrics"]) == ["aer"]
    assert values["variants"]["late-1"]["aer"]["mean"] == 0  # each line is one word
    assert "attention-0-0" not in (runs / "out" / "compare.html").read_text()
    write(runs / "gold", ["1-1", "1-1", "1?1"])
    assert "do not have" in run_headway("compare", runs / "early", runs / "late-1", *files).err
    ended = run_headway("compare", runs / "early", runs / "late-1", *files, "--json", "--links-from", "1")
    assert json.loads(ended.out)["variants"]["late-1"]["aer"]["mean"] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "--metric f0.5",
            "--metric: this metric scores labels, and the outputs are text; received 'f0.5'; allowed: bleu",
        ),
        ("--alignments gold --metric bleu", "and the outputs are links; received 'bleu'; allowed: aer"),
        ("--alignments mixed", "mixed:2: this is no link between words; received '0:0'"),
        ("--alignments from-1", "from-1, line 1: these links are between words that the sentences do not have"),
        ("--margin bleu=1", "margin.bleu: no such metric here; allowed: exact_match"),
        ("--test '{tsv: nowhere.tsv}'", "--test.tsv: there is no such file; received"),
        ("--source gold --references nowhere", "--references: there is no such file; received 'nowhere'"),
        ("--source nowhere --references gold", "--source: there is no such file; received 'nowhere'"),
    ],
)
def test_metrics_are_checked_before_anything_is_decoded(
    runs: Path, given: str, message: str, run_headway: Command, reversal: Reversal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setattr("headway.grids.run.result_of_run", None)
    write(runs / "gold", ["0-0"] * 3)
    write(runs / "mixed", ["0-0", "0:0"])
    write(runs / "from-1", ["1-1"] * len((reversal.recipe.parent / "dev.tsv").read_text().splitlines()))
    ended = run_headway("compare", "early", "late-1", *shlex.split(given))
    assert ended.code == 2
    assert message in ended.err


def test_metrics_files_are_read_before_anything_is_decoded(
    runs: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    monkeypatch.setattr("headway.grids.run.result_of_run", None)  # would fail if called
    metrics = runs / "early" / "metrics.jsonl"
    for line, said in (
        ('{"update": 1, "dev": {"bleu": 3.0}}', ": an evaluation has no seconds; received 'update 1'"),
        ('{"update": 1, "seconds": NaN}', ":1: this line is damaged (seconds: Input should be a finite number)"),
    ):
        metrics.write_text(f"{line}\n", encoding="utf-8")
        ended = run_headway("compare", runs / "early", runs / "late-1")
        assert (ended.code, ended.out) == (2, "")
        assert f"{metrics}{said}" in ended.err


def test_a_metric_that_its_user_names_needs_no_leave(
    files: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from headway.metrics.metric import ExactMatch\n\n\nclass Mine(ExactMatch):\n    name = 'mine'\n"
    (files / "mine_compared.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(files)
    names = [files / "good1.txt", files / "bad1.txt"]
    given = ("--references", files / "references.txt", "--metric", "mine_compared:Mine", "--json")
    ended = run_headway("compare", "--hypotheses", *names, *given)
    assert ended.code == 0, ended.err
    assert list(json.loads(ended.out)["metrics"]) == ["mine"]


def test_results_of_names_that_no_file_has_are_kept_apart(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        found = headway.compare({"late 1": runs / "late-1", "late_1": runs / "early"}, output=runs / "out")
        assert [variant.name for variant in found.variants] == ["late 1", "late_1"]
        monkeypatch.setattr("headway.grids.run.result_of_run", None)  # the second time, both were kept
    assert len(list((runs / "out" / "cells").glob("late_1*.json"))) == 2


def test_the_seeds_of_a_variant_were_trained_on_the_same_data(
    runs: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest knows what was read, though both recipes name the same file."""
    monkeypatch.setattr("headway.grids.run.result_of_run", None)
    other = shutil.copytree(runs / "late-1", runs / "late-2")
    recipe = yaml.safe_load((other / "recipe.yaml").read_text())
    recipe["training"]["seed"] = 2
    (other / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["data"]["train"] = "0" * 64
    (other / "manifest.json").write_text(json.dumps(manifest))
    early = [f"early:{seed}={runs / 'early'}" for seed in (1, 2)]
    ended = run_headway("compare", runs / "late-1", other, *early)
    assert ended.code == 2
    assert "late-2: this run was trained on other data than " in ended.err
    assert "allowed: runs of one training set, or a name of its own" in ended.err
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):  # it goes on
        headway.compare([runs / "late-1", f"other:1={other}"])


def test_runs_of_one_task_and_dev_set_are_compared(
    runs: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.grids.run.result_of_run", None)
    other = shutil.copytree(runs / "late-1", runs / "other-1")
    recipe = yaml.safe_load((other / "recipe.yaml").read_text())
    dev = Path(recipe["data"]["dev"]["path"])
    same = shutil.copy(dev, runs / "dev.tsv")
    for change, message in (
        ({"data": recipe["data"] | {"dev": {"tsv": "changed.tsv"}}}, "other-1: this run has another dev set than"),
        (
            {"data": recipe["data"] | {"dev": {"tsv": "gone.tsv"}}},
            "other-1: the dev set .* not here; received '.*gone.tsv'",
        ),
        ({"data": recipe["data"] | {"dev": None}}, "other-1: this run has another dev set than"),
        ({"data": recipe["data"] | {"dev": {"tsv": str(same)}}}, "'NoneType' object is not callable"),  # it goes on
    ):
        (runs / "changed.tsv").write_text(dev.read_text() + "ab\tba\n")
        (other / "recipe.yaml").write_text(yaml.safe_dump(recipe | change))
        monkeypatch.chdir(runs)
        if "NoneType" in message:
            with pytest.raises(TypeError, match=message):
                headway.compare(["late-1", "a=other-1"])
            continue
        with pytest.raises(UserError, match=message):
            headway.compare(["late-1", "a=other-1"])
    tagger = copied("tagging", runs / "tagger").run
    with pytest.raises(UserError, match="runs of one task are compared; received 'tagging'; allowed: translation"):
        headway.compare([str(runs / "late-1"), f"a={tagger}"])


def test_files_of_labels_are_about_the_same_words(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.tsv", "b.tsv", "gold.tsv")]
    for path, word in zip(paths, ("dog", "dig", "dog"), strict=True):
        path.write_text(f"the\tc\n\n{word}\ti\n", encoding="utf-8")
    files = {"hypotheses": [str(path) for path in paths[:2]], "references": str(paths[2])}
    with pytest.raises(UserError, match=r"b\.tsv, segment 2: these words are not those of .*gold\.tsv; received 'dig'"):
        headway.compare(metrics=["accuracy"], **files)
    paths[1].write_text("the\tc\n\ndog\tc\n", encoding="utf-8")
    assert headway.compare(metrics=["accuracy"], **files).variants[1].scores["accuracy"].mean == 50


def test_runs_of_one_recipe_are_one_variant(runs: Path) -> None:
    for seed in (2, 11):
        copied = shutil.copytree(runs / "late-1", runs / f"late-{seed}")
        recipe = yaml.safe_load((copied / "recipe.yaml").read_text())
        recipe["training"]["seed"] = seed
        (copied / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    folders = [Existing(runs / name) for name in ("late-1", "early", "late-11", "late-2")]
    named = [(name.variant, name.seed) for name in name_runs(folders)]
    assert named == [("late", 1), ("early", 1), ("late", 11), ("late", 2)]
    given = name_runs([Existing(runs / "late-1", "mine", 7), *folders[1:]])
    assert next((name.variant, name.seed) for name in given) == ("mine", 7)


def test_cells_that_leave_the_precision_open_are_seeds_of_those_that_do_not(runs: Path) -> None:
    copied = shutil.copytree(runs / "late-1", runs / "late-2")
    chosen = json.loads((copied / "manifest.json").read_text())["precision"]
    for precision, seed in ((chosen, 2), ("auto", 1)):
        path = runs / f"late-{seed}" / "recipe.yaml"
        recipe = yaml.safe_load(path.read_text())
        recipe["training"] |= {"seed": seed, "precision": precision}
        path.write_text(yaml.safe_dump(recipe))
    folders = [Existing(runs / f"late-{seed}") for seed in (1, 2)]
    assert [(name.variant, name.seed) for name in name_runs(folders)] == [("late", 1), ("late", 2)]


def test_cells_of_a_grid_are_seeds_of_its_variants_whatever_was_tuned(runs: Path) -> None:
    for seed, rate in ((1, 0.001), (2, 0.002)):
        copied = shutil.copytree(runs / "late-1", runs / "cells" / f"plain-{seed}")
        recipe = yaml.safe_load((copied / "recipe.yaml").read_text())
        recipe["training"]["seed"], recipe["optimizer"]["learning_rate"] = seed, rate
        (copied / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        write_result(copied / "cell.json", CellResult("plain", seed, (), copied), {})
    named = name_runs([Existing(runs / "cells" / f"plain-{seed}") for seed in (1, 2)])
    assert [(name.variant, name.seed) for name in named] == [("plain", 1), ("plain", 2)]


def test_names_and_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "a=b.txt", ["x"])
    assert Existing.parse(str(path), "runs") == Existing(path)
    assert Existing.parse(f"n={path}", "runs") == Existing(path, "n")
    assert Existing.parse(f"n:3={path}", "runs") == Existing(path, "n", 3)
    assert Existing.parse(f"3={path}", "runs") == Existing(path, "3")
    with pytest.raises(UserError, match="there is no such file or folder"):
        Existing.parse("n:3=nowhere", "runs")


def test_margins() -> None:
    assert ScoreOptions(margin=("bleu=0.5", "ter=1")).margins == {"bleu": 0.5, "ter": 1.0}
    for wrong in (["bleu"], ["=1"], ["bleu=x"], ["bleu=0.5", "bleu=1"]):
        with pytest.raises(ValueError, match="a margin is METRIC=NUMBER"):
            ScoreOptions(margin=wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--hypotheses good1.txt bad1.txt",
            "--hypotheses: files of outputs are scored by references; allowed: --references FILE",
        ),
        ("--hypotheses good1.txt good2.txt nowhere --references references.txt", "--hypotheses: there is no such file"),
        ("--hypotheses good1.txt --references references.txt", "variants: a comparison needs two variants or more"),
        ("--hypotheses a=good1.txt a=bad1.txt --references references.txt", "a, seed 1: two cells of one name"),
        (
            "--hypotheses a:1=good1.txt a:2=good2.txt b:1=bad1.txt --references references.txt",
            "b: seed 2 is missing; seeds are paired by their number; received '1'",
        ),
        ("--hypotheses good1.txt short.txt --references references.txt", "short.txt, references: 3 hypotheses for 80"),
        ("--hypotheses good1.txt empty.txt --references references.txt", "empty.txt, references: 0 hypotheses for 80"),
        (
            "--hypotheses good1.txt bad1.txt --references empty.txt",
            "an interval needs two segments or more; received 0",
        ),
        (
            "--hypotheses good1.txt bad1.txt --references references.txt --source short.txt",
            "short.txt: 3 lines for 80 references; there must be one a segment",
        ),
        ("--hypotheses good1.txt bad1.txt --references references.txt --metric bleu aer", "this is no link"),
        ("--hypotheses good1.txt bad1.txt --references references.txt --margin bleu", "--margin: a margin is"),
        ("--hypotheses good1.txt bad1.txt --references references.txt --baseline x", "no such variant"),
        (
            "--hypotheses good1.txt bad1.txt --references references.txt --alignments short.txt",
            "--alignments: files of outputs are scored by references",
        ),
        (
            "--hypotheses good1.txt bad1.txt --references references.txt --training nowhere --output out",
            "--training: there is no such file; received 'nowhere'",
        ),
        (
            "--hypotheses good1.txt bad1.txt --references references.txt --training good1.txt",
            "--training: alone, this option does nothing; allowed: beside --output",
        ),
        ("good1.txt bad1.txt", "this is not a run folder"),
        ("nowhere bad1.txt", "RUN: there is no such file or folder; received 'nowhere'"),
    ],
)
def test_mistakes(
    files: Path, arguments: str, message: str, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    write(files / "short.txt", ["a", "b", "c"])
    write(files / "empty.txt", [])
    ended = run_headway("compare", *arguments.split())
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""


def test_runs_that_normalise_targets_differently_have_the_references_as_they_stand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would be scored by other references, of which those of the one that keeps less are easier."""
    toys.recipe(tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "dev.tsv").read_text().splitlines()]
    (tmp_path / "dev.tsv").write_text("".join(f"{source}\t{target.upper()}\n" for source, target in rows))
    runs = {}
    for name, steps in (("low", ["lower"]), ("lower", ["lower"]), ("as-is", [])):
        text = TextConfig(target=PreparationConfig.model_validate({"normalise": steps}))
        changes = {"text": text} if name != "lower" else {"text": text, "optimizer": OptimizerConfig(warmup=3)}
        recipe = toys.recipe(tmp_path, updates=2, dev_metrics=["exact_match"]).model_copy(update=changes)
        assert train(recipe, tmp_path / name) == 0
        runs[name] = str(tmp_path / name)
    for names, upper in ((("low", "lower"), False), (("low", "as-is"), True)):
        caplog.clear()
        comparison = headway.compare([runs[name] for name in names])
        assert all(text.isupper() == upper for text in comparison.tests[0].references[0])
        assert ("references normalised: lower" in comparison.table().text()) != upper
        assert comparison.to_json()["tests"][0].get("references") == (None if upper else "lower")
        differ = f"references are scored as they stand ({runs['low']}: lower; {runs['as-is']}: none)"
        assert (differ in caplog.text) == upper
        notes = [note for curves in banded_curves(comparison) for note in curves.notes]
        assert notes == ["The references of dev were not normalised alike (low: lower; as-is: none)."] * upper
    (tmp_path / "theirs").write_text("".join(f"{target.upper()}\n" for _, target in rows))
    (tmp_path / "dev.source").write_text("".join(f"{source}\n" for source, _ in rows))
    beside = headway.compare(
        [runs["low"]], hypotheses=[str(tmp_path / "theirs")], references=[tmp_path / "theirs"],
        source=tmp_path / "dev.source", metric=["exact_match"],
    )  # fmt: skip
    assert f"references are scored as they stand ({runs['low']}: lower; {tmp_path / 'theirs'}: none)" in caplog.text
    assert beside.variants[1].scores["exact_match"].mean == 100
