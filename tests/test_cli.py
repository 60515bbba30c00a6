"""The command line: options, exit codes, what goes to standard output and what to standard error."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from headway.cli import main
from headway.core.system import STANDARD_INPUT
from tests.command_server import commands
from tests.conftest import Command, Reversal, write_reversal


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A reference and a good and a worse system."""
    reference = [f"the cat number {number} sat on the mat" for number in range(20)]
    texts = {
        "reference": reference,
        "good": [*reference[:-1], "the cat sat on a mat"],
        "worse": [line.replace("cat", "dog") for line in reference],
        "short": reference[:-1],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: tmp_path / name for name in texts}


def test_a_text_is_predicted_as_it_is(run_headway: Command, reversal: Reversal) -> None:
    assert run_headway("predict", reversal.run, "dcba", "ab cd").out.splitlines()[0] == "abcd"
    piped = run_headway("predict", reversal.run, stdin="dcba\nab cd\n").out
    assert run_headway("predict", reversal.run, "dcba", "ab cd").out == piped


def test_version(run_headway: Command) -> None:
    assert run_headway("--version") == (0, f"headway {headway.__version__}\n", "")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("", ["train", "predict", "score", "demo", "doctor", "data", "--version", "--quiet", "--verbose"]),
        ("train", ["RECIPE", "KEY.PATH=VALUE", "training.updates=2000", "--output", "--resume"]),
        (
            "predict",
            ["RUN", "--beam", "--nbest", "--length-penalty", "--min-length", "--max-length", "--scores", "--sample",
             "--temperature", "--top-k", "--top-p", "--seed", "--prefix", "--attention", "--layers", "--average",
             "--max-source-length", "--truncate", "--batch-tokens", "--device"],
        ),
        (
            "score",
            ["--metric", "--hypotheses", "--references", "--json", "--source", "--by", "--lead", "--by-length",
              "RUN", "--target", "--alignments", "--device"],
        ),
        ("demo", ["--output", "--seed"]),
        ("doctor", ["missing for each extra"]),
        ("check", ["LESSON", "FILE", "--allow-code"]),
        ("data check", ["RECIPE", "--json"]),
    ],
)  # fmt: skip
def test_help_lists_every_option(run_headway: Command, command: str, words: list[str]) -> None:
    for flag in ("--help", "-h"):
        code, out, err = run_headway(*command.split(), flag)
        assert (code, err) == (0, "")
        assert "Usage: headway" in out
        assert [word for word in words if word not in out] == []
        assert max(map(len, out.splitlines())) <= 100


def test_help_says_what_stands_for_an_option_that_is_not_given(run_headway: Command) -> None:
    predict, score = (run_headway(command, "--help").out.replace("│", " ") for command in ("predict", "score"))
    assert " ".join(predict.split()).count("[default: the recipe's]") == 16
    assert "[default: the last but one, or the only one]" in " ".join(predict.split())
    assert "[default: every pair is compared]" in " ".join(score.split())
    assert "[default: six bins of equal size]" in " ".join(score.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "0.5"], "--temperature: alone, this option does nothing; allowed: beside --sample"),
        (["--seed", "2"], "--seed: alone, this option does nothing; allowed: beside --sample"),
        (["--layers", "*"], "--layers: alone, this option does nothing; allowed: beside --attention"),
        (["--alignment-heads", "0"], "allowed: beside --alignments or --alignment-figure"),
        (["--sample", "--beam", "3"], "--beam: outputs are drawn or searched for, not both; allowed: without --sample"),
        (["{recipe}"], "{recipe}: this is no run, and translation reads lines; allowed: headway predict RUN --input"),
        (
            ["no/where"],
            "no/where: there is no such run; allowed: headway predict RUN --input FILE, a text, or lines on",
        ),
        (["nowhere", "--input", "{recipe}"], "nowhere: there is no such run; allowed: runs before --input"),
        (["{recipe}", "--input", "{recipe}"], "{recipe}: this is no run, and inputs are named or read from a file"),
    ],
)
def test_options_of_predict_that_would_do_nothing(
    run_headway: Command, reversal: Reversal, options: list[str], message: str
) -> None:
    filled = [each.replace("{recipe}", str(reversal.recipe)) for each in options]
    code, out, err = run_headway("predict", reversal.run, *filled, stdin="ab\n")
    assert (code, out) == (2, "")
    assert message.replace("{recipe}", str(reversal.recipe)) in err


