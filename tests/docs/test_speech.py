"""The commands of the page on speech run, on tones in the place of digits."""

import pytest
import soundfile

from tests.docs.pages import ROOT, run_page
from tests.processing.audio.tones import tone


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    (tmp_path / "recordings").mkdir()
    for digit in range(10):
        for speaker in ("anna", "ben"):
            for take in range(44, 46):
                path = tmp_path / "recordings" / f"{digit}_{speaker}_{take}.wav"
                soundfile.write(path, tone(300 + 300 * digit, 0.1), 8000)
    printed = run_page(
        ROOT / "docs" / "speech.md", tmp_path,
        **{"recordings digits": "recordings digits --train-size 30 --test-size 4",
           "--output run": "--output run training.updates=3 model.dim=32 model.feed_forward=64 "
                           "model.match_parameters=null training.checkpoint_every=3 training.evaluate_every=3"},
    )  # fmt: skip
    lines = printed.splitlines()
    assert any(line.startswith("train: 30 strings") for line in lines)
    assert any(line.startswith("WER of said: ") and "substitutions" in line for line in lines)
    assert "(4 segments)" in printed
