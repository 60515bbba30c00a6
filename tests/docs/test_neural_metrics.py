"""The page on neural metrics does what it says, with small made checkpoints in the place of the published ones."""

from pathlib import Path

import pytest

from headway.metrics import build_metric
from tests.conftest import Reversal
from tests.docs.pages import ROOT, run_page
from tests.metrics.made_comet import write_checkpoint


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, reversal: Reversal) -> None:
    words = reversal.words[:4]
    texts = {
        "source": words,
        "references": [word[::-1] for word in words],
        "ours": words,
        "theirs": ["a", "b", "", "c"],
    }
    for name, rows in texts.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    models = tmp_path / "models"
    regression = write_checkpoint(models / "wmt22-comet-da", "regression")
    unified = write_checkpoint(models / "wmt22-cometkiwi-da", "unified")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/ja-en").symlink_to(reversal.run)
    lines = run_page(ROOT / "docs/neural-metrics.md", tmp_path).splitlines()
    tables, by_chrf, by_comet = "\n".join(lines[:-12]), lines[-12:-8], lines[-8:]
    for folder in (regression, unified):
        score = build_metric("comet", model=str(folder)).score(words, [texts["references"]], words).value
        assert f"COMET {folder.name}" in tables
        assert f"{score:.2f}" in tables
    assert all(0 < float(line.split("\t")[0]) <= 100 for line in by_chrf)
    assert [line.split("\t")[1] for line in by_chrf] == texts["references"]
    assert all(float(by_comet[row].split("\t")[0]) >= float(by_comet[row + 1].split("\t")[0]) for row in range(0, 8, 2))
