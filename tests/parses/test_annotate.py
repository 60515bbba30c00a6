"""Annotating: each sentence once, whatever stopped it before, with one process or several; corpora carry the heads."""

import re
import subprocess
import time

import numpy as np
import pytest
import yaml

from headway.core.errors import UserError
from headway.corpora.corpus import build_corpus
from headway.corpora.filters import Filters
from headway.formats.pairs import open_source
from headway.parses import parse_store
from headway.parses.annotation import draw
from headway.parses.parse_store import ParsesConfig, ParseStore, annotate
from headway.parses.parsers import ParserConfig, load_parser
from headway.parses.projection import head_labellers
from tests.command_server import commands
from tests.parses import toys


def conllu(folder, **sentences):
    path = toys.write_conllu(
        folder, toys.tree_lines({text.replace("_", " "): heads for text, heads in sentences.items()})
    )
    return ParserConfig(kind="conllu", model=str(path))


def test_a_line_is_cut_into_sentences_in_any_way_that_fits(tmp_path):
    parser = load_parser(conllu(tmp_path, a_b=[0, 1], a_b_c=[0, 1, 1], c_d=[2, 0], e=[0]), "")
    found = [
        [token.head for token in parse.tokens] for parse in parser.parse(["a b c d", "a b c e", "a b e d", "e" * 2000])
    ]
    assert found == [[0, 0, 3, 3], [0, 0, 0, 3], [], list(range(2000))]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("1\t \t_\tN\tN\t_\t0\troot\t_\t_\n", 1),
        ("1\ta\t_\tN\tN\t_\t0\troot\t_\t_\n2\tb\t_\tN\tN\t_\t_\tdep\t_\t_\n", 2),
        ("1\ta\t_\tN\tN\t_\t1\troot\t_\t_\n", 1),
    ],
    ids=["no form", "no head", "its own head"],
)
def test_rows_that_are_no_words_with_heads_are_refused(tmp_path, rows, line):
    path = toys.write_conllu(tmp_path, rows + "\n")
    with pytest.raises(UserError, match=rf"made\.conllu:{line}: this row is no word with a head"):
        load_parser(ParserConfig(kind="conllu", model=str(path)), "")


def test_every_sentence_is_parsed_once(tmp_path):
    parser, store = conllu(tmp_path, a_b=[0, 1], b=[0]), tmp_path / "x.parses"
    done = annotate(["a b", "", "b", "a b", "c"], parser, store)
    assert (done.lines, done.parsed, done.without, done.processes) == (5, 3, 1, 1)
    assert "5 lines, 3 sentences newly parsed, 1 of them without a parse" in done.text()
    again = annotate(["b", "a b", "c"], parser, store)
    assert (again.lines, again.parsed) == (3, 0)
    kept = ParseStore(store)
    assert [token.head for token in kept.get("a b").tokens] == [0, 0]
    assert kept.get("c").tokens == ()


def test_parses_of_a_changed_file_are_not_mixed_with_its_old_ones(tmp_path):
    parser, store = conllu(tmp_path, a_b=[0, 1]), tmp_path / "x.parses"
    assert annotate(["a b", "b"], parser, store).without == 1
    conllu(tmp_path, a_b=[0, 1], b=[0])
    with pytest.raises(UserError, match=r"x\.parses: another parser, or version of it, made these parses; remove them"):
        annotate(["b"], parser, store)
    store.unlink()
    assert annotate(["a b", "b"], parser, store).without == 0


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path, monkeypatch):
    pytest.importorskip("spacy")
    parser = ParserConfig(model=str(toys.random_pipeline(tmp_path)))
    lines = [f"word {number} stands here {number % 7}" for number in range(50)]
    monkeypatch.setattr(parse_store, "CHUNK", 6)
    annotate(lines, parser, tmp_path / "one.parses", processes=1)
    annotate(lines, parser, tmp_path / "two.parses", processes=2)
    assert (tmp_path / "one.parses").read_bytes() == (tmp_path / "two.parses").read_bytes()


KILLED = """
import sys, time
from pathlib import Path
from headway.parses import parse_store, parsers
from headway.parses.parsers import ParserConfig

class Slow(parsers.ConlluParser):
    def parse(self, lines):
        for parse in super().parse(lines):
            time.sleep(0.02)
            yield parse

parsers.ConlluParser = Slow
parse_store.CHUNK = 3
folder = Path(sys.argv[1])
parser = ParserConfig(kind="conllu", model=str(folder / "made.conllu"))
parse_store.annotate(map(str, range(200)), parser, folder / "x.parses")
"""


def test_a_killed_process_loses_a_chunk_at_most(tmp_path):
    parser = conllu(tmp_path, **{str(number): [0] for number in range(200)})
    store = tmp_path / "x.parses"
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    process = subprocess.Popen([commands() / "python", tmp_path / "killed.py", tmp_path], stderr=subprocess.PIPE)
    while not (store.exists() and store.stat().st_size > 500):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    before = len(ParseStore(store))
    assert 0 < before < 200
    rest = annotate(map(str, range(200)), parser, store)
    assert rest.parsed == 200 - before
    assert len(ParseStore(store)) == 200
    whole = annotate(map(str, range(200)), parser, tmp_path / "whole.parses")
    assert whole.parsed == 200
    assert (tmp_path / "whole.parses").read_bytes() == store.read_bytes()


