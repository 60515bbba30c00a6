"""The page on importing does what it says, with small made models in the place of those of the hub."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page
from tests.importing.made_models import write_model
from tests.tasks import marian_npz
from tests.tasks.marian import SOURCES, write_marian


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    write_marian(tmp_path / "Helsinki-NLP/opus-mt-en-de")
    write_model(tmp_path / "facebook/nllb-200-distilled-600M", "nllb")
    marian_npz.write_model(tmp_path)
    marian_npz.write_model_with_table(tmp_path)
    (tmp_path / "dev.en").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    *printed, report = run_page(ROOT / "docs/import.md", tmp_path).splitlines()
    assert printed[0] == printed[-1]  # the run, and the one in the cache
    assert report.startswith("marian: 5 of 5 best outputs equal those of the run")
    assert (tmp_path / "runs/tatoeba/recipe.yaml").is_file()
    assert (tmp_path / "inside.html").is_file()
    assert (tmp_path / "runs/nllb/recipe.yaml").is_file()
