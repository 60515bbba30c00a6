"""Lines that name recordings: paths, rows and JSON."""

from pathlib import Path

import pytest

from headway.cli.streams import recording_paths
from headway.core.errors import UserError
from headway.formats.corpus_config import parse_corpus


def test_recordings_stand_in_the_column_of_training_or_alone(tmp_path: Path) -> None:
    corpus = parse_corpus({"tsv": tmp_path / "train.tsv", "columns": [3, 2]}, "data.train")
    lines = ["7\tone\ta.wav", "b.wav", '{"audio": "c.wav"}']
    assert list(recording_paths(corpus, lines, "standard input")) == ["a.wav", "b.wav", "c.wav"]
    wrong, path = recording_paths(corpus, ["7\tone", "b.wav"], "standard input")
    assert str(wrong) == r"standard input:1: this line names no recording; received '7\tone'"
    assert path == "b.wav"
    lines = ["7\tone\tb/a.wav ", "", "/c.wav"]
    assert list(recording_paths(corpus, lines, "list", tmp_path)) == [f"{tmp_path}/b/a.wav", "", "/c.wav"]


def test_recordings_are_named_as_in_training(tmp_path: Path) -> None:
    corpus = parse_corpus({"tsv": tmp_path / "train.tsv", "columns": ["audio", "text"]}, "data.train")
    assert list(recording_paths(corpus, ["text\taudio", "one\ta.wav"], "list")) == ["a.wav"]
    with pytest.raises(UserError, match=r"list:1: no column has this name; received 'audio'; allowed: text, sound"):
        list(recording_paths(corpus, ["text\tsound", "one\ta.wav"], "list"))
    nested = parse_corpus({"jsonl": tmp_path / "train.jsonl", "columns": ["audio.path", "text"]}, "data.train")
    assert list(recording_paths(nested, ['{"audio": {"path": "a.wav"}}', "b.wav"], "list")) == [
        "a.wav",
        "b.wav",
    ]
    for line, message in {
        '{"audio": 3}': "list:1: there is no text in a field audio.path", "{": "list:1: this line is not JSON", "\tone":
        "list:1: this line names no recording",
    }.items():  # fmt: skip
        (wrong,) = recording_paths(nested, [line], "list")
        assert isinstance(wrong, UserError)
        assert str(wrong).startswith(message)
