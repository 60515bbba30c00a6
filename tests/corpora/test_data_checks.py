"""What `headway data check` says."""

import json
from collections.abc import Callable
from pathlib import Path

from headway.corpora.data_checks import check
from headway.corpora.filters import Filters
from headway.corpora.overlap import Overlap
from headway.formats.corpus_config import AnyCorpus
from headway.formats.pairs import open_source
from headway.processing.text.text_processor import TextProcessor


def test_check(parallel: Callable[..., AnyCorpus], sides: tuple[TextProcessor, TextProcessor], tmp_path: Path) -> None:
    train = parallel(["a b", "c", "d d d"], ["A", "C", "D"])
    dev = parallel(["c", "", "d d d"], ["C", "A", "A"], name="dev")
    read: list[int] = []
    sources = open_source(train, "data.train"), open_source(dev, "data.dev")
    result = check(*sources, sides, Filters(max_length=2), progress=read.append, cache=tmp_path)
    assert read == [3, 3]
    assert (result.train.pairs_kept, result.train.dropped) == (2, {"over max_length": 1})
    assert result.dev is not None
    assert (result.dev.name, result.dev.pairs_kept, result.dev.dropped) == ("data.dev", 2, {"empty side": 1})
    assert result.overlap == Overlap(dev_pairs=2, pairs=1, sources=2)
    assert result.text() == "\n".join([result.train.text(), result.dev.text(), str(result.overlap)])
    content = json.loads(json.dumps(result.to_json()))
    assert content["overlap"] == {"dev_pairs": 2, "pairs": 1, "sources": 2}
    assert content["train"]["source"]["tokens"] == 3


def test_check_without_dev(
    parallel: Callable[..., AnyCorpus], sides: tuple[TextProcessor, TextProcessor], tmp_path: Path
) -> None:
    train = open_source(parallel(["a"], ["A"]), "data.train")
    result = check(train, None, sides, Filters(), cache=tmp_path)
    assert (result.dev, result.overlap) == (None, None)
    assert result.text() == result.train.text()
    assert result.to_json()["dev"] is None
