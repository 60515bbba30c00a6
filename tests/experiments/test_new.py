"""`headway new`: parts, a recipe of a size that suits the pairs, and commands that work."""

import math
import random
import shlex
from pathlib import Path

import pytest
import yaml

from headway.core.languages import languages_of_names
from headway.experiments.new import language_of_side, recipe_tree
from headway.export.exporting import destinations
from headway.predictors.predictor import Run
from headway.processing.processor import Processors
from headway.processing.text.text_processor import train_processors
from headway.recipe import load_recipe, parse_recipe
from headway.tasks import build_task
from headway.training.trained import TrainingEstimate
from tests.conftest import Command
from tests.tiers import thinned

TARGET_UNKNOWN = "target: not known: name it as text.target.language in the recipe"
LETTERS = "abcdefgh"


def words(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(LETTERS, k=draw.randint(2, 6))) for _ in range(count)]


@pytest.mark.parametrize("form", thinned(["named columns", "jsonl", "two files"], 3))
def test_the_commands_that_it_names_work(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [(" ".join(words(4, seed)), " ".join(words(3, seed + 10_000))) for seed in range(400)]
    given = {
        "named columns": "mine.tsv --columns from to",
        "jsonl": "mine.jsonl --columns from to",
        "two files": "mine.ja mine.en",
    }[form].split()
    texts = {
        "mine.tsv": "".join(f"{a}\t{b}\n" for a, b in [*([("from", "to")] if "--columns" in given else []), *pairs]),
        "mine.jsonl": "".join(f'{{"from": "{a}", "to": "{b}"}}\n' for a, b in pairs),
        "mine.ja": "".join(f"{a}\n" for a, _ in pairs),
        "mine.en": "".join(f"{b}\n" for _, b in pairs),
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    ended = run_headway("new", *given, "--minutes", "1000")
    assert ended.code == 0, ended.err
    recipe = load_recipe("mine/recipe.yaml")
    assert "# such recipes have reached: 3.5 BLEU with 1,600 pairs" in Path("mine/recipe.yaml").read_text("utf-8")
    assert recipe.text.target.language == ("en" if form == "two files" else "und")
    assert recipe.training.updates is not None
    assert recipe.training.updates > recipe.optimizer.warmup
    lines = ended.out.splitlines()
    assert lines[1] == ("target: English (by its name)" if form == "two files" else TARGET_UNKNOWN)
    assert "can go to: ctranslate2, " in ended.out
    commands = [shlex.split(line) for line in ended.out.splitlines() if line.startswith("headway ")]
    assert [command[1] for command in commands] == ["train", "predict", "score"]
    few = (
        "training.updates=2", "training.checkpoint_every=2", "optimizer.warmup=1", "decoding.max_length=5",
        "model.dim=16", "model.feed_forward=16", "model.heads=2",
    )  # fmt: skip
    for number, (_, *command) in enumerate(commands):
        ended = run_headway(*command, *(few if number == 0 else ()))
        assert ended.code == 0, ended.err
        assert ("can go to: ctranslate2, " in ended.err) == (number == 0), "training says so before it begins"
    again = run_headway("new", *given)
    assert again.code == 2
    assert "--output: there is a recipe here already" in again.err


def test_the_recipe_suits_the_pairs() -> None:
    pairs = [(" ".join(words(40, seed)), " ".join(words(40, seed + 10_000))) for seed in range(1000)]
    trees = {count: recipe_tree(count, pairs, ("de", None)) for count in (1600, 23_000, 300_000, 3_000_000)}
    sizes = [tree["vocabulary"]["size"] for tree in trees.values()]
    assert sizes == sorted(set(sizes))
    small = trees[1600]
    assert small["vocabulary"]["shared"]
    assert small["text"] == {"source": {"language": "de"}, "target": {"language": "und"}}
    assert small["data"]["max_length"] == 150
    assert 100 < recipe_tree(1600, pairs[:4], (None, None))["vocabulary"]["size"] <= 160, "no more than there are words"
    other = recipe_tree(1600, [("".join(map(chr, range(0x4E00, 0x4E00 + 3000))), "a b " * 600)] * 2, ("zh", "en"))
    assert "shared" not in other["vocabulary"]
    assert other["vocabulary"]["character_coverage"] < 1, "of very many characters the rarest are no tokens"
    assert other["data"]["max_length"] == 1000


@pytest.mark.parametrize("minutes", ["nan", "inf", "0"])
def test_minutes_are_a_number_above_0(tmp_path: Path, run_headway: Command, minutes: str) -> None:
    (tmp_path / "mine.tsv").write_text("a\tb\nc\td\ne\tf\n", encoding="utf-8")
    ended = run_headway("new", tmp_path / "mine.tsv", "--output", tmp_path / "mine", "--minutes", minutes)
    assert (ended.code, ended.err.startswith("error: --minutes: input should be ")) == (2, True), ended.err
    assert not (tmp_path / "mine").exists()


def test_minutes_hold_training_and_its_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_headway: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    cost = TrainingEstimate(1, None, 100, 0.5, 60.0, 1, 1.0, 1, 1)
    monkeypatch.setattr("headway.experiments.new.dry_run", lambda recipe, begun: cost)
    pairs = [(" ".join(words(4, seed)), " ".join(words(3, seed + 10_000))) for seed in range(200)]
    Path("mine.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    ended = run_headway("new", "mine.tsv", "--minutes", "0.5", "--output", "8")
    assert (ended.code, "0 updates fit into these minutes, and 3,500 suit" in ended.err) == (2, True), ended.err
    assert "allowed: 4 or more, for 350 updates" in ended.err
    for minutes, updates, evaluations in (("8", 840, 1), ("20", 1920, 4)):
        ended = run_headway("new", "mine.tsv", "--minutes", minutes, "--output", minutes)
        assert ended.code == 0, ended.err
        training = yaml.safe_load(Path(minutes, "recipe.yaml").read_text(encoding="utf-8"))["training"]
        assert training["updates"] == updates
        assert math.ceil(updates / training["checkpoint_every"]) == evaluations
        assert updates * 0.5 + evaluations * 60 <= 60 * int(minutes)


@pytest.mark.parametrize(
    ("purpose", "wanted"),
    [
        ("ctranslate2", "can go to: ctranslate2, argos, onnx"),
        ("browser", "can go to: page, onnx, marian, firefox"),
        ("research", "can go to: onnx"),
    ],
)
def test_a_recipe_can_go_where_it_is_for(purpose: str, wanted: str) -> None:
    pairs = [(" ".join(words(20, seed)), " ".join(words(20, seed + 10_000))) for seed in range(60)]
    tree = recipe_tree(23_000, pairs, ("de", "en"), purpose)
    tree["model"] |= {"dim": 16, "feed_forward": 32, "heads": 2}
    recipe = parse_recipe(tree | {"task": "translation", "data": {"train": {"tsv": "unread.tsv"}}})
    processors = Processors(*train_processors(recipe.text, recipe.vocabulary, lambda: pairs))
    run = Run(recipe, *processors, build_task("translation").model(recipe, processors, initial=False))
    assert destinations(run)[0] == wanted


def test_text_without_spaces_has_a_vocabulary_of_its_own_and_of_full_size() -> None:
    """Lines of Japanese have hardly any word that occurs twice, and many pieces that do."""
    kanji, draw = [chr(0x4E00 + number) for number in range(40)], random.Random(1)
    pairs = [(" ".join(words(9, seed)), "".join(draw.choices(kanji, k=9))) for seed in range(400)]
    spaced = [(source, source.upper()) for source, _ in pairs]
    tree, other = (recipe_tree(400, some, ("en", "ja"), "browser")["vocabulary"] for some in (pairs, spaced))
    assert "shared" not in tree
    assert other["shared"] is True
    assert tree["size"] > 200 > 40 + 9 + 8


@pytest.mark.parametrize(
    ("files", "columns", "wanted"),
    [
        (("a/train.ja", "train.en.gz"), ("1", "2"), ["ja", "en"]),
        (("x.de-en.tsv",), ("1", "2"), ["de", "en"]),
        (("x.de-en.tsv",), ("2", "1"), [None, None]),
        (("x.jsonl",), ("de", "en"), ["de", "en"]),
        (("my-words.tsv",), ("1", "2"), [None, None]),
    ],
)
def test_names_tell_languages(files: tuple[str, ...], columns: tuple[str, str], wanted: list[str | None]) -> None:
    assert languages_of_names([Path(file) for file in files], columns) == wanted


def test_texts_tell_languages() -> None:
    pytest.importorskip("py3langid")
    assert language_of_side("source", None, None, ["私は本を読みます。"] * 3) == (
        "ja",
        "source: Japanese (by its text)",
    )
    assert language_of_side("source", "fr", "de", ["私は本を読みます。"]) == ("fr", "source: French")
