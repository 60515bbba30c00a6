"""What Marian does not hold is refused with what to change; what it holds is tested with the import."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import headway
from headway.export.marian_export import MarianExporter
from headway.runs.run import open_run
from tests.conftest import Command, Reversal
from tests.tasks.marian import SOURCES, TARGETS

STUDENT = {"preset": "student-tiny", "dim": 16, "feed_forward": 24, "heads": 2}
SHARED = {"kind": "unigram", "size": 40, "shared": True}


def trained(folder: Path, model: dict[str, Any], **sections: Any) -> Path:
    """A run of one update."""
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    (folder / "train.tsv").write_text(rows, encoding="utf-8")
    data = {"kind": "tsv", "path": str(folder / "train.tsv")}
    training = {"updates": 1, "dev_metrics": []}
    recipe = {"data": {"train": data, "dev": data}, "vocabulary": SHARED, "model": model, "training": training}
    return headway.train(recipe | sections, folder / "run").run


def test_a_run_of_another_kind_is_told_what_it_needs(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    code, _, err = run_headway("export", "marian", reversal.run, "--output", tmp_path / "marian")
    assert code == 2
    for need in ("arrangement", "model.output_bias: true", 'model.first_input: "zero"', "1e-06", "preset student"):
        assert need in err
    assert not (tmp_path / "marian").exists()


@pytest.mark.parametrize(
    ("model", "sections", "needs"),
    [
        ({"bias": False}, {}, "model.bias: true;"),
        ({"head_dim": 4}, {}, "model.head_dim: 8;"),
        ({"feed_forward": {"kind": "swiglu", "hidden": 24}}, {}, "model.feed_forward with biases, of kind relu"),
        ({"encoder": {"layers": 1, "mixer": "ssru"}}, {}, "model.encoder.mixer: attention, in all layers"),
        ({"decoder": {"layers": 2, "mixer": ["ssru", "attention"]}}, {}, "model.decoder.mixer: attention or ssru"),
        ({"encoder": {"layers": 1, "canon": "A"}}, {}, "model.encoder without canon, and with plain residuals"),
        ({"decoder": {"layers": 1, "mixer": "attention", "cross": "dot"}}, {}, "model.decoder.cross: multi_head"),
        ({}, {"vocabulary": {"kind": "byte", "shared": True}}, "vocabulary.kind: bpe, unigram"),
        ({}, {"text": {"target": {"normalise": ["lower"]}}}, "text.target without normalise and segment;"),
    ],
)  # fmt: skip
def test_what_a_student_has_to_change(
    tmp_path: Path, model: dict[str, Any], sections: dict[str, Any], needs: str
) -> None:
    run = open_run(trained(tmp_path, STUDENT | model, **sections))
    refusal = MarianExporter().refusal(run)
    assert refusal is not None
    assert refusal.startswith(f"it is no model such as the preset student; it needs {needs}".rstrip(";"))


def test_the_configuration_of_the_decoder_names_the_files(run_headway: Command, tmp_path: Path) -> None:
    pieces = {"kind": "bpe", "size": 50, "target": {"kind": "bpe", "size": 45}}
    model = {**STUDENT, "tied": "target", "decoder": {"layers": 1, "mixer": "attention"}, "norm": "pre"}
    run = trained(tmp_path, model, vocabulary=pieces, decoding={"beam": 3})
    code, out, err = run_headway("export", "marian", run, "--output", tmp_path / "marian", "--beam", "1")
    assert (code, "5 of 5 best outputs" in out) == (0, True), out + err
    decoder = yaml.safe_load((tmp_path / "marian" / "decoder.yml").read_text(encoding="utf-8"))
    assert decoder == {
        "relative-paths": True, "models": ["model.npz"], "vocabs": ["source.spm", "target.spm"], "beam-size": 3
    }  # fmt: skip
    assert "marian-decoder" in (tmp_path / "marian" / "README.md").read_text(encoding="utf-8")
