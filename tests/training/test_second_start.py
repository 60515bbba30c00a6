"""What a start has prepared is there for the next one, which reads no raw text and is the same run all the same."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.runs.run_folder import RunFolder
from tests.tiers import thinned

opened: list[str] = []
listening = False


def listen(event: str, arguments: tuple[Any, ...]) -> None:
    if listening and event == "open":
        opened.append(str(arguments[0]))


sys.addaudithook(listen)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr("headway.core.storage.SETTLED", -1e6)  # the files of this test are new
    monkeypatch.setattr("headway.formats.corpus_format.check_file", lambda *given: None)  # reads the first line
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    lines = [f"{'ab' * (row % 5 + 1)} c{row % 7}\t{'BA' * (row % 5 + 1)} C{row % 7}\n" for row in range(200)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("".join(lines[:20]), encoding="utf-8")
    yield
    globals()["listening"] = False


def train(tmp_path: Path, name: str, seed: int, **sections: Any) -> tuple[RunFolder, list[str]]:
    """A run, and the raw files of training that were read for it."""
    stack = {"layers": 1}
    tree = {
        "data": {"train": {"tsv": str(tmp_path / "train.tsv")}, "dev": {"tsv": str(tmp_path / "dev.tsv")}},
        "vocabulary": {"kind": "bpe", "size": 24},
        "model": {"dim": 8, "heads": 1, "feed_forward": 8, "encoder": stack, "decoder": stack},
        "training": {"updates": 1, "seed": seed, "precision": "float32", "batch_tokens": 100},
        "decoding": {"beam": 1, "max_length": 3},
    }
    opened.clear()
    globals()["listening"] = True
    headway.train(tree | sections, tmp_path / name)
    globals()["listening"] = False
    return RunFolder(tmp_path / name), [path for path in opened if path.endswith("train.tsv")]


@pytest.mark.parametrize(
    "sections",
    thinned(
        [
            {},
            {"vocabulary": {"kind": "unigram", "size": 24, "shared": True}},
            {
                "vocabulary": {"kind": "word", "target": {"kind": "char"}},
                "text": {"source": {"segment": "moses", "language": "en"}},
            },
        ],
        3,
        2,
    ),
    ids=str,
)
def test_a_second_start_reads_no_text_and_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any]
) -> None:
    first, read = train(tmp_path, "first", 1, **sections)
    assert read
    second, read = train(tmp_path, "second", 2, **sections)
    assert read == []
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "another"))
    alone, read = train(tmp_path, "alone", 2, **sections)
    assert read
    assert first.vocabulary_hashes() == second.vocabulary_hashes() == alone.vocabulary_hashes()
    assert first.read_manifest()["data"] == second.read_manifest()["data"] == alone.read_manifest()["data"]
    assert second.weights.read_bytes() == alone.weights.read_bytes() != first.weights.read_bytes()


def test_other_text_and_other_options_have_other_vocabularies(tmp_path: Path) -> None:
    first, _ = train(tmp_path, "first", 1)
    for name, sections in (
        ("size", {"vocabulary": {"kind": "bpe", "size": 25}}),
        ("text", {"text": {"source": {"normalise": ["lower"]}, "target": {"normalise": ["lower"]}}}),
    ):
        assert train(tmp_path, name, 1, **sections)[0].vocabulary_hashes() != first.vocabulary_hashes()
    file = tmp_path / "train.tsv"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_text(file.read_text(encoding="utf-8").replace("c", "d"), encoding="utf-8")
    os.utime(file, ns=times)
    other, read = train(tmp_path, "other", 1)
    assert read
    assert other.vocabulary_hashes() != first.vocabulary_hashes()
    assert other.read_manifest()["data"] != first.read_manifest()["data"]


def test_damaged_vocabularies_are_trained_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, _ = train(tmp_path, "first", 1)
    (kept,) = (path for path in (tmp_path / "cache" / "vocabularies").iterdir() if path.name != ".lock")
    model = next(path for path in sorted(kept.rglob("*")) if path.suffix == ".model")
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    second, read = train(tmp_path, "second", 1)
    assert read
    assert sum(f"{kept} is damaged" in message for message in caplog.messages) == 1
    assert second.weights.read_bytes() == first.weights.read_bytes()
