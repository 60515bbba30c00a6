"""The page on browsers does what it says, in miniature: from pairs of lines to a page that translates."""

import json
from pathlib import Path

import pytest

from headway.core.errors import UserError
from headway.export.page_export import engine_files
from tests.docs.pages import ROOT, run_page
from tests.experiments.test_student import TEACHER
from tests.export.student import lines
from tests.export.test_page_export import PACKAGE


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("eflomal")
    pytest.importorskip("fxtranslate")
    monkeypatch.setenv("HEADWAY_CACHE", str(PACKAGE.parent))
    try:
        engine_files()
    except UserError as error:
        pytest.skip(str(error))
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, count, seed in (("train", 400, 1), ("dev", 40, 2)):
        for side, texts in zip(("en", "de"), zip(*lines(count, seed), strict=True), strict=True):
            (corpus / f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (tmp_path / "help" / "en-es").mkdir(parents=True)
    for part, count, seed in (("train", 400, 1), ("dev", 40, 2), ("test", 40, 3)):
        rows = "".join(f"{source}\t{target}\n" for source, target in lines(count, seed))
        (tmp_path / "help" / "en-es" / f"{part}.tsv").write_text(rows, encoding="utf-8")
    (tmp_path / "upper.py").write_text(TEACHER, encoding="utf-8")
    small = (
        "data.folder=corpus vocabulary.size=32 model.dim=32 model.feed_forward=64 model.heads=2 model.dropout=0 "
        "model.encoder.layers=1 training.batch_tokens=512 model.decoder.layers="
    )
    long = " training.updates=300 training.checkpoint_every=150 optimizer.learning_rate=1e-2 optimizer.warmup=20"
    changes = {
        "command: apertium spa-ast": "command: python upper.py",
        "--target-language ast": "--target-language ast --yes --passes 2 --rounded 4 || test -d en-ast/evaluation",
        "teacher.yaml data.folder=corpus": f"teacher.yaml {small}1 {long}",
        "train recipes/student/student.yaml data.folder=corpus": f"train recipes/student/student.yaml {small}2 {long}",
        "rounded.yaml data.folder=corpus": f"rounded.yaml {small}2 training.updates=20 training.checkpoint_every=10",
    }
    run_page(ROOT / "docs" / "browser.md", tmp_path, **changes)
    parity = json.loads((tmp_path / "firefox" / "parity.json").read_text(encoding="utf-8"))
    assert parity["shares"]["engine equal to int8"] >= 0.95
    assert parity["shares"]["engine equal to run"] >= 0.7
    assert parity["scores"]["BLEU"]["engine"] > 50
    assert "GPL-2.0" in (tmp_path / "en-ast" / "page" / "index.html").read_text(encoding="utf-8")
    evals = tmp_path / "evals" / "en-de" / "captions" / "headway" / "rounded" / "latest"
    assert json.loads((evals / "bleu.metrics.json").read_text(encoding="utf-8"))["score"] > 50
    assert len(list((tmp_path / "firefox").glob("lex.*"))) == 1
    assert (tmp_path / "page" / "index.html").stat().st_size > 200_000
    assert (tmp_path / "runs" / "imported" / "manifest.json").is_file()