def test_a_text_may_be_empty(run_headway: Command, reversal: Reversal) -> None:
    assert run_headway("predict", reversal.run, "ab", "")[:2] == (0, "ba\n\n")


def test_help_does_not_wait_for_torch_and_pydantic() -> None:
    script = """
import sys, headway.cli
try:
    headway.cli.main(["--help"])
finally:
    assert not {"torch", "pydantic"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "{recipe}", "training.update=3"], "training.update: unknown key; did you mean 'updates'?"),
        (["train", "{recipe}", "model.encoder.mixer=atention"], "unknown mixer; did you mean 'attention'?"),
        (["train", "{recipe}", "task=translatoin"], "task: unknown task; did you mean 'translation'?"),
        (["train", "{recipe}", "training.dev_metrics=[blue]"], "unknown metric; did you mean 'bleu'?"),
        (["train", "{recipe}", "data.train.tsv=none.tsv"], "none.tsv"),
        (["train", "none.yaml"], "none.yaml: cannot read the recipe"),
        (["train", "{recipe}", "--output", "{recipe}"], "a folder is needed there, and there is a file"),
        (["data", "check", "{recipe}", "data.dev.source=x"], "data.dev: a corpus is either"),
        (["data", "check", "{recipe}", "nonsense"], "nonsense: an override is key.path=value"),
        (["predict", "none"], "none: this is not a run folder: it has no recipe.yaml"),
        (["predict", "none", "none"], "none: this is not a run folder: it has no recipe.yaml"),
        (["predict", "."], ".: this is not a run folder"),
        (
            ["score", "--metric", "blue", "--hypotheses", "{good}", "--references", "{reference}"],
            "did you mean 'bleu'?",
        ),
        (["score", "--hypotheses", "{short}", "--references", "{reference}"], "19 hypotheses for 20 references"),
        (["score", "--hypotheses", "none", "--references", "{reference}"], "there is no such file or folder; received"),
        (["score", "--hypotheses", "-", "--references", "{reference}"], f"allowed: {STANDARD_INPUT}"),
        (
            ["score", "--metric", "bleu:tokenize=31a", "--hypotheses", "{good}", "--references", "{reference}"],
            "bleu.tokenize",
        ),
        (["score", "none"], "none: this is not a run folder: it has no recipe.yaml"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    run_headway: Command,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    recipe, _ = write_reversal(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    code, out, err = run_headway(*(argument.format(recipe=recipe, **files) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "run"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "run", "--bean", "3"], "Unknown option: --bean. Did you mean --beam?; see headway predict --help"),
        (["predict", "run", "--beam", "three"], "--beam: input should be a valid integer"),
        (["predict", "run", "--beam", "0"], "--beam: input should be greater than 0; received '0'"),
        (["predict"], 'Command "predict" parameter RUN requires an argument; see headway predict --help'),
        (["predict", "run", "--beam", "1", "--beam", "2"], "Parameter --beam specified multiple times"),
        (["score", "--metric", "bleu"], "variants: there are no outputs to be scored"),
        (["data", "split", "f", "--shares", "98", "1", "--shuffle"], "--shares"),
        (["score", "--hypotheses", "a", "--references", "b", "--target", "c"], "--target: unknown key"),
        (["tarin"], 'Unknown command "tarin". Did you mean "train"?'),
    ],
)
def test_bad_options_exit_2_and_name_the_option(run_headway: Command, arguments: list[str], message: str) -> None:
    code, out, err = run_headway(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert message in err


def test_score_as_text(run_headway: Command, files: dict[str, Path]) -> None:
    code, out, err = run_headway(
        "score", "--metric", "bleu", "chrf", "--hypotheses", files["reference"], "--references", files["reference"]
    )
    assert (code, err) == (0, "")
    head, row, *notes = out.splitlines()
    assert head.split() == ["variant", "BLEU", "chrF2"]
    assert row.split() == [files["reference"].stem, "100.00", "±", "0.00", "100.00", "±", "0.00"]
    assert any(note.startswith("BLEU: nrefs:1|case:mixed") for note in notes)


def test_results_are_utf8_whatever_the_locale(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    system = files["good"].rename(files["good"].with_name("système"))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with pytest.raises(SystemExit) as ended:
        main(["score", "--hypotheses", str(system), "--references", str(files["reference"])])
    sys.stdout.flush()
    assert ended.value.code == 0
    assert "système" in written.getvalue().decode("utf-8")


def test_score_as_json_with_options(run_headway: Command, files: dict[str, Path]) -> None:
    upper = files["reference"].with_name("upper")
    upper.write_text(files["reference"].read_text(encoding="utf-8").upper(), encoding="utf-8")
    given = ("score", "--json", "--hypotheses", upper, "--references", files["reference"], files["good"], "--metric")
    assert json.loads(run_headway(*given, "bleu").out)["variants"]["upper"]["bleu"]["mean"] < 1
    folded = json.loads(run_headway(*given, "bleu:lowercase=true,tokenize=intl").out)
    assert folded["variants"]["upper"]["bleu"]["mean"] == pytest.approx(100)
    assert "|case:lc|" in folded["metrics"]["bleu"]["signature"]
    assert "|tok:intl|" in folded["metrics"]["bleu"]["signature"]


def test_data_check(run_headway: Command, reversal: Reversal) -> None:
    code, out, _ = run_headway("data", "check", reversal.recipe)
    assert code == 0
    assert "data.train: 320 pairs read, 320 kept" in out
    assert "data.dev: of 16 pairs with text, 0 (0.0%) also stand in train" in out
    code, out, _ = run_headway("data", "check", reversal.recipe, "data.max_length=4", "--json")
    report = json.loads(out)
    long = sum(len(word) == 4 for word in reversal.words[16:])  # and one piece that stands for the space before
    assert (code, report["train"]["pairs_kept"], report["train"]["dropped"]) == (
        0,
        320 - long,
        {"over max_length": long},
    )
    assert report["dev"]["pairs_kept"] == 16
    assert report["overlap"]["pairs"] == 0


def test_a_pipe_that_closes_early_is_no_accident(reversal: Reversal) -> None:
    command = [commands() / "headway", "predict", str(reversal.run), "--max-length", "2", "--beam", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(b"ab\n" * 3000)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_a_run_scores_targets_with_their_sources(run_headway: Command, reversal: Reversal) -> None:
    ended = run_headway("score", reversal.run)
    assert ended.code == 2
    assert "a run scores targets, given their sources; allowed: --source FILE --target FILE" in ended.err


def test_options_of_other_tasks_are_refused(run_headway: Command, reversal: Reversal) -> None:
    ended = run_headway("predict", reversal.run, "--threshold", "0.5")
    assert ended.code == 2
    assert "--threshold: translation has no such option" in ended.err
    assert "--nbest" in ended.err
    assert "--capture" not in ended.err, "the command line has no such option"


def test_quality_by_length(run_headway: Command, files: dict[str, Path], tmp_path: Path) -> None:
    given = ["--hypotheses", files["good"], "--references", files["reference"], "--source", files["reference"]]
    ended = run_headway("score", *given, "--by-length", tmp_path / "figure.svg", "--metric", "bleu")
    assert ended.code == 0
    assert "\n\nBLEU by length of the source in words\n" in ended.out
    assert (tmp_path / "figure.svg").exists()


def test_quality_by_length_needs_a_source_a_segment(
    run_headway: Command, files: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "source").write_text("one\n", encoding="utf-8")
    given = ["--hypotheses", files["good"], "--references", files["reference"], "--source", tmp_path / "source"]
    ended = run_headway("score", *given, "--by-length", tmp_path / "figure.svg")
    assert (ended.code, ended.out) == (2, "")
    assert f"error: {tmp_path / 'source'}: 1 lines for 20 references" in ended.err


FIRST_LETTERS = """
import numpy as np
from headway.metrics import Metric, Signature

class FirstLetters(Metric):
    name = "first-letters"

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def statistics(self, hypotheses, references):
        pairs = zip(hypotheses, references[0], strict=True)
        return np.array([[one[:1] == other[:1], 1] for one, other in pairs], dtype=np.float64)

    def aggregate(self, totals):
        return float(100 * totals[0] / totals[1])

    def signature(self):
        return Signature.of(case="lower" if self.lowercase else "mixed")
"""


def test_a_metric_named_by_import_path(
    run_headway: Command, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first_letters.py").write_text(FIRST_LETTERS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    given = ["score", "--hypotheses", files["good"], "--references", files["reference"], "--metric"]
    ended = run_headway(*given, "first_letters:FirstLetters:lowercase=true", "bleu")
    assert (ended.code, ended.out.split()[:3]) == (0, ["variant", "first-letters", "BLEU"])
    assert "first-letters: case:lower\n" in ended.out
    assert "--metric: cannot import the metric" in run_headway(*given, "first_letters:FirstLetter").err
    assert "not a subclass of headway.metrics.metric.Metric" in run_headway(*given, "first_letters:np").err
