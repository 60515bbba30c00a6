"""The commands of the page on context run, with fewer of them."""

import pytest

from tests.docs.pages import ROOT, run_page


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    printed = run_page(
        ROOT / "docs" / "context.md", tmp_path,
        **{"documents.py data/context": "documents.py data/context --train 200 --test 5",
           "data.folder=data/context": "data.folder=data/context model.dim=16 model.feed_forward=16 training.updates=4 "
                                       "training.checkpoint_every=2"},
    )  # fmt: skip
    source = (tmp_path / "data" / "context" / "far.en").read_text().splitlines()
    said = (tmp_path / "said.txt").read_text().splitlines()
    assert len(source) == len(said) == 5 * 3 + 4
    assert [not line for line in source] == [line == "" and not source[place] for place, line in enumerate(said)]
    assert "(19 segments)" in printed
    train = [(tmp_path / "data" / "context" / f"train.{side}").read_text().split("\n\n") for side in ("en", "de")]
    tested = (tmp_path / "data" / "context" / "near.en").read_text().split("\n\n")
    assert len(train[0]) == len(train[1]) == 200
    assert not {text.strip() for text in tested} & {text.strip() for text in train[0]}
