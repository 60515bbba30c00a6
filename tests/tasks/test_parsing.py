"""Parsing from a treebank to scored trees, by the loop, the search and the run folder of translation."""

import itertools
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml

import headway
from headway.cli import main
from headway.core.errors import UserError
from headway.export.exporter import Search
from headway.export.parity import answering_of, compare, longest_output, parity_lines
from headway.formats.penn import parse_tree
from headway.formats.treebanks import read_trees
from headway.inspect.capture import ReadOptions, read
from headway.metrics.brackets import is_linear
from headway.predictors.output import Output
from headway.recipe import Recipe, parse_recipe
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from headway.tasks import build_task
from headway.tasks.translation import Parsing
from tests.conftest import Command
from tests.inspect.test_inspection import sentences_of
from tests.tiers import thinned

RECIPE: dict[str, Any] = {
    "task": "parsing",
    "data": {"train": {"trees": "train.trees"}, "dev": {"trees": "dev.trees"}},
    "vocabulary": {"kind": "char", "target": {"kind": "whitespace"}},
    "model": {
        "dim": 32, "feed_forward": 64, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {"updates": 240, "batch_tokens": 512, "checkpoint_every": 240, "average": {"of": "last", "count": 1}},
    "decoding": {"beam": 2, "max_length_ratio": 2.0, "max_length_offset": 10},
}  # fmt: skip


class Run(NamedTuple):
    """A run that has learned a grammar of one-letter words, its recipe and its treebank."""

    path: Path
    recipe: Path
    dev: Path


def treebank() -> list[str]:
    """Sentences `d n v`, `n v d n`, ... with or without a full stop."""
    phrases = [
        "(NP (D d) (N n))",
        "(NP (N n))",
        "(NP (D d) (A a) (N n))",
        "(NP (NP (D d) (N n)) (PP (P p) (NP (N n))))",
    ]
    ends = ["", " (. .)"]
    return [
        f"(S {subject} (VP (V v){rest}){end})"
        for subject, rest, end in itertools.product(phrases, ["", *(f" {each}" for each in phrases)], ends)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("parsing")
    trees = treebank()
    random.Random(1).shuffle(trees)
    (folder / "dev.trees").write_text("\n".join([*trees[:8], "(())"]) + "\n", encoding="utf-8")
    (folder / "train.trees").write_text("\n".join(trees[8:]) + "\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["train", str(folder / "recipe.yaml"), "--output", str(folder / "run")])
    finally:
        torch.set_num_threads(threads)
    assert ended.value.code == 0
    return Run(folder / "run", folder / "recipe.yaml", folder / "dev.trees")


def test_dev_is_scored_as_trees_in_training(run: Run) -> None:
    lines = [json.loads(line) for line in RunFolder(run.path).metrics.read_text().splitlines()]
    dev = [line["dev"] for line in lines if "dev" in line][-1]
    assert list(dev) == ["bracket-f1", "tagging-accuracy", "well-formed"]
    assert dev["bracket-f1"] > 80


def test_sentences_in_trees_out(run: Run, run_headway: Command, tmp_path: Path) -> None:
    words = run_headway("data", "make", "trees", run.dev, "format=words").out
    code, out, err = run_headway("predict", run.path, stdin=words)
    assert code == 0
    assert len(out.splitlines()) == 9
    assert out.splitlines()[8] == ""  # the sentence without a tree is an empty line
    repaired = re.match(r"(\d) of 8 trees were repaired", err)
    assert repaired is not None
    said, linear = tmp_path / "said.trees", tmp_path / "said.linear"
    said.write_text(out.replace("\n\n", "\n(())\n"), encoding="utf-8")
    raw = run_headway("predict", run.path, "--format", "linear", stdin=words)
    assert raw.err == ""
    linear.write_text(raw.out, encoding="utf-8")
    scored = run_headway(
        "score",
        "--metric",
        "bracket-f1",
        "well-formed",
        "--json",
        "--hypotheses",
        said,
        linear,
        "--references",
        run.dev,
    )
    one, other = json.loads(scored.out)["variants"].values()
    assert one["bracket-f1"]["mean"] == other["bracket-f1"]["mean"] > 80
    formed = [each["well-formed"]["mean"] for each in (one, other)]
    assert formed == [100, 100 * (1 - int(repaired[1]) / 8)]


def test_unseen_sentences_tags_and_drawings(run: Run, run_headway: Command) -> None:
    odd = run_headway("predict", run.path, stdin="( unheard of )\n").out
    assert [token for token in odd.split() if token.endswith(")")][-1].startswith("-RRB-)")
    tagged = run_headway("predict", run.path, "--tagged", stdin="n_XYZ v_VVV\n")
    assert "(XYZ n)" in tagged.out
    assert "(VVV v)" in tagged.out
    assert "characters" not in tagged.err, "tags are not read"
    assert "─┬─ " in run_headway("predict", run.path, "--format", "drawing", stdin="d n v\n").out
    untagged = run_headway("predict", run.path, "--tagged", stdin="n_XYZ v_VVV\nn_XYZ v\n")
    assert (untagged.code, untagged.out.count("\n")) == (2, 1)
    assert "line 2: with --tagged, a word comes with its tag; received 'v'" in untagged.err


def test_exports_are_compared_on_the_text_that_the_run_reads(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("d  n -LRB- v -RRB-\n", encoding="utf-8")
    opened = open_run(run.path)
    lines = parity_lines(opened, tmp_path / "lines.txt", 10)
    assert lines == ["d n ( v )"]
    search = Search(2, longest_output(opened, lines))
    report = compare("copy", opened, answering_of(opened), lines, search, exact=True)
    assert (report.passed, report.equal_lists) == (True, 1)
    assert report.score_difference < 1e-4


@pytest.mark.parametrize("option", thinned([["--nbest", "2"], ["--scores"]], 2))
def test_drawings_have_no_scores_beside_them(run: Run, run_headway: Command, option: list[str]) -> None:
    code, out, err = run_headway("predict", run.path, "--format", "drawing", *option, stdin="d n v\n")
    assert (code, out) == (2, "")
    assert "--format: a drawing has several lines, and a score one" in err
    code, _, err = run_headway("predict", run.path, "--threshold", "1", stdin="d n v\n")
    assert (code, err.split(";")[0]) == (2, "error: --threshold: parsing has no such option")


def test_from_python(run: Run) -> None:
    model = headway.load(run.path, device="cpu")
    (prediction,) = model.predict(["d n v ."], capture=("*.cross",))
    assert prediction.text.startswith("(S (")
    assert prediction.written == " ".join(prediction.tokens)
    assert prediction.tokens[0] == "(S"
    assert prediction.attention["decoder.1.cross"].shape[1] == len(prediction.tokens) + 1


def test_the_report_draws_trees(run: Run) -> None:
    task = build_task("parsing")
    examples = task.examples(headway.load(run.path), 3)
    assert [example.source for example in examples] == [" ".join(each) for each in sources(run.dev)[:3]]
    for example in examples:
        assert example.example.references[0] in run.dev.read_text(encoding="utf-8")
        drawings = task.drawings(example)
        assert list(drawings) == ["the model's tree", "the reference"]
        assert drawings["the reference"].startswith("S ─┬─ NP")
    assert "S ─┬─ NP" in (run.path / "report.html").read_text(encoding="utf-8")


def sources(path: Path) -> list[list[str]]:
    return [tree.words() for _, tree in read_trees(path) if tree is not None]


def test_two_vocabularies_of_two_kinds(run: Run) -> None:
    folder = RunFolder(run.path).vocabulary
    assert "(NP" in (folder / "target" / "vocabulary.txt").read_text(encoding="utf-8").split("\n")
    assert json.loads((folder / "source" / "vocabulary.json").read_text(encoding="utf-8"))["family"] == "subwords"


def test_a_run_goes_on(run: Run, tmp_path: Path, run_headway: Command) -> None:
    copied = Path(shutil.copytree(run.path, tmp_path / "copied"))
    code, _, err = run_headway("train", run.recipe, "training.updates=240", "--output", copied, "--resume")
    assert code == 0, err


def recipe(train: dict[str, Any], dev: dict[str, Any] | None = None) -> Recipe:
    data = {"train": train} | ({"dev": dev} if dev else {})
    return parse_recipe(RECIPE | {"data": data})


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ({"tsv": "a.tsv"}, None, "data.train: the task reads no such corpus; received 'tsv'; allowed: trees"),
        (
            {"trees": "a"},
            {"trees": "b", "leaves": "xx"},
            "data.dev.leaves: the trees of dev are read as those of train",
        ),
        ({"trees": "a", "functions": True}, {"trees": "b"}, "data.dev.functions: the trees of dev"),
    ],
)
def test_mistakes(train: dict[str, Any], dev: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(UserError) as error:
        Parsing().check(recipe(train, dev))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"train": {"tsv": "a", "leaves": "xx"}}}, "data.train.leaves: unknown key"),
        ({"vocabulary": {"shared": True, "target": {"size": 9}}}, "a shared vocabulary has no target of its own"),
    ],
)
def test_mistakes_in_sections(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_recipe(RECIPE | changes)


def test_translation_reads_no_labels() -> None:
    with pytest.raises(UserError, match=r"data\.train: the task reads no such corpus"):
        build_task("translation").check(parse_recipe(RECIPE | {"data": {"train": {"conllu": "a"}}}))


def sentences(run: Run, folder: Path) -> Path:
    path = folder / "dev.txt"
    path.write_text("".join(f"{' '.join(words)}\n" for words in sources(run.dev)), encoding="utf-8")
    return path


def test_what_is_read_is_linear_and_what_is_compared_are_trees(run: Run, tmp_path: Path) -> None:
    task, model = build_task("parsing"), headway.load(run.path, device="cpu")
    examples = task.given_test_set(model.recipe).examples
    captured = [each for each in read(model, examples, ReadOptions()) if each.views]  # one is empty
    assert len(captured) == 8
    assert all(each.example.target is not None and each.example.target.endswith(")S") for each in captured)
    for texts in ([each.example.references[0] for each in captured], [each.hypothesis or "" for each in captured]):
        assert [parse_tree(text).words() for text in texts] == sources(run.dev)
    corpus = task.given_test_set(model.recipe, [sentences(run, tmp_path)])
    free = [each.prediction for each in read(model, corpus.examples, ReadOptions()) if each.views]
    assert all(isinstance(output, Output) and is_linear(output.written) for output in free)
    with pytest.raises(UserError, match="reference: a parser is read with its own outputs or with trees"):
        task.given_test_set(model.recipe, [run.dev], run.dev)


def test_a_page_shows_trees_and_the_tokens_that_attention_is_over(
    run: Run, run_headway: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.recipe.parent)
    assert run_headway("inspect", run.path, "--sentences", "3", "--nbest", "1", "--output", tmp_path / "p").code == 0
    shown = sentences_of(tmp_path / "p")
    said = headway.load(run.path).predict([each["source"] for each in shown])
    assert [each["outputs"][0]["text"] for each in shown] == [each.text for each in said]
    assert [each["tokens"][each["outputs"][0]["tokens"]] for each in shown] == [[*s.tokens, "</s>"] for s in said]
    assert all(each["reference"].startswith("(") for each in shown)
