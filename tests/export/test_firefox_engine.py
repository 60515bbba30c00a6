"""`engine="firefox"` gives what the engine of Firefox writes, one line for each line, and refuses what it lacks."""

import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import headway
from headway.core.errors import UserError
from headway.processing.firefox_files import files_of, vocabularies_of
from headway.runs.engines import build_engine, kept_export
from headway.runs.run import open_run
from tests.conftest import Command
from tests.export.student import lines, write_student
from tests.shared_runs import shared_run

fxtranslate = pytest.importorskip("fxtranslate")

TEXTS = [source for source, _ in lines(60, 3)]
ODD = [
    "",
    "  ",
    "one\ttwo",
    "one\ntwo",
    "one\rtwo",
    "one \u2028 two",
    "\0 one",
    "one 😀 two",
    "\u2581",
    "one\u2581two",
    "one two " * 100,
]


@pytest.fixture(scope="module")
def run(pytestconfig: pytest.Config) -> Path:
    return shared_run(pytestconfig.cache.mkdir("runs"), "numbers", write_student) / "run"


@pytest.fixture(scope="module")
def engine(run: Path) -> "headway.predictors.sequence_predictor.SequencePredictor":
    return headway.load(run, engine="firefox")


def by_hand(run: Path, texts: list[str]) -> list[str]:
    """What the library itself makes of texts."""
    files = files_of(kept_export(build_engine("firefox"), open_run(run)))
    translator = fxtranslate.Translator(files["model"], *vocabularies_of(files), files.get("lex"))
    return [translator.translate(text) for text in texts]


def test_it_writes_what_the_engine_writes(run: Path, engine) -> None:
    outputs = engine.predict(TEXTS)
    assert [each.text for each in outputs] == by_hand(run, TEXTS)
    own = headway.load(run, device="cpu").predict(TEXTS, beam=1)
    equal = sum(each.text == other.text for each, other in zip(outputs, own, strict=True))
    assert equal >= 0.95 * len(TEXTS)
    for output in outputs:
        assert engine.target.decode(output.hypotheses[0].ids) == output.text
        assert math.isnan(output.score)
        assert len(output.log_probabilities) == len(output.tokens) + 1
        assert not output.is_empty


def test_one_line_in_one_line_out(run: Path, engine) -> None:
    outputs = engine.predict(ODD)
    assert len(outputs) == len(ODD)
    assert all(len(each.text.splitlines()) <= 1 for each in outputs)
    assert [each.text for each in outputs[:2]] == ["", ""]
    one, two = engine.predict(["one two", "one  two "])
    assert {each.text for each in outputs[3:6]} | {two.text} == {one.text}, "what ends a line is a space to every run"
    assert outputs[9].text == one.text, "and so is the mark that SentencePiece has for it"


def test_an_output_that_the_engine_cuts_is_at_its_limit(engine) -> None:
    long, short = engine.predict(["one two " * 200, "one"])
    assert long.at_limit == (len(long.tokens) >= 256)
    assert not short.at_limit
    assert engine.backend.longest(5) == 16
    assert engine.backend.longest(1000) == 256
    first, second = engine.predict(["one", "one " * 2000], skip_broken=True)
    assert first.text == short.text
    assert str(second.problem).startswith("line 2: this line is too long; received ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 4}, "beam: the engine firefox is greedy; received 4; allowed: 1"),
        ({"beam": 4, "nbest": 2}, "beam: the engine firefox is greedy"),
        ({"nbest": 2}, "nbest: the engine firefox is greedy; received 2"),
        ({"sample": True}, "sample: the engine firefox has no such option"),
        ({"kind": "mbr"}, "kind: the engine firefox has no such option"),
        ({"capture": "all"}, "capture: the engine firefox has no such option"),
        ({"prefixes": ("eins",)}, "prefixes: the engine firefox has no such option"),
        ({"truncate": True}, "truncate: the engine firefox has no such option"),
        ({"min_length": 3}, "min_length: the engine firefox has no such option"),
        ({"max_length": 3}, "max_length: the engine firefox has no such option"),
        ({"length_penalty": 1.0}, "length_penalty: the engine firefox has no such option"),
    ],
    ids=str,
)
def test_options_that_it_lacks(engine, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        engine.predict("one", **options)


def test_the_recipes_beam_is_named_and_needs_no_option(run: Path, run_headway: Command, engine) -> None:
    done = run_headway("predict", run, "--engine", "firefox", stdin="one two\n\nthree\n")
    assert done.out.splitlines() == [engine.predict("one two")[0].text, "", engine.predict("three")[0].text]
    assert "the engine firefox is greedy; the recipe's beam of 4 does not hold" in done.err
    assert engine.predict("one two", beam=1)[0].text == engine.predict("one two")[0].text


def test_threads_share_the_predictor(engine) -> None:
    expected = [each.text for each in engine.predict(TEXTS[:8])]
    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(lambda text: engine.predict(text)[0].text, TEXTS[:8])]
    assert found == expected


def test_a_run_that_reads_beginnings_alone(run: Path, tmp_path: Path) -> None:
    cut = Path(shutil.copytree(run, tmp_path / "run"))
    recipe = cut / "recipe.yaml"
    recipe.write_text(recipe.read_text("utf-8").replace("truncate_source: null", "truncate_source: 3"), "utf-8")
    with pytest.raises(UserError, match="reads lines whole, and this run the first 3 pieces of a source"):
        headway.load(cut, engine="firefox")
