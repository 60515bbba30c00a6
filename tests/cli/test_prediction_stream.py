"""`headway predict` and `headway score RUN` over streams of lines."""

import gzip
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import headway
from headway.cli import main
from headway.predictors.captured_attention import END
from headway.predictors.formatter import Formatted, Formatter
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.subwords import SubwordVocabulary
from tests.conftest import Command, Reversal, start_headway


def lines(*texts: str) -> str:
    return "".join(f"{text}\n" for text in texts)


def test_in_a_process_of_its_own(reversal: Reversal) -> None:
    """Order and blank lines kept, CRLF read, the last line without an end; nothing else on either stream."""
    given = b"abcd\n\nab\r\n   \n\r\ndcba\r\nba"
    code, out, err = start_headway("predict", reversal.run, stdin=given, PYTHONIOENCODING="ascii")
    assert (code, out, err) == (0, "dcba\n\nba\n\n\nabcd\nab\n", "")


def test_no_line_no_output(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    for given in ((), ("--input", tmp_path / "none")):
        assert run_headway("predict", reversal.run, *given) == (0, "", "warning: the input has no lines\n")
    assert run_headway("predict", reversal.run, stdin="\n") == (0, "\n", "")


def test_a_byte_order_mark_is_no_text(run_headway: Command, reversal: Reversal) -> None:
    assert run_headway("predict", reversal.run, stdin=b"\xef\xbb\xbfabcd\n").out == "dcba\n"


def test_scores_stand_in_a_column_of_their_own(
    run_headway: Command, reversal: Reversal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Formatter, "output", lambda formatter, line, text: Formatted(f"{text}\t\u2028x"))
    for options, count in ((("--scores",), 2), (("--nbest", "2", "--beam", "2"), 4)):
        ended = run_headway("predict", reversal.run, *options, stdin="ab\nabcd\n")
        rows = [row.split("\t") for row in ended.out.splitlines()]
        assert [len(row) for row in rows] == [2] * count
        assert rows[0][1] == "ba  x"
        assert ended.err == f"{count} outputs have tabs, which are written as spaces beside scores\n"
    assert run_headway("predict", reversal.run, stdin="ab\n") == (0, "ba\t\u2028x\n", "")


def test_only_line_feeds_end_a_line(run_headway: Command, reversal: Reversal) -> None:
    assert run_headway("predict", reversal.run, stdin="ab\u2028cd\x0cab\u0085\n").out.count("\n") == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [(b"\xff", "standard input:3: invalid UTF-8"), (b"ab" * 2000, "line 3: this line is too long")],
)
def test_lines_before_one_at_fault_are_answered(
    run_headway: Command, reversal: Reversal, fault: bytes, message: str
) -> None:
    """However many lines come at once, the answers are the same."""
    ended = run_headway("predict", reversal.run, "--scores", stdin=b"abcd\nab\n" + fault + b"\nabc\n")
    assert (ended.code, [line.split("\t")[1] for line in ended.out.splitlines()]) == (2, ["dcba", "ba"])
    assert message in ended.err


