"""The page on interventions runs as it stands, with fewer updates."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    changes = {
        "training.seed=": "training.updates=20 training.checkpoint_every=20 training.seed=",
        "--margin": "--sentences 8 --margin",
        "--sentences 40": "--sentences 6",
    }
    said = run_page(ROOT / "docs" / "interventions.md", tmp_path, **changes)
    assert "8 sentences by each of 3 runs: logprob -" in said
    assert sum(line.startswith("decoder.1.cross:head=4 ") for line in said.splitlines()) == 1
    assert said.count("encoder.1.self:offset=-2") == 1
    assert sum(line.startswith("decoder.1.cross:rank=1 ") for line in said.splitlines()) == 1
    assert "Rank correlation of the losses between seeds" in said
    assert (tmp_path / "heads.png").stat().st_size > 5000
    _, mean, _, frozen = said.splitlines()[-4:]
    assert mean.endswith(" True")
    assert frozen.endswith("is the output for bcda")
