"""The page on adding a position does what it says."""

import pytest
from safetensors.numpy import load_file

from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    assert run_page(ROOT / "docs" / "adding-a-position.md", tmp_path).splitlines() == ["all checks passed"]
    weights = load_file(tmp_path / "runs" / "kerple" / "model.safetensors")
    slopes = [values for name, values in weights.items() if name.endswith("position.slopes")]
    assert slopes
    assert all(values.shape == (2,) for values in slopes)
    assert any((values != 0.5).any() for values in slopes)