def test_a_corpus_carries_heads_and_notices_other_parses(tmp_path, parallel, sides):
    corpus = parallel(["a b c", "b a", "z z"], ["A B", "C A B", "B"])
    source = open_source(corpus, "data.train")
    parses = ParsesConfig(
        source=conllu(tmp_path, a_b_c=[2, 0, 2]),
        target=ParserConfig(kind="conllu", model=str(tmp_path / "made.conllu")),
    )
    with pytest.raises(UserError, match="have no parses yet"):
        head_labellers(corpus, parses, ["source_heads"])
    toys.write_conllu(tmp_path, toys.tree_lines({"a b c": [2, 0, 2], "A B": [0, 1], "C A B": [3, 3, 0], "B": [0]}))

    def build():
        names = ["source_heads", "target_heads"]
        labellers = head_labellers(corpus, parses, names)
        return build_corpus(
            source, sides, Filters(max_length=3), name="data.train", filter=True, cache=tmp_path / "cache",
            labellers=labellers,
        )  # fmt: skip

    for lines, side in ((["a b c", "b a", "z z"], "source"), (["A B", "C A B", "B"], "target")):
        suffix = {"source": "src", "target": "trg"}[side]
        annotate(lines, parses.source, tmp_path / f"train.{suffix}.conllu-made.conllu.parses")
    built = build()
    assert [{name: values.tolist() for name, values in built.labels(index).items()} for index in range(3)] == [
        {"source_heads": [1, 1, 1], "target_heads": [0, 0]},
        {"source_heads": [-1, -1], "target_heads": [-1, -1, 2]},  # both heads of C A B stand to the right
        {"source_heads": [-1, -1], "target_heads": [0]},
    ]
    report = built.report.labels
    assert report["source_heads"]["lines without a parse"] == 2
    assert (report["target_heads"]["edges"], report["target_heads"]["edges to the right"]) == (4, 2)
    assert "target_heads: 3 lines, 6 tokens" in built.report.text()
    assert build().fingerprint == built.fingerprint
    annotate(["more"], parses.source, tmp_path / "train.src.conllu-made.conllu.parses")
    assert build().fingerprint != built.fingerprint
    plain = build_corpus(source, sides, Filters(), name="data.train", filter=True, cache=tmp_path / "cache")
    assert plain.labels(0) == {}
    assert np.array_equal(plain.source(0), built.source(0))


def test_a_side_without_a_parser_is_named(parallel):
    with pytest.raises(UserError, match=r"data\.parses\.target: the recipe names no parser"):
        head_labellers(parallel(["a"], ["A"]), ParsesConfig(), ["target_heads"])


def test_a_tree_is_drawn(tmp_path):
    (parse,) = load_parser(conllu(tmp_path, we_can_sing=[3, 3, 0]), "").parse(["we can sing"])
    assert draw("we can sing", parse).splitlines() == ["sing  dep", "├── we  dep", "└── can  dep"]


def test_the_command_annotates_and_draws(run_headway, tmp_path):
    conllu(tmp_path, we_sing=[2, 0])
    text = tmp_path / "text.en"
    text.write_text("we sing\n\nthey do not\n", encoding="utf-8")
    arguments = "data", "annotate", text, "--parser", f"conllu:{tmp_path / 'made.conllu'}"
    drawn = run_headway(*arguments, "--sample", "2")
    assert drawn.out.splitlines() == [
        f"{text}: we sing", "sing  dep", "└── we  dep", "", f"{text}: they do not", "no parse", "",
    ]  # fmt: skip
    assert not list(tmp_path.glob("*.parses"))
    done = run_headway(*arguments, "--folder", tmp_path / "parses")
    assert done.code == 0
    assert "3 lines, 2 sentences newly parsed, 1 of them without a parse" in done.err
    name = "text.en.conllu-made.conllu.parses"
    assert {path.name for path in (tmp_path / "parses").iterdir()} == {name, f".{name}.lock"}
    wrong = run_headway(*arguments[:3], "--parser", "conllu:missing", "--whitespace", "some")
    assert wrong.code == 2
    assert "whitespace" in wrong.err
    assert run_headway("data", "annotate", tmp_path / "no.en", "--parser", "x").code == 2


def test_what_a_recipe_leaves_out_is_said(run_headway, tmp_path):
    conllu(tmp_path, we_sing=[2, 0])
    (tmp_path / "train.tsv").write_text("we sing\tx\nwe\nwe sing\ty\n", encoding="utf-8")
    parses = {"source": f"conllu:{tmp_path / 'made.conllu'}"}
    recipe = {"data": {"train": {"tsv": "train.tsv"}, "parses": parses, "broken": "skip"}, "training": {"updates": 1}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    ended = run_headway("data", "annotate", tmp_path / "recipe.yaml")
    assert ended.code == 0, ended.err
    assert "data.train.source:\n  left out 1: rows that cannot be read\n    line 2: " in ended.err
    assert "data.train.source: 2 lines, 1 sentence newly parsed" in ended.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("text.en", "text.en: a recipe is a mapping of keys to values"),
        ("recipe.yaml --folder parses", "--folder: alone, this option does nothing; allowed: beside --parser"),
        ("recipe.yaml --whitespace none", "--whitespace: alone, this option does nothing; allowed: beside --parser"),
    ],
)
def test_mistakes_on_the_command_line(run_headway, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.en").write_text("we sing\n", encoding="utf-8")
    ended = run_headway("data", "annotate", *given.split())
    assert ended.code == 2
    assert re.search(message, ended.err)
