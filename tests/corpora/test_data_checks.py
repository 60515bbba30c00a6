"""What `headway data check` says: reports, overlap, characters that are new, and every row that cannot be read."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from headway.core.errors import UserError
from headway.corpora.data_checks import (
    CHARACTERS_SHOWN,
    DataCheck,
    Overlap,
    UnseenCharacters,
    allowed_by,
    described,
    every_error,
    findings,
    overlap,
    shared_by,
    unseen_characters,
)
from headway.formats.corpus_config import AnyCorpus
from headway.formats.corpus_format import Pair
from headway.formats.pairs import open_source
from headway.processing.text.text_processor import PreparationConfig
from headway.recipe import load_recipe
from headway.tasks import build_task
from tests.conftest import Command

ROWS = [
    '{"s": "a b", "t": "x"}',
    "no JSON",
    '{"s": "a"}',
    '{"s": "b ö", "t": "y\\nz"}',
    '{"s": "a", "s": "b", "t": "x"}',
]
RECIPE = {
    "data": {"train": {"jsonl": "train.jsonl", "columns": ["s", "t"]}, "dev": {"tsv": "dev.tsv"}},
    "vocabulary": {"kind": "char"},
    "model": {"dim": 8, "feed_forward": 8, "heads": 2, "encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "training": {"updates": 1},
}


def write_recipe(
    folder: Path, rows: Sequence[str] = ROWS, dev: Sequence[str] = ("a b\tx", "é é\tü", "a\tü", "")
) -> Path:
    (folder / "train.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (folder / "dev.tsv").write_text("".join(f"{row}\n" for row in dev), encoding="utf-8")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    return folder / "recipe.yaml"


def test_every_bad_row_is_counted_and_listed(tmp_path: Path, run_headway: Command) -> None:
    ended = run_headway("data", "check", write_recipe(tmp_path))
    lines = ended.out.splitlines()
    assert lines[0] == "data.train: 2 pairs read, 2 kept"
    assert lines[1] == "  left out 3: rows that cannot be read"
    assert "  changed 1: characters that end a line are spaces now (line 4)" in lines
    named = lines[lines.index("data.train: 3 rows cannot be read") + 1 :]
    file = tmp_path / "train.jsonl"
    assert named[0].startswith(f"  {file}:2: this line is not JSON (")
    assert named[1] == f"  {file}:3: there is no text in a field t; received {{'s': 'a'}}"
    assert named[2] == f"  {file}:5: this line is not JSON (the field 's' is there twice)"
    assert len(named) == 3
    assert ended.code == 2
    what = "training would end here: 3 rows cannot be read; allowed: data.broken: skip leaves them out"
    assert ended.err.endswith(f"error: data.train: {what}\n")


def test_bad_rows_are_left_out_where_the_recipe_says_so(tmp_path: Path, run_headway: Command) -> None:
    recipe = write_recipe(tmp_path)
    ended = run_headway("data", "check", recipe, "data.broken=skip", "--json")
    content = json.loads(ended.out)
    assert ended.code == 0
    assert content["train"]["rows"]["broken"] == len(content["broken"]["train"]) == 3
    assert content["broken"]["dev"] == []
    failed = run_headway("train", recipe, "--output", tmp_path / "run")
    assert failed.code == 2
    assert "train.jsonl:2: this line is not JSON" in failed.err
    trained = run_headway("train", recipe, "data.broken=skip", "--output", tmp_path / "other")
    assert trained.code == 0, trained.err
    assert "left out 3: rows that cannot be read" in trained.err
    assert "    line 2: this line is not JSON" in trained.err


def test_training_finds_what_a_check_has_made(
    tmp_path: Path, run_headway: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    recipe_file = write_recipe(tmp_path, [ROWS[0], ROWS[3]], ["a b\tx"])
    assert run_headway("data", "check", recipe_file).code == 0
    for name in ("tasks.translation.new_processors", "corpora.corpus.chunks"):
        monkeypatch.setattr(f"headway.{name}", lambda *given: pytest.fail("this is made again"))
    recipe = load_recipe(recipe_file)
    assert len(build_task(recipe.task).corpora(recipe, tmp_path / "vocabulary").train) == 2


def test_what_training_would_refuse_is_refused(tmp_path: Path, run_headway: Command) -> None:
    """Filters that leave nothing, of all pairs or of one corpus that has a weight; a dev set beyond what is learned.

    They are told after the account, as in training.
    """
    recipe, other = write_recipe(tmp_path, dev=("a b a b a b\tx",)), tmp_path / "other.tsv"
    other.write_text("a a a a a\tb\n", encoding="utf-8")
    (tmp_path / "three.tsv").write_text("a\tb\tc\n", encoding="utf-8")
    weighed = [RECIPE["data"]["train"] | {"weight": 1}, {"tsv": "other.tsv", "weight": 2}]
    cases = (
        (["data.max_length=1"], "error: data.train: no pair is left to train on; received {'over max_length': 2}"),
        ([f"data.train={json.dumps(weighed)}"], "error: data.train.1: no pair is left of this corpus to be drawn"),
        (
            ["model.max_position=8", "model.position=learned"],
            "error: data.dev: a pair of 12 and 2 tokens is longer than what",
        ),
        (
            ["data.dev=[{tsv: other.tsv}, {tsv: three.tsv, columns: [1, 2, 3]}]"],
            "error: data.dev: the corpora of a list need equally many references; received '1 in line 1, 2 in line 2'",
        ),
    )
    for number, (changes, message) in enumerate(cases):
        options = (recipe, "data.broken=skip", "data.max_length=4", *changes)
        ended = run_headway("data", "check", *options)
        assert (ended.code, ended.out.startswith("data.train: "), message in ended.err) == (2, True, True), ended.err
        assert message in run_headway("train", *options, "--output", tmp_path / f"run{number}").err


def test_characters_that_no_training_text_has(tmp_path: Path, run_headway: Command) -> None:
    recipe = write_recipe(tmp_path)
    out = run_headway("data", "check", recipe, "data.broken=skip").out
    named = "2 characters (1 different: é U+00E9 LATIN SMALL LETTER E WITH ACUTE 2) never seen in training"
    assert f"data.dev: in the sources, {named}" in out
    content = json.loads(run_headway("data", "check", recipe, "data.broken=skip", "--json").out)
    assert content["unseen_characters"] == {"source": {"é": 2}, "target": {"ü": 2}}


def test_characters_are_named() -> None:
    assert described({"\u200b": 3, "é": 1}).startswith(
        "4 characters (2 different: U+200B ZERO WIDTH SPACE 3, é U+00E9 LATIN SMALL LETTER E WITH ACUTE 1)"
    )
    many = described({chr(0x4E00 + number): 1 for number in range(CHARACTERS_SHOWN + 1)})
    assert many.count("CJK UNIFIED IDEOGRAPH") == CHARACTERS_SHOWN
    assert ", ...)" in many
    assert described({"\ue000": 1}).endswith("(1 different: U+E000 without a name 1) never seen in training")
    pairs = [Pair(1, "/a/ö.wav", "x", ("x", "z"))]
    assert unseen_characters([Pair(1, "a", "x")], pairs, sources=False) == UnseenCharacters({}, {"z": 1})
    tree = Pair(1, "a b", "(S X X )S", ("(S (X a) (X b))",))
    assert unseen_characters([tree], [tree]) == UnseenCharacters({}, {})


def test_a_large_overlap_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    train = [Pair(number, f"s{number}", f"t{number}") for number in range(100)]
    new = [Pair(number, f"n{number}", "t") for number in range(96)]
    small, large = overlap(train, [*new, *train[:4]]), overlap(train, [*new[:95], *train[:5]])
    assert (small.pairs, small.is_large) == (4, False)
    assert (large.pairs, large.is_large) == (5, True)
    assert not Overlap(0, 0, 0).is_large
    with caplog.at_level(logging.INFO, "headway"):
        small.tell()
        large.tell()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    check = DataCheck([], {}, None, large, UnseenCharacters({}, {}))
    assert check.text() == f"warning: {large}; scores of dev say less of new text"
    assert DataCheck([], {}, None, small).text() == str(small)


def test_white_space_does_not_hide_an_overlap() -> None:
    spaces = [f"a{space}b" for space in (" ", "  ", "\t", "\u3000", "\xa0")]
    dev = [Pair(1, " a b", "c  d"), Pair(2, "ab", "cd")]
    for source in spaces:
        assert overlap([Pair(1, source, "c d ")], dev) == Overlap(dev_pairs=2, pairs=1, sources=1)
    assert overlap([Pair(1, "ab", "c d")], dev) == Overlap(dev_pairs=2, pairs=0, sources=1)


def test_pairs_with_one_text_on_both_sides(tmp_path: Path, run_headway: Command) -> None:
    """Also behind a tag, and in the second file of two, whose lines are counted by themselves."""
    (tmp_path / "other.tsv").write_text("b  a\tb a\na\tc\na\ta\n", encoding="utf-8")
    recipe = write_recipe(tmp_path, dev=["a\tb", "c\tc"])
    corpora = [RECIPE["data"]["train"] | {"tag": "<2x>"}, {"tsv": "other.tsv", "tag": "<2y>"}]
    ended = run_headway("data", "check", recipe, "data.broken=skip", f"data.train={json.dumps(corpora)}")
    where = f"{tmp_path / 'other.tsv'}"
    assert f"data.train: 2 of 5 pairs have the same text on both sides (line {where}:1, {where}:3)" in ended.out
    assert "data.dev: 1 of 2 pairs have the same text on both sides (line 2)" in ended.out


def test_targets_that_tokenization_changes() -> None:
    pairs = [Pair(1, "x", "A b, c."), Pair(2, "x", "a <b>"), Pair(3, "x", "a  b"), Pair(4, "x", "<c>")]
    moses = PreparationConfig(segment="moses")
    (found,) = findings("data.train", pairs, moses, str, source=PreparationConfig())
    what = "data.train: 2 of 4 targets do not come back as they were from text.target.segment: moses"
    assert found.text() == f"{what} (line 2, 4); 'a <b>' becomes 'a < b >'"
    assert findings("data.train", pairs, PreparationConfig(segment="whitespace"), str, source=PreparationConfig()) == []
    lowered = PreparationConfig(segment="moses", normalise=("lower",))
    assert [one.count for one in findings("data.train", pairs, lowered, str, source=PreparationConfig())] == [2]
    assert findings("data.train", [Pair(1, "a", "a")], moses, str, source=None) == []


def test_lines_that_cleaning_changes_are_counted() -> None:
    pairs = [Pair(1, "a\u00a0b", "a c"), Pair(2, "b", "b\u00ad"), Pair(3, "e", "e\u0301"), Pair(4, "c", "d")]
    (found,) = findings("data.train", pairs, PreparationConfig(), str, source=PreparationConfig())
    assert (found.count, found.lines) == (3, ("1", "2", "3"))
    kept = PreparationConfig(clean=False)
    assert findings("data.train", pairs, kept, str, source=kept) == []
    (found,) = findings("data.train", pairs, PreparationConfig(), str, source=None)
    assert found.lines == ("2", "3")


def test_shared_and_broken(parallel: Callable[..., AnyCorpus]) -> None:
    train = open_source(parallel(["a b", "c", "d d d"], ["A", "C", "D"]), "data.train", "skip")
    dev = open_source(parallel(["c", "", "d d d"], ["C", "A", "A"], name="dev"), "data.dev")
    shared, unseen = shared_by(train, dev)
    assert shared == Overlap(dev_pairs=2, pairs=1, sources=2)
    assert unseen == UnseenCharacters({}, {})
    assert shared_by(train, None) == (None, None)
    assert every_error(train) == []
    DataCheck([], {"data.train": ["x"]}, None).refuse()
    with pytest.raises(UserError, match=r"data\.dev: training would end here: 2 rows .* data\.audio\.broken: skip"):
        DataCheck([], {"data.train": [], "data.dev": ["x", "y"]}, allowed_by("error", "data.audio.broken")).refuse()
    assert allowed_by("skip") is None


def test_parses_that_training_would_miss_are_told(tmp_path: Path, run_headway: Command) -> None:
    (tmp_path / "parses.conllu").write_text("1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    changes = (
        "data.broken=skip",
        f"data.parses.source=conllu:{tmp_path / 'parses.conllu'}",
        "model.encoder.mixer=dependency",
        "objective.dependency.sides=[source]",
    )
    ended = run_headway("data", "check", write_recipe(tmp_path), *changes)
    assert ended.code == 2
    assert "these sentences have no parses yet; allowed: headway data annotate" in ended.err
