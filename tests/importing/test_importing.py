"""A model that others have trained becomes a run that every command takes, and that tells of no training."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import headway
from headway.core.errors import UserError
from headway.core.files import sha256
from headway.importing.importing import import_run
from tests.conftest import Command, Reversal
from tests.tasks.marian import SOURCES, TARGETS, write_marian

KEYS = ("text.source.language=en", "text.target.language=fr", "decoding.max_length=8")


@pytest.fixture
def opus(tmp_path: Path) -> Path:
    return write_marian(tmp_path / "opus")


@pytest.fixture
def imported(tmp_path: Path, opus: Path) -> Path:
    import_run([f"hf:{opus}"], tmp_path / "run", KEYS)
    shutil.rmtree(opus)  # a run holds all that it needs
    return tmp_path / "run"


def test_the_run_says_where_it_came_from(run_headway: Command, tmp_path: Path, opus: Path) -> None:
    run = tmp_path / "run"
    code, _, err = run_headway("import", f"hf:{opus}", *KEYS, "--output", run, "--licence", "cc-by-4.0")
    assert code == 0, err
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "imported"
    assert manifest["imported"]["licence"] == "cc-by-4.0"
    known = {each["name"]: each["sha256"] for each in manifest["imported"]["files"]}
    assert known["model.safetensors"] == sha256(opus / "model.safetensors")
    assert {"config.json", "source.spm", "target.spm", "vocab.json"} <= known.keys()
    card = (run / "README.md").read_text(encoding="utf-8")
    assert "# run\n" in card
    assert "license: cc-by-4.0" in card
    assert known["model.safetensors"] in card
    assert "trained with" not in card
    for name in ("README.md", "manifest.json", "recipe.yaml"):
        assert str(tmp_path) not in (run / name).read_text(encoding="utf-8")
    assert headway.load(run).recipe.text.source.language == "en"


def test_it_computes_what_a_run_computes_that_began_from_the_model(tmp_path: Path, opus: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"{SOURCES[0]}\t{TARGETS[0]}\n", encoding="utf-8")
    recipe = {
        "data": {"train": {"kind": "tsv", "path": str(tmp_path / "train.tsv")}, "max_length": 30},
        "model": {"from": f"hf:{opus}"},
        "optimizer": {"learning_rate": 1e-30, "schedule": "constant"},
        "training": {"updates": 1},
    }
    headway.train(recipe, tmp_path / "begun")
    import_run(["hf", str(opus)], tmp_path / "run")
    begun, run = (load_file(tmp_path / name / "model.safetensors") for name in ("begun", "run"))
    assert begun.keys() == run.keys()
    for name, tensor in run.items():
        torch.testing.assert_close(begun[name], tensor, rtol=0, atol=1e-7)


def test_every_command_takes_it(run_headway: Command, tmp_path: Path, imported: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    target.write_text("".join(f"{line}\n" for line in TARGETS), encoding="utf-8")
    expected = run_headway("predict", imported, "--input", source).out
    assert len(expected.splitlines()) == len(SOURCES)
    for words in (
        ("score", imported, "--source", source, "--target", target),
        ("inspect", imported, "--input", source, "--output", tmp_path / "inside.html"),
        ("inspect", "tables", "parameters", imported),
        ("export", "huggingface", imported, "--output", tmp_path / "marian", "--input", source, "--beam", "1"),
        ("compare", f"a={imported}", f"b={imported}", "--metric", "chrf", "--source", source, "--references", target),
        ("pack", imported, tmp_path / "pack.zip"),
    ):
        code, out, err = run_headway(*words)
        assert code == 0, (words, out, err)
        assert "training is not complete" not in err
    assert run_headway("predict", tmp_path / "pack.zip", "--input", source).out == expected


def test_training_goes_on_from_it_in_a_run_of_its_own(tmp_path: Path, imported: Path) -> None:
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    recipe = {
        "data": {"train": {"kind": "tsv", "path": str(tmp_path / "train.tsv")}, "max_length": 30},
        "training": {"updates": 1, "from": str(imported)},
    }
    trained = headway.train(recipe, tmp_path / "tuned")
    assert trained.complete
    manifest = json.loads((tmp_path / "tuned" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["from"]["model_sha256"] == sha256(imported / "model.safetensors")
    assert "imported" not in manifest


@pytest.mark.parametrize(("output", "more"), [("run", ("--resume",)), ("new", ())])
def test_its_training_does_not_go_on(
    run_headway: Command, tmp_path: Path, imported: Path, output: str, more: tuple[str, ...]
) -> None:
    words = ("train", imported / "recipe.yaml", "--output", tmp_path / output, *more)
    code, _, err = run_headway(*words)
    assert code == 2
    assert "error: data.train: the corpus of an imported run is not here" in err
    assert "training.from: RUN" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hf"], "what is to be read"),
        (["nosuch", "file"], "unknown importer"),
        (["hf", "one", "two"], "one model is imported at a time"),
        (["hf:{run}"], "this is a run of headway, not a model to import"),
        (["hf:{opus}", "model.layers=3"], "model.layers"),
        (["hf:{opus}", "model.dim=16"], "not of the shape"),
        (["hf:{opus}", "text.source.language=nosuch"], "nosuch"),
    ],
)
def test_mistakes_leave_nothing(
    run_headway: Command, reversal: Reversal, tmp_path: Path, opus: Path, words: list[str], message: str
) -> None:
    given = [word.format(opus=opus, run=reversal.run) for word in words]
    code, _, err = run_headway("import", *given, "--output", tmp_path / "run")
    assert code == 2, err
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["opus"]


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, opus: Path) -> None:
    weights = load_file(opus / "model.safetensors")
    weights["model.encoder.layers.0.fc1.bias"][0] = float("nan")
    save_file(weights, opus / "model.safetensors")
    with pytest.raises(UserError, match="not finite"):
        import_run([f"hf:{opus}"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_more_layers_than_the_settings_say_are_refused(tmp_path: Path, opus: Path) -> None:
    settings = json.loads((opus / "config.json").read_text(encoding="utf-8"))
    (opus / "config.json").write_text(json.dumps(settings | {"decoder_layers": 1}), encoding="utf-8")
    with pytest.raises(UserError, match=r"more layers than config\.json says .decoder_layers: 1"):
        import_run([f"hf:{opus}"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_nothing_is_overwritten(run_headway: Command, tmp_path: Path, opus: Path) -> None:
    (tmp_path / "run").mkdir()
    code, _, err = run_headway("import", f"hf:{opus}", "--output", tmp_path / "run")
    assert code == 2
    assert "--output" in err
    assert list((tmp_path / "run").iterdir()) == []