def test_each_line_at_fault_can_be_skipped(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    content = b"abcd\n\xff\n" + b"ab" * 2000 + b"\nabc\n"
    (tmp_path / "lines").write_bytes(content)
    for ended in (
        run_headway("predict", reversal.run, "--skip-broken", stdin=content),
        run_headway("predict", reversal.run, "--skip-broken", "--input", tmp_path / "lines"),
    ):
        assert (ended.code, ended.out) == (0, "dcba\n\n\ncba\n")
        assert "2 of 4 were skipped; their lines are empty" in ended.err
        assert "--truncate cuts longer ones" in ended.err


def test_prefixes_of_lines_before_one_at_fault(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "begin").write_text("d\nb\n?\n")
    ended = run_headway("predict", reversal.run, "--prefix", tmp_path / "begin", stdin="abcd\nab\nab\n")
    assert (ended.code, ended.out) == (2, "dcba\nba\n")
    assert "line 3: this beginning of an output has tokens that are not in the vocabulary" in ended.err


def test_files_in_the_place_of_the_standard_streams(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    """Compressed text is read; a file of results is whole or not there, also where some were written already."""
    given, written, link = tmp_path / "test.gz", tmp_path / "test.out", tmp_path / "link"
    given.write_bytes(gzip.compress(b"abcd\n\nab"))
    link.symlink_to("test.out")
    files = ("--input", given, "--output", link)
    assert run_headway("predict", reversal.run, *files) == (0, "", "")
    assert written.read_text(encoding="utf-8") == "dcba\n\nba\n"
    given.write_bytes(gzip.compress(b"ab\n\xff\n"))
    ended = run_headway("predict", reversal.run, *files)
    assert (ended.code, f"{given}:2: invalid UTF-8" in ended.err) == (2, True)
    assert written.read_text(encoding="utf-8") == "dcba\n\nba\n"
    ended = run_headway("predict", reversal.run, "--input", tmp_path / "missing")
    assert (ended.code, "--input" in ended.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "test.gz", "test.out"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_outputs_go_to_standard_output_by_name(
    reversal: Reversal, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "lines").write_text("abcd\n", encoding="utf-8")
    command = ["predict", str(reversal.run), "--input", str(tmp_path / "lines")]
    for option, shown in (("--output", "dcba\n"), ("--alignments", "dcba\n0-0\n")):
        with pytest.raises(SystemExit) as ended:
            main([*command, option, name])
        assert ended.value.code in (0, None)
        assert sorted(capfd.readouterr().out) == sorted(shown)


def test_a_named_pipe_is_an_output(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read = list[str]()
    reader = Thread(target=lambda: read.append((tmp_path / "pipe").read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert run_headway("predict", reversal.run, "--output", tmp_path / "pipe", stdin="abcd\n").code == 0
    reader.join(timeout=60)
    assert read == ["dcba\n"]


def test_a_process_answers_each_line_before_the_next_is_written(reversal: Reversal) -> None:
    """A loop of a shell keeps one process, whose model is loaded once, also with sentences of their own."""
    for options in ((), ("--split-sentences",)):
        with subprocess.Popen(
            [sys.executable, "-m", "headway", "predict", str(reversal.run), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"},
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            for word in ("abcd", "", "ab"):
                process.stdin.write(f"{word}\n".encode())
                process.stdin.flush()
                assert process.stdout.readline().decode() == f"{word[::-1]}\n"
            process.stdin.close()
            assert process.wait(60) == 0


def test_lines_of_several_sentences_are_counted_and_translated_sentence_by_sentence(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model was trained on single words; full stops are unknown to it."""
    given = tmp_path / "lines.txt"
    given.write_text("abcd abcd. Dcba!\n\nabc\nab ab? Cd cd! Dddd ab.\n", encoding="utf-8")
    sentences = ["abcd abcd.", "Dcba!", "", "abc", "ab ab?", "Cd cd!", "Dddd ab."]
    texts = [each.text for each in headway.load(reversal.run).predict(sentences)]
    command = ("predict", reversal.run, "--input", given)
    plain = run_headway(*command)
    said = "the model was trained on single sentences; --split-sentences translates each by itself"
    assert f"2 lines have more than one sentence; {said}\n" in plain.err
    split = run_headway(*command, "--split-sentences")
    assert (split.code, "more than one" in split.err) == (0, False)
    assert split.out == lines(" ".join(texts[:2]), "", texts[3], " ".join(texts[4:]))
    given.write_text("abcd ab.\n", encoding="utf-8")
    assert "more than one" not in run_headway(*command).err
    ended = run_headway(*command, "--split-sentences", "--scores")
    assert (ended.code, "--scores: translation has no such option" in ended.err) == (2, True)
    monkeypatch.setattr("headway.predictors.sentence_translator.has_several_sentences", lambda text: True)
    given.write_text("abcd abcd. Dcba!\n", encoding="utf-8")
    assert "more than one" not in run_headway(*command).err


def test_a_document_as_lines_is_a_question(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    for name in ("a.po", "a.html", "a.SRT", "a.xliff", "a.md"):
        (tmp_path / name).write_text("abcd\n", encoding="utf-8")
        ended = run_headway("predict", reversal.run, "--input", tmp_path / name)
        assert (ended.code, ended.out) == (2, "")
        assert f"allowed: --file {tmp_path / name}" in ended.err
    (tmp_path / "a.txt").write_text("abcd\n", encoding="utf-8")
    assert run_headway("predict", reversal.run, "--input", tmp_path / "a.txt").out == "dcba\n"


def test_characters_of_the_input_that_training_never_had_are_told_once(
    run_headway: Command, reversal: Reversal
) -> None:
    ended = run_headway("predict", reversal.run, stdin="abc\nä ab\naäé\n")
    assert len(ended.out.splitlines()) == 3
    named = "ä U+00E4 LATIN SMALL LETTER A WITH DIAERESIS 2, é U+00E9 LATIN SMALL LETTER E WITH ACUTE 1"
    assert ended.err.count("never seen in training") == 1
    assert f"the input has 3 characters (2 different: {named}) never seen in training" in ended.err
    assert "never seen in training" not in run_headway("predict", reversal.run, stdin="abc\n").err


def test_outputs_are_one_line_whatever_the_model_learned(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose vocabulary has tokens that end lines, such as one of strangers, or of before they were replaced."""
    monkeypatch.setattr(
        SubwordVocabulary, "decode", lambda vocabulary, ids: "a\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b"
    )
    monkeypatch.setattr(SubwordVocabulary, "token", lambda vocabulary, id: "\x85\u2028\n")
    lines = "abc\nd\u2028a\n"
    for options, count in (((), 2), (("--nbest", "3"), 6)):
        ended = run_headway("predict", reversal.run, *options, stdin=lines)
        assert (ended.code, len(ended.out.splitlines())) == (0, count)
    files = ("--attention", tmp_path / "attention.jsonl", "--alignments", tmp_path / "alignments.jsonl")
    assert run_headway("predict", reversal.run, *files, stdin=lines).code == 0
    for path in (tmp_path / "attention.jsonl", tmp_path / "alignments.jsonl"):
        content = path.read_text(encoding="utf-8")
        assert len(content.splitlines()) == 2
        assert all(json.loads(line) for line in content.splitlines())


def test_most_words_are_learned(run_headway: Command, reversal: Reversal) -> None:
    said = run_headway("predict", reversal.run, stdin=lines(*reversal.words)).out.splitlines()
    assert len(said) == len(reversal.words)
    right = sum(text == word[::-1] for word, text in zip(reversal.words, said, strict=True))
    assert right > 0.9 * len(reversal.words)


def test_nbest_and_scores(run_headway: Command, reversal: Reversal) -> None:
    code, out, _ = run_headway("predict", reversal.run, "--nbest", "3", stdin=lines("abcd", "", "ab"))
    rows = [row.split("\t") for row in out.splitlines()]
    assert (code, len(rows)) == (0, 9)
    assert all(len(row) == 2 for row in rows)
    assert [rows[0][1], rows[6][1]] == ["dcba", "ba"]
    assert [text for _, text in rows[3:6]] == ["", "", ""]
    for start in (0, 6):
        scores = [float(score) for score, _ in rows[start : start + 3]]
        assert scores == sorted(scores, reverse=True)
        assert len({text for _, text in rows[start : start + 3]}) == 3
    single = run_headway("predict", reversal.run, "--scores", stdin=lines("abcd")).out
    assert single == "\t".join(rows[0]) + "\n"


@pytest.mark.parametrize("beam", ["1", "4"])
def test_lengths_are_kept(run_headway: Command, reversal: Reversal, beam: str) -> None:
    """Pieces are counted: each letter, and one for the space before the first."""
    given = lines("abcd", "ab")
    predict = ("predict", reversal.run, "--beam", beam)
    short = run_headway(*predict, "--max-length", "2", stdin=given).out.splitlines()
    long = run_headway(*predict, "--min-length", "9", stdin=given).out.splitlines()
    assert max(map(len, short)) <= 1
    assert min(map(len, long)) >= 7
    code, _, err = run_headway(*predict, "--min-length", "3", "--max-length", "2", stdin=given)
    assert code == 2
    assert "--min-length: the shortest output is longer than the longest; received 3; allowed: up to 2" in err


def test_greedy_is_beam_1(run_headway: Command, reversal: Reversal, predictor: SequencePredictor) -> None:
    given = [*reversal.words[:20], "abcdabcdabcd"]
    out = run_headway("predict", reversal.run, "--beam", "1", stdin=lines(*given)).out
    assert out == lines(*(each.text for each in predictor.predict(given, beam=1)))


def test_sampling_is_reproducible(run_headway: Command, reversal: Reversal) -> None:
    def draw(*options: str, given: tuple[str, ...] = ("abcdabcd",) * 8) -> list[str]:
        flags = ("--sample", "--temperature", "5", *options)
        return run_headway("predict", reversal.run, *flags, stdin=lines(*given)).out.splitlines()

    first = draw("--seed", "1")
    assert first == draw("--seed", "1") == draw("--seed", "1", "--batch-tokens", "1")
    assert first != draw("--seed", "2")
    assert len(set(first)) > 4  # every line has random numbers of its own
    greedy = run_headway("predict", reversal.run, "--beam", "1", stdin=lines("abcdabcd")).out.splitlines()
    assert draw("--top-k", "1") == draw("--top-p", "0.001") == greedy * 8


@pytest.mark.parametrize(
    ("count", "window"), [pytest.param(2100, SequencePredictor.together, marks=pytest.mark.slow), (120, 7)]
)
def test_many_lines_keep_their_order(
    run_headway: Command,
    reversal: Reversal,
    predictor: SequencePredictor,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    window: int,
) -> None:
    """More lines than one window, and than any batch, has, of which no two neighbours have the same answer."""
    monkeypatch.setattr(SequencePredictor, "together", window)
    words = reversal.words[:40]
    alone = {word: predictor.predict([word])[0].text for word in words}
    assert len(set(alone.values())) > 30
    given = [words[(7 * number) % len(words)] for number in range(count)]
    assert [one.text for one in predictor.predict(given)] == [alone[word] for word in given]
    code, out, _ = run_headway("predict", reversal.run, stdin=lines(*given))
    assert (code, out) == (0, lines(*(alone[word] for word in given)))


def test_prefixes_across_windows(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SequencePredictor, "together", 3)
    given = list(reversal.words[:10])
    prefixes = ["abcd"[number % 4] * (1 + number % 2) for number in range(10)]
    prefixes[4] = ""
    (tmp_path / "prefixes").write_text(lines(*prefixes), encoding="utf-8")
    code, out, err = run_headway("predict", reversal.run, "--prefix", tmp_path / "prefixes", stdin=lines(*given))
    said = out.splitlines()
    assert (code, len(said), err) == (0, 10, "")
    assert [text for text, prefix in zip(said, prefixes, strict=True) if not text.startswith(prefix)] == []
    assert said[4] == run_headway("predict", reversal.run, stdin=lines(given[4])).out.strip()


@pytest.mark.parametrize(
    ("count", "message"), [(3, "there must be one prefix a line"), (5, "there are more prefixes than lines")]
)
def test_another_number_of_prefixes(
    run_headway: Command, reversal: Reversal, tmp_path: Path, count: int, message: str
) -> None:
    (tmp_path / "prefixes").write_text("a\n" * count, encoding="utf-8")
    flags = ("--prefix", tmp_path / "prefixes")
    code, _, err = run_headway("predict", reversal.run, *flags, stdin="ab\n" * 4)
    assert code == 2
    assert err.startswith("error: --prefix")
    assert message in err


def test_what_is_wrong_with_a_file_is_found_before_anything_is_decoded(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A last line that is not UTF-8, or too long, or without a prefix, is not the end of hours of work."""

    def never(*given: Any, **options: Any) -> None:
        raise AssertionError("something was decoded")

    monkeypatch.setattr(SequencePredictor, "answer", never)
    monkeypatch.setattr(SequencePredictor, "together", 3)
    given, prefixes = tmp_path / "given", tmp_path / "prefixes"
    prefixes.write_text("a\n" * 4, encoding="utf-8")
    cases: list[tuple[bytes, tuple[Any, ...], str]] = [
        (b"\xff\n", (), f"{given}:7: invalid UTF-8"),
        (b"a" * 2000 + b"\n", (), f"{given}:7: this line is too long"),
        (b"ab\n", ("--prefix", prefixes), "there must be one prefix a line; received '4 prefixes'"),
    ]
    for last, options, message in cases:
        given.write_bytes(b"ab\n" * 6 + last)
        ended = run_headway("predict", reversal.run, "--input", given, *options)
        assert (ended.code, ended.out, message in ended.err) == (2, "", True), ended.err


def test_windows_keep_the_order(
    run_headway: Command, reversal: Reversal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [*reversal.words[:7], "", *reversal.words[7:12]]
    sampled = ("--sample", "--temperature", "3")
    whole = run_headway("predict", reversal.run, stdin=lines(*given))
    drawn = run_headway("predict", reversal.run, *sampled, stdin=lines(*given))
    monkeypatch.setattr(SequencePredictor, "together", 4)
    attention = tmp_path / "attention.jsonl"
    assert run_headway("predict", reversal.run, "--attention", attention, stdin=lines(*given)) == whole
    assert run_headway("predict", reversal.run, *sampled, stdin=lines(*given)) == drawn
    records = [json.loads(line) for line in attention.read_text(encoding="utf-8").splitlines()]
    assert [record["line"] for record in records] == list(range(1, 14))
    assert [record["source"] for record in records] == given


def attention_of(run_headway: Command, run: Path, folder: Path, *flags: str, stdin: str) -> list[dict[str, Any]]:
    path = folder / "attention.jsonl"
    ended = run_headway("predict", run, "--attention", path, *flags, stdin=stdin)
    assert (ended.code, ended.err) == (0, "")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["target"] for record in records] == ended.out.splitlines()
    return records


def test_attention_over_the_tokens_of_both_sides(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    """The batch pads the shorter lines; nothing of the padding is left."""
    records = attention_of(run_headway, reversal.run, tmp_path, stdin=lines("abcd", "ab", ""))
    assert records[0]["source_tokens"] == ["▁", "a", "b", "c", "d", END]
    assert records[1]["target_tokens"] == ["▁", "b", "a", END]
    assert (records[2]["source_tokens"], records[2]["attention"]) == ([END], {})
    for record in records[:2]:
        assert set(record["attention"]) == {"decoder.1.cross", "decoder.2.cross"}
        for name in record["attention"]:
            weights = np.array(record["attention"][name])
            assert weights.shape == (2, len(record["target_tokens"]), len(record["source_tokens"]))
            assert weights.min() >= 0
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    text = (tmp_path / "attention.jsonl").read_text(encoding="utf-8")
    assert (
        max(len(number.strip("[] ")) for number in text.split('"decoder.1.cross": ')[1].split("]]]")[0].split(",")) <= 8
    )


def test_attention_of_all_layers(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    (record,) = attention_of(run_headway, reversal.run, tmp_path, "--layers", "*", stdin=lines("abc"))
    shapes = {name: np.array(weights).shape for name, weights in record["attention"].items()}
    assert shapes == {
        "encoder.1.self": (2, 5, 5), "decoder.1.self": (2, 5, 5), "decoder.1.cross": (2, 5, 5),
        "decoder.2.self": (2, 5, 5), "decoder.2.cross": (2, 5, 5),
    }  # fmt: skip
    own = np.array(record["attention"]["decoder.1.self"])
    assert np.triu(own, k=1).max() == 0  # the future is out of sight
    np.testing.assert_allclose(own.sum(-1), 1, atol=1e-5)
    chosen = ("--layers", "decoder.2.*,encoder.1.self")
    (some,) = attention_of(run_headway, reversal.run, tmp_path, *chosen, stdin=lines("abc"))
    assert set(some["attention"]) == {"decoder.2.self", "decoder.2.cross", "encoder.1.self"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--layers", "decoder.8.cross"], "error: --layers: no attention of this model has such a name"),
        (["{run}"], "error: --attention: attention is one model's: give one run; received '2 runs'"),
        (["{run}", "--alignments", "y"], "error: --attention: attention is one model's"),
    ],
)
def test_attention_that_cannot_be(
    run_headway: Command, reversal: Reversal, tmp_path: Path, flags: list[str], message: str
) -> None:
    given = [flag.format(run=reversal.run) for flag in flags]
    ended = run_headway("predict", reversal.run, "--attention", tmp_path / "x", *given, stdin=lines("ab"))
    assert ended.code == 2
    assert ended.err.startswith(message)
    ended = run_headway("predict", reversal.run, "--attention", tmp_path / "no" / "x", stdin=lines("ab"))
    assert ended.code == 2
    assert ended.err.startswith("error: --attention: there is no such folder to write to; received '")


def test_alignments_of_several_models(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    ended = run_headway("predict", reversal.run, reversal.run, "--alignments", tmp_path / "x", stdin=lines("ab"))
    assert (ended.code, ended.err.startswith("error: --alignments: attention is one model's: give one run")) == (
        2,
        True,
    )


def test_where_there_are_fewer_outputs_lines_fill_up(run_headway: Command, reversal: Reversal) -> None:
    flags = ("--beam", "30", "--nbest", "30", "--max-length", "1")
    code, out, err = run_headway("predict", reversal.run, *flags, stdin=lines("ab", "", "abc"))
    rows = [row.split("\t") for row in out.splitlines()]
    assert (code, len(rows)) == (0, 90)
    found = [float(score) > -math.inf for score, _ in rows]
    assert 0 < sum(found[:30]) == sum(found[60:]) < 30
    assert all(text == "" for (score, text), real in zip(rows, found, strict=True) if not real)
    assert "2 of 3 have fewer outputs than were asked for" in err


def test_a_line_that_is_too_long_is_refused_or_cut(run_headway: Command, reversal: Reversal) -> None:
    given = lines("ab", "abcdabcd", "ba")
    predict = ("predict", reversal.run, "--max-source-length", "4")
    code, out, err = run_headway(*predict, stdin=given)
    assert (code, out) == (2, "ba\n")
    assert err.startswith("error: line 2: this line is too long; received '9 tokens'; allowed: up to 4; --truncate")
    said = "1 of 3 lines are longer than the limit: only their beginning was read\n"
    assert run_headway(*predict, "--truncate", stdin=given) == (0, "ba\ncba\nab\n", said)


def test_outputs_that_may_be_cut_are_counted(run_headway: Command, reversal: Reversal) -> None:
    given = lines("abcd", "ab", "")
    assert run_headway("predict", reversal.run, stdin=given) == (0, "dcba\nba\n\n", "")
    said = "1 of 3 outputs are as long as they may be: their ends may be missing\n"
    assert run_headway("predict", reversal.run, "--max-length", "4", stdin=given) == (0, "dcb\nba\n\n", said)


def test_an_ensemble_with_itself_says_the_same(run_headway: Command, reversal: Reversal) -> None:
    given = lines(*reversal.words[:30], "abcdabcdab")
    alone = run_headway("predict", reversal.run, "--scores", stdin=given)
    twice = run_headway("predict", reversal.run, reversal.run, "--scores", stdin=given)
    for one, two in zip(alone.out.splitlines(), twice.out.splitlines(), strict=True):
        assert one.split("\t")[1] == two.split("\t")[1]
        assert float(one.split("\t")[0]) == pytest.approx(float(two.split("\t")[0]), abs=2e-4)


def test_averaged_checkpoints(run_headway: Command, reversal: Reversal) -> None:
    given = lines(*reversal.words[:30])
    flags = ("--scores", "--average")
    last = run_headway("predict", reversal.run, *flags, "1", stdin=given)
    assert last.code == 0
    updates = json.loads((reversal.run / "manifest.json").read_text(encoding="utf-8"))["averaged_updates"]
    assert updates == [400]  # so the model is the last checkpoint
    assert last == run_headway("predict", reversal.run, "--scores", stdin=given)
    assert run_headway("predict", reversal.run, *flags, "2", stdin=given) != last
    code, _, err = run_headway("predict", reversal.run, "--average", "9", stdin=given)
    assert (
        code,
        "--average: this run has not kept so many checkpoints in a row; received 9; allowed: up to 2" in err,
    ) == (
        2,
        True,
    )


def test_a_device_that_is_not_there(run_headway: Command, reversal: Reversal) -> None:
    code, _, err = run_headway("predict", reversal.run, "--device", "gpu", stdin="ab\n")
    assert (code, err.startswith("error: --device: this device cannot be used here; received 'gpu'")) == (2, True)


@pytest.fixture
def targets(tmp_path: Path) -> dict[str, Path]:
    texts = {"source": ["abcd", "ab", "ab", ""], "target": ["dcba", "ba", "ab", ""]}
    for name, given in texts.items():
        (tmp_path / name).write_text(lines(*given), encoding="utf-8")
    return {name: tmp_path / name for name in texts}


def test_force_scoring(run_headway: Command, reversal: Reversal, targets: dict[str, Path]) -> None:
    score = ("score", reversal.run, "--source", targets["source"], "--target", targets["target"])
    code, out, err = run_headway(*score)
    rows = [[float(value) for value in line.split("\t")] for line in out.splitlines()]
    assert (code, err, len(rows)) == (0, "", 4)
    assert [count for _, _, count in rows] == [6, 4, 4, 1]
    assert rows[1][0] > -1 > -4 > rows[2][0]
    for total, mean, count in rows:
        assert mean == pytest.approx(total / count, abs=1e-4)
    records = [json.loads(line) for line in run_headway(*score, "--json").out.splitlines()]
    assert records[0]["tokens"] == ["▁", "d", "c", "b", "a", END]
    for record, row in zip(records, rows, strict=True):
        assert len(record["log_probabilities"]) == len(record["tokens"])
        assert sum(record["log_probabilities"]) == pytest.approx(record["log_probability"])
        assert record["log_probability"] == pytest.approx(row[0], abs=1e-4)


def test_force_scoring_of_uneven_files(run_headway: Command, reversal: Reversal, targets: dict[str, Path]) -> None:
    targets["target"].write_text("ba\n", encoding="utf-8")
    code, out, err = run_headway("score", reversal.run, "--source", targets["source"], "--target", targets["target"])
    assert (code, out) == (2, "")
    assert "both files need the same number of lines; received '4 and 1 lines'" in err


def test_python_and_the_command_line_agree(run_headway: Command, reversal: Reversal) -> None:
    said = headway.load(reversal.run).predict(["abcd", ""])
    assert run_headway("predict", reversal.run, stdin="abcd\n\n").out == lines(*(each.text for each in said))


def test_an_output_is_neither_what_is_read_nor_another_output(
    run_headway: Command, reversal: Reversal, tmp_path: Path
) -> None:
    given, other = tmp_path / "given.txt", tmp_path / "other.txt"
    given.write_text("abcd\n")
    for arguments, name in {
        ("--alignments", given): "--alignments",
        ("--attention", tmp_path / "." / "given.txt"): "--attention",
        ("--output", given): "--output",
        ("--alignments", other, "--attention", other): "--alignments",
        ("--prefix", other, "--alignments", other): "--alignments",
    }.items():
        other.write_text("ab\n")
        ended = run_headway("predict", reversal.run, "--input", given, *arguments)
        assert ended.code == 2
        assert f"{name}: this file is read, or another output is written to it" in ended.err
        assert given.read_text() == "abcd\n"
    for arguments, name in {
        ("score", reversal.run, "--source", given, "--target", other, "--alignments", other): "--alignments",
        ("inspect", reversal.run, "--input", given, "--reference", other, "--output", given): "--output",
        ("compare", "--hypotheses", given, other, "--references", given, "--html", other): "--html",
        ("compare", "--hypotheses", given, other, "--references", given, "--html", given): "--html",
        ("data", "make", "labels", f"source={given}", f"references={other}", "--output", other): "--output",
    }.items():
        ended = run_headway(*arguments)
        assert ended.code == 2
        assert f"{name}: this file is read, or another output is written to it" in ended.err
        assert (given.read_text(), other.read_text()) == ("abcd\n", "ab\n")
    ended = run_headway("predict", reversal.run, "--input", given, "--alignments", other, "--output", "/dev/null")
    assert ended.code == 0
    assert len(other.read_text().split()) == 1  # a link, of the one word of the one line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given.txt", "other.txt"]


def test_the_number_of_workers_changes_no_output(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "input").write_text(lines(*["".join(word) for word in itertools.product("abcd", repeat=3)]))
    said = [
        run_headway("predict", reversal.run, "--input", tmp_path / "input", "--scores", "--batch-tokens", 40, *more)
        for more in ([], ["--workers", 1], ["--workers", 3])
    ]
    assert {(each.code, each.out) for each in said} == {(0, said[0].out)}
    assert len(said[0].out.splitlines()) == 64
    none = run_headway("predict", reversal.run, "--input", tmp_path / "input", "--workers", 0)
    assert (none.code, none.out) == (2, "")
    assert "--workers" in none.err
