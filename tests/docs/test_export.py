"""The pages on export, more data and fine-tuning do what they say, in miniature, one after the other."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import write_reversal
from tests.docs.pages import ROOT, run_page

ARGOS = Path(sys.prefix) / "argos"


@pytest.mark.slow
@pytest.mark.skipif(not ARGOS.is_dir(), reason="argostranslate is not installed: make test-all")
def test_the_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ctranslate2")
    from tests.export.test_argos import write_whole_text_model
    from tests.tasks.marian import write_marian

    write_reversal(tmp_path)
    write_marian(tmp_path / "opus-mt")
    write_whole_text_model(tmp_path / "whole.onnx")
    (tmp_path / "new.txt").write_text("abcd\ndacb\n", encoding="utf-8")
    (tmp_path / "mono.txt").write_text("dcba\nbcad\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ARGOS_PACKAGES_DIR", str(tmp_path / "packages"))
    monkeypatch.setenv("ARGOS_COMPUTE_TYPE", "float32")  # else the quickest, with which a processor may round otherwise
    small = (
        "vocabulary.kind=char vocabulary.size=100 model.dim=32 model.feed_forward=64 model.heads=2 model.dropout=0 "
        "model.encoder.layers=1 model.decoder.layers=2 training.updates=800 training.checkpoint_every=400 "
        "training.batch_tokens=512 optimizer.learning_rate=1e-2 optimizer.warmup=20 objective.label_smoothing=0"
    )
    short = "training.updates=4 training.checkpoint_every=2 optimizer.warmup=2 decoding.max_length=20"
    changes = {
        "train recipe.yaml": f"train recipe.yaml {small}",
        "train fine-tune.yaml": f"train fine-tune.yaml {short}",
        "train more.yaml": "train more.yaml training.updates=4 training.checkpoint_every=2 decoding.max_length=20",
        "train adapted.yaml": "train adapted.yaml training.updates=4 training.checkpoint_every=2",
        "filter train.tsv": "filter train.tsv --without language",  # the words are of a, b, c and d
        "train backwards.yaml": f"train backwards.yaml {small}",
        "train both.yaml": f"train both.yaml {small} training.updates=4 training.checkpoint_every=2",
        "train student.yaml": f"train student.yaml {small} training.updates=4 training.checkpoint_every=2",
        "train rounded.yaml": "train rounded.yaml training.updates=4 training.checkpoint_every=2",
        "--licence": "sentence_model=whole.onnx --licence",
        "python install.py": f"PYTHONPATH={ARGOS} python -W ignore install.py",
    }
    pages = [ROOT / "docs" / f"{name}.md" for name in ("export", "more-data", "fine-tuning")]
    printed = "".join(run_page(page, tmp_path, **changes) for page in pages).splitlines()
    rows = {line.split()[0]: line.split()[1] for line in printed if line.split()[1:2] in (["yes"], ["no"])}
    yes, no = ("ctranslate2", "argos", "onnx", "huggingface"), ("marian", "firefox", "page")
    assert rows == dict.fromkeys(yes, "yes") | dict.fromkeys(no, "no")
    assert any(line.startswith("argos: 16 of 16 best outputs equal") for line in printed)
    assert [line for line in printed if line in ("dcba", "bcad")] == ["dcba", "bcad"] * 2
    assert (tmp_path / "backtranslated" / "source.txt").read_text(encoding="utf-8") == "abcd\ndacb\n"
    manifests = [
        json.loads((tmp_path / "runs" / name / "manifest.json").read_text()) for name in ("tuned", "more", "adapted")
    ]
    assert manifests[0]["from"] == {"model": f"hf:{tmp_path / 'opus-mt'}"}
    for manifest in manifests[1:]:
        assert manifest["from"]["model_sha256"] == manifests[0]["model_sha256"]
