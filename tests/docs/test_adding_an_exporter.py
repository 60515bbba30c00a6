"""The pages on adding an exporter and an importer do what they say."""

import json

import pytest

from tests.conftest import Command, Reversal
from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_pages_run(tmp_path, monkeypatch, reversal: Reversal, run_headway: Command):
    printed = run_page(ROOT / "docs" / "adding-an-exporter.md", tmp_path).splitlines()
    assert printed[-1] == "three one two"
    for name, exact in (("words", True), ("half", False)):
        parity = json.loads((tmp_path / "exports" / name / "parity.json").read_text())
        assert (parity["equal"], parity["lines"], parity["exact"], parity["passed"]) == (5, 5, exact, True)
        assert "with NumPy alone" in (tmp_path / "exports" / name / "README.md").read_text()
    assert run_page(ROOT / "docs" / "adding-an-importer.md", tmp_path).splitlines()[-1] == "equal"
    assert (tmp_path / "second.txt").read_text() == (tmp_path / "words.txt").read_text()
    manifest = json.loads((tmp_path / "runs" / "again" / "manifest.json").read_text())
    assert manifest["imported"]["format"] == "gru_import:GruImporter"

    monkeypatch.chdir(tmp_path)
    refused = run_headway("export", "gru_npz:GruExporter", reversal.run, "--output", "no")
    assert (refused.code, (tmp_path / "no").exists()) == (2, False)
    assert "gru cannot express this run: it needs model.kind: recurrent" in refused.err
    model, settings = "exports/words/gru.npz", json.loads((tmp_path / "exports" / "words" / "gru.json").read_text())
    (tmp_path / "damaged.npz").write_bytes(b"PK")
    (tmp_path / "scaled.json").write_text(json.dumps(settings | {"scale": 2.0}))
    for files, message in (
        (("damaged.npz", "exports/words/gru.json"), "damaged.npz: this is no model of two GRUs"),
        ((model, "scaled.json"), "scaled.json: scale: headway has no such scale of embeddings; received 2.0"),
        ((model,), "a model has two files"),
    ):
        refused = run_headway("import", "gru_import:GruImporter", *files, "--output", "no")
        assert (refused.code, (tmp_path / "no").exists()) == (2, False)
        assert message in refused.err
