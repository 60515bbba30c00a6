"""Cleaning: what each rule rejects and what is so near that it stays, and corpora from files to files."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core import errors
from headway.core.errors import UserError
from headway.corpora.cleaning import RULES, Facts, clean_corpus, repaired
from headway.formats.corpus_format import Pair
from tests.conftest import Command

WORDS = ["the", "dog"] * 75


def facts(*languages: str | None) -> Facts:
    return Facts([], languages, identified=True)


def broken_by(source: str, target: str, languages: tuple[str, str] = ("en", "de")) -> list[str]:
    """The rules that the repaired texts of a pair break."""
    texts, known = repaired(Pair(1, source, target)), facts(*languages)
    return [name for name, breaks in RULES["mozilla"].items() if breaks(texts, known)]


@pytest.mark.parametrize(
    ("rule", "rejected", "kept"),
    [
        ("empty", ("Where is the dog?", " \u3000"), ("Where is the dog?", "Wo ist der Hund?")),
        ("markup", ("The <b>dog</b> is here.", "Der Hund ist hier."), ("The <b>dog</b>.", "Der <i>Hund</i>.")),
        ("markup", ("The dog {{is}} here.", "Der Hund ist hier."), ("a < b and a > c", "a < b und a > c")),
        ("markup", ("The dog .mw-parser-output", "Der Hund .mw-parser-output"), ("The dog", "Der Hund")),
        ("length", (" ".join([*WORDS, "dog"]), " ".join(WORDS)), (" ".join(WORDS), " ".join(WORDS))),
        ("word_length", ("o" * 151, "oh"), ("o" * 150, "oh")),
        ("ratio", ("a dog in the sun", "ein Hund"), ("a dog in sun", "ein Hund")),
        ("ratio", ("the dog", "ja der Hund da drüben"), ("the dog", "ja der Hund da")),
        ("words", ("1 2 3 dog", "der Hund da drüben"), ("1 2 dog bite", "der Hund da drüben")),
        ("letters", ("dog 12345", "Hund abends"), ("dog 123", "Hund abends")),
        ("letters", ("कि---", "der Hund"), ("कि--", "der Hund")),
        ("numbers", ("They have 12 dogs.", "Sie haben 13 Hunde."), ("They have 1,200.5 dogs.", "Sie haben 1.200,5.")),
        ("numbers", ("at 10:30 in 2 dogs", "um 10:30 in 3 Hunden"), ("at 10:30 and 7 in 2", "um 10:30 und 7 in 3")),
        ("numbers", ("They have 012 dogs.", "Sie haben Hunde."), ("They have 012 dogs.", "Sie haben ١٢ Hunde.")),
        ("addresses", ("See http://a.org/x now.", "Siehe http://a.de/x."), ("See http://a.org/x.", "(http://a.org/x)")),
        ("addresses", ("Write to me@a.org.", "Schreib mir."), ("Write to me@a.org.", "Schreib an me@a.org")),
        ("language", ("Where is the dog?", "¿Dónde está el perro grande?"), ("Where is he?", "Wo ist der große Hund?")),
        ("language", ("Où est le chien noir ?", "Wo ist der Hund?"), ("The black dog", "Wo ist der Hund?")),
        ("equal", ("The Dog", "the dog"), ("The Dog", "the dogs")),
        ("untranslated", ("Click OK right now here", "Click OK right now here auf der da"), ("a b c", "a b c d e")),
    ],
)
def test_rules_at_their_limits(rule: str, rejected: tuple[str, str], kept: tuple[str, str]) -> None:
    assert rule in broken_by(*rejected)
    assert rule not in broken_by(*kept)


def test_words_are_not_compared_with_texts_without_spaces() -> None:
    for source, target in (("There are 3 dogs in the house.", "家に犬が三匹います。"), ("Oh!", "。" * 200)):
        assert not {"word_length", "ratio", "words", "letters", "numbers"} & {*broken_by(source, target, ("en", "ja"))}
    assert "ratio" in broken_by("There are dogs in the house.", "집에 개가", ("en", "de"))
    assert "ratio" not in broken_by("There are dogs in the house.", "집에 개가", ("en", "ko"))
    assert Facts([("a dog", "家に犬がいます。")], (None, None), identified=False).spaced == [True, False]


def test_languages_are_judged_if_they_are_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway")
    assert facts("nb", "pt-BR").labels == ["no", "pt"]
    assert caplog.messages == []
    assert facts("ast", None).labels == [None, None]
    assert [message.split(":")[0] for message in caplog.messages] == ["source", "target"]
    assert "py3langid does not know Asturian" in caplog.messages[0]
    assert "target_language" in caplog.messages[1]


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    assert facts(None, None).labels == [None, None]
    with pytest.raises(UserError, match=r"headway\[filter\]"):
        facts("en", None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("a\u00a0\tb  c ", "x&nbsp;&amp; y&#10;"), ("a b c", "x & y")),
        (("the dog[1] ran [2]", "der Hund[3] lief"), ("the dog ran", "der Hund lief")),
        (("the dog [1]", "der Hund [1]"), ("the dog [1]", "der Hund [1]")),
        (("[[dog|The dog]] and [[cat]]", "Der Hund"), ("The dog and cat", "Der Hund")),
        (("[[dog]]", "[[Hund]]"), ("[[dog]]", "[[Hund]]")),
        (("== History ==", "Geschichte"), ("History", "Geschichte")),
    ],
)
def test_repairs(given: tuple[str, str], expected: tuple[str, str]) -> None:
    assert repaired(Pair(1, *given)) == expected


def test_long_texts_take_linear_time() -> None:
    """Patterns that scan a text again from each of its positions would take hours."""
    for piece in ("=", "== ", "[[", "[[a|", "<a", "1", "1.", "1,a", "a.", "a", "a@", "&a", "{", "www."):
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        broken_by(text, "a", ("ja", "ast"))
        assert time.process_time() - began < 10, piece


ROWS = [
    ("id", "en", "de"),
    ("1", "The  dog &amp; the cat sleep.", "Der Hund und die Katze schlafen."),
    ("2", "The dog sleeps now.", ""),
    ("3", "The dog & the cat sleep.", "Der Hund und die Katze schlafen."),
    ("4", "There are 3 dogs in the house.", "Im Haus sind 4 Hunde."),
    ("5", "Yesterday we went home.", "Gestern gingen wir nach Hause."),
]
KEPT = [("The dog & the cat sleep.", ROWS[1][2]), ROWS[5][1:]]
SAID = "kept: 2 of 5 pairs, 1 with repaired text\nrejected 1: empty\nrejected 1: numbers\nrejected 1: duplicate\n"


def test_a_table_with_named_columns(tmp_path: Path, run_headway: Command) -> None:
    table, output = tmp_path / "all.tsv", tmp_path / "new"
    table.write_text("".join("\t".join(row) + "\n" for row in ROWS), encoding="utf-8")
    given = ("data", "filter", table, "--columns", "en", "de", "--rules", "mozilla", "--output")
    ended = run_headway(*given, output)
    assert (ended.code, ended.out) == (0, SAID)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tsv", "new"]
    assert (output / "kept.tsv").read_text(encoding="utf-8") == "".join("\t".join(pair) + "\n" for pair in KEPT)
    rejected = [row.split("\t") for row in (output / "rejected.tsv").read_text(encoding="utf-8").splitlines()]
    assert [row[:2] for row in rejected] == [["rule", "line"], ["empty", "3"], ["duplicate", "4"], ["numbers", "5"]]
    assert rejected[3][2:] == [*ROWS[4][1:]]
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    counts = manifest["counts"]
    assert (counts["kept"], counts["repaired"], counts["unreadable"]) == (2, 1, 0)
    assert {rule: count for rule, count in counts["rejected"].items() if count} == {
        "empty": 1,
        "duplicate": 1,
        "numbers": 1,
    }
    assert manifest["identified"] == manifest["languages"] == ["en", "de"]
    again = run_headway(*given, output)
    assert (again.code, "there is something there already" in again.err) == (2, True)
    assert run_headway(*given, tmp_path / "more", "--without", "numbers", "empty").out.startswith("kept: 3 of 5 pairs")


def test_two_files_stay_two_files(tmp_path: Path, run_headway: Command) -> None:
    for suffix, column in (("en", 1), ("de", 2)):
        (tmp_path / f"all.{suffix}").write_text("".join(f"{row[column]}\n" for row in ROWS[1:]), encoding="utf-8")
    files = (tmp_path / "all.en", tmp_path / "all.de")
    ended = run_headway("data", "filter", *files, "--output", tmp_path / "new")
    assert (ended.code, ended.out) == (0, SAID)
    texts = [(tmp_path / "new" / f"kept.{suffix}").read_text(encoding="utf-8") for suffix in ("en", "de")]
    assert [*zip(*map(str.splitlines, texts), strict=True)] == KEPT


def test_a_pipe_is_read_once(tmp_path: Path, run_headway: Command, pipe: Callable[[str, bytes], Path]) -> None:
    path = pipe("pipe", "".join("\t".join(row) + "\n" for row in ROWS).encode())
    ended = run_headway("data", "filter", path, "--columns", "en", "de", "--output", tmp_path / "new")
    assert (ended.code, ended.out) == (0, SAID)
    assert json.loads((tmp_path / "new" / "manifest.json").read_text(encoding="utf-8"))["files"] == {str(path): None}


def test_json_lines_and_rows_that_cannot_be_read(tmp_path: Path) -> None:
    records = [json.dumps({"en": row[1], "de": row[2]}) for row in ROWS[1:]]
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join([*records, "{"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"all.jsonl:6: this line is not JSON.*skip_broken"):
        clean_corpus([path], ["en", "de"], tmp_path / "new", ["en", "de"])
    cleaned = clean_corpus([path], ["en", "de"], tmp_path / "new", ["en", "de"], broken="skip")
    assert cleaned.text() == f"{SAID}left out 1: rows that cannot be read"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--without", "nonsense"], "--without: there is no such rule; received 'nonsense'; allowed: empty, markup"),
        (["--source-language", "jp"], "did you mean 'ja'?"),
        (["--columns", "1", "1"], "--columns: columns are one of the source"),
        ([], "all.tsv: no pair is left; received"),
    ],
)
def test_mistakes_write_nothing(tmp_path: Path, run_headway: Command, words: list[str], message: str) -> None:
    (tmp_path / "all.tsv").write_text("a dog\ta dog\n\t\n", encoding="utf-8")
    ended = run_headway("data", "filter", tmp_path / "all.tsv", "--output", tmp_path / "new", *words)
    assert ended.code == 2
    assert message in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["all.tsv"]


def test_a_killed_process_leaves_no_folder(tmp_path: Path, run_headway: Command) -> None:
    letters = str.maketrans("0123456789", "abcdefghij")
    pairs = [f"dog {number:06}\tHund {number:06} da" for number in range(20_000)]
    (tmp_path / "all.tsv").write_text("\n".join(pairs).translate(letters), encoding="utf-8")
    words = ["data", "filter", tmp_path / "all.tsv", "--output", tmp_path / "new", "--without", "language"]
    process = subprocess.Popen([sys.executable, "-m", "headway", *map(str, words)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 50
    while not any(path.stat().st_size for path in tmp_path.glob("*.tmp/corpus/kept.tsv")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not (tmp_path / "new").exists()
    assert run_headway(*words).out == "kept: 20,000 of 20,000 pairs, 0 with repaired text\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tsv", "new"]
