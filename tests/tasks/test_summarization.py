"""Summarization from files to scores: truncation said, several references, the lead beside the model."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml

import headway.cli.console
from headway.cli import main
from headway.core.errors import UserError
from headway.corpora.lead import LeadConfig
from headway.formats.pairs import Pair
from headway.metrics import build_metric
from headway.recipe import parse_recipe
from headway.tasks import build_task, dev_metrics
from headway.tasks.translation import as_long_as_references
from tests.conftest import Command, Finished, plain

RECIPE = {
    "task": "summarization",
    "data": {
        "train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv", "columns": [1, 2, 3]},
        "truncate_source": 5, "max_length": 5, "lead": [1, "1-sentences"],
    },
    "vocabulary": {"kind": "whitespace", "shared": True},
    "model": {
        "dim": 16, "feed_forward": 32, "heads": 2, "dropout": 0.0, "encoder": {"layers": 1}, "decoder": {"layers": 1},
    },
    "objective": {"label_smoothing": 0.0},
    "optimizer": {"learning_rate": 1e-2, "schedule": "linear", "warmup": 20},
    "training": {"updates": 200, "batch_tokens": 256, "checkpoint_every": 100, "best_by": "rouge-l"},
    "decoding": {"max_length_offset": 2, "no_repeat_ngram": 1},
}  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A run that has learned to say the first two words, with what training said."""

    run: Path
    sources: list[str]
    references: list[list[str]]
    said: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder, draw = tmp_path_factory.mktemp("summaries"), random.Random(2)
    sources = [" ".join(draw.sample("abcdefgh", draw.randint(3, 8))) for _ in range(420)]
    rows = [f"{source}\t{source[:3]}" for source in sources]
    (folder / "train.tsv").write_text("\n".join(rows[20:]) + "\n", encoding="utf-8")
    dev = [f"{row}\t{source[:1]} x" for row, source in zip(rows[:20], sources, strict=False)]
    (folder / "dev.tsv").write_text("\n".join(dev) + "\n", encoding="utf-8")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    ended = headway_train(folder)
    assert ended.code == 0, ended.err
    references = [[row.split("\t")[column] for row in dev] for column in (1, 2)]
    return Trained(folder / "run", sources[:20], references, ended.err)


def headway_train(folder: Path) -> Finished:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.raises(SystemExit) as ended, headway.cli.console.console.capture() as said:
            main(["train", str(folder / "recipe.yaml"), "--output", str(folder / "run")])
    finally:
        torch.set_num_threads(threads)
    return Finished(int(ended.value.code or 0), "", plain(said.get()))


def test_training_says_what_is_cut_and_what_a_lead_scores(trained: Trained) -> None:
    longer = sum(len(source.split()) > 5 for source in trained.sources)
    assert f"truncated {longer} ({longer / 20:.1%}): of each source the first 5 pieces are read" in trained.said
    lead = build_metric("rouge-1").score([source[:1] for source in trained.sources], trained.references).value
    whole = build_metric("rouge-1").score(trained.sources, trained.references).value
    assert f"  beside it, on dev, lead-1-words · rouge-1 {lead:.2f} · rouge-2 0.00 · rouge-l {lead:.2f}" in trained.said
    assert f"lead-1-sentences · rouge-1 {whole:.2f}" in trained.said
    lines = [json.loads(line) for line in (trained.run / "metrics.jsonl").read_text().splitlines()]
    (first, last) = [line for line in lines if "dev" in line]
    assert first["baselines"] == last["baselines"]
    assert last["baselines"]["lead-1-words"]["rouge-1"] == pytest.approx(lead)
    assert set(last["dev"]) == {"rouge-1", "rouge-2", "rouge-l"}
    assert last["dev"]["rouge-1"] > 90 > lead
    report = (trained.run / "report.html").read_text(encoding="utf-8")
    assert "lead-1-sentences" in report


def test_the_best_reference_counts(trained: Trained) -> None:
    predictor = headway.load(trained.run, device="cpu")
    outputs = [each.text for each in predictor.predict(trained.sources)]
    assert sum(output == source[:3] for output, source in zip(outputs, trained.sources, strict=True)) >= 18
    scores = {name: build_metric(name).score(outputs, trained.references).value for name in ("rouge-1", "rouge-2")}
    lines = [json.loads(line) for line in (trained.run / "metrics.jsonl").read_text().splitlines()]
    best = max((line for line in lines if "dev" in line), key=lambda line: line["dev"]["rouge-l"])
    assert {name: best["dev"][name] for name in scores} == pytest.approx(scores)


def test_prediction_reads_as_much_as_training(trained: Trained, run_headway: Command) -> None:
    given = ["a b c d e f g h", "c d e", "a b c d e"]
    predictor = headway.load(trained.run, device="cpu")
    whole, short, exact = predictor.predict(given)
    assert (whole.truncated, short.truncated, exact.truncated) == (True, False, False)
    assert (whole.text, whole.source_tokens, whole.source) == (exact.text, exact.source_tokens, given[0])
    assert predictor.score([given[0]], ["a b"])[0] == predictor.score([given[2]], ["a b"])[0]
    assert len(predictor.predict(given, max_source_length=8)[0].source_tokens) == 8
    shorter = predictor.predict(given, max_source_length=2)
    assert [(len(each.source_tokens), each.truncated) for each in shorter] == [(2, True)] * 3
    code, out, err = run_headway("predict", trained.run, stdin="".join(f"{line}\n" for line in given))
    assert (code, out.splitlines()) == (0, [whole.text, short.text, exact.text])
    assert err == "1 of 3 lines are longer than the limit: only their beginning was read\n"


def test_scoring_says_what_it_did_not_read(trained: Trained, run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("a b c d e f g h\nc d e\n", encoding="utf-8")
    (tmp_path / "target").write_text("a b\nc d\n", encoding="utf-8")
    files = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    code, out, err = run_headway("score", trained.run, *files)
    assert (code, len(out.splitlines())) == (0, 2)
    assert err == "1 of 2 lines are longer than the limit: only their beginning was read\n"


def test_options_of_search(trained: Trained, run_headway: Command) -> None:
    def predict(*options: str, said: str = "") -> list[int]:
        code, out, err = run_headway("predict", trained.run, *options, stdin="a b c\nf e d\n")
        assert (code, err) == (0, said)
        return [len(line.split()) for line in out.splitlines()]

    assert predict() == [2, 2]
    assert predict("--min-length", "4") == [4, 4]
    said = "2 of 2 outputs are as long as they may be: their ends may be missing\n"
    assert max(predict("--max-length-ratio", "0", "--max-length-offset", "1", said=said)) == 1
    repeated = run_headway("predict", trained.run, "--min-length", "5", "--no-repeat-ngram", "0", stdin="a b c\n").out
    assert len(set(repeated.split())) < 5
    blocked = run_headway("predict", trained.run, "--min-length", "5", stdin="a b c\n").out.split()
    assert len(set(blocked)) == len(blocked) == 5


def test_scores_beside_a_lead(trained: Trained, run_headway: Command, tmp_path: Path) -> None:
    for name, lines in (("source", trained.sources), ("ref0", trained.references[0]), ("ref1", trained.references[1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = (
        "score", "--metric", "rouge-1", "rouge-l", "--hypotheses", tmp_path / "ref0", "--source", tmp_path / "source",
        "--references", tmp_path / "ref0", tmp_path / "ref1", "--lead", "2", "1-words",
    )  # fmt: skip
    code, out, _ = run_headway(*command)
    assert code == 0
    _, header, system, two, one, *notes = out.splitlines()
    assert header.split() == ["variant", "ROUGE-1", "ROUGE-L"]
    assert system.split()[1:] == ["100.00", "±", "0.00", "100.00", "±", "0.00"]
    assert two.split() == ["lead-2-words", "100.00", "±", "0.00", "100.00", "±", "0.00"]
    assert one.split()[:4] == ["lead-1-words", "66.67", "±", "0.00"]
    assert any(note.startswith("ROUGE-1: nrefs:2|refs:best|f1|case:lower|tok:ascii|stem:no|") for note in notes)
    assert "jackknife" in run_headway("score", *command[4:], "--metric", "rouge-1:jackknife=true").out
    content = json.loads(run_headway(*command, "--json").out)
    assert list(content["variants"])[1:] == ["lead-2-words", "lead-1-words"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--lead", "2"), "--lead: a lead is the beginning of a source; allowed: --source FILE beside it"),
        (("--lead", "two", "--source", "x"), "--lead: this is no beginning of a source; received 'two'"),
        (("--metric", "bleu:stem=true"), "bleu.stem: unknown key"),
        (("--metric", "rouge-1:tokenize=13a"), "rouge-1.tokenize: input should be 'ascii', 'words' or 'char"),
    ],
)
def test_mistakes_of_score(run_headway: Command, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    for name in "xy":
        (tmp_path / name).write_text("a\na\n", encoding="utf-8")
    files = [str(tmp_path / each) if each == "x" else each for each in options]
    code, out, err = run_headway("score", "--hypotheses", tmp_path / "x", "--references", tmp_path / "y", *files)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")


def test_a_lead_of_another_length_is_named(run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a\na\n", encoding="utf-8")
    (tmp_path / "long").write_text("a\nb\nc\n", encoding="utf-8")
    files = ("--hypotheses", tmp_path / "x", "--references", tmp_path / "x", "--source", tmp_path / "long")
    code, _, err = run_headway("score", "--metric", "rouge-1", *files, "--lead", "8")
    assert code == 2
    assert err.startswith(f"error: {tmp_path}/long: 3 lines for 2 references")


def test_the_lead_that_nobody_chose_is_as_long_as_references() -> None:
    pairs = [Pair(1, "a", "b c d"), Pair(2, "a", "b", ("b", "c d e f g h i", "")), Pair(3, "", "")]
    assert as_long_as_references(pairs) == LeadConfig(count=4)  # 11 words in 3 references
    assert as_long_as_references([Pair(1, "a", "")]) == LeadConfig(count=1)


def test_the_lead_of_text_without_spaces_counts_characters() -> None:
    pairs = [Pair(1, "東京で大きい地震があった", "東京で地震"), Pair(2, "雨が降った", "雨")]
    assert as_long_as_references(pairs) == LeadConfig(count=3, unit="characters")


def test_the_metrics_of_a_language_without_spaces() -> None:
    tree = {"task": "summarization", "data": {"train": {"tsv": "x"}, "dev": {"tsv": "y"}}}
    for language, tokens in (("ja", "characters"), ("ja-JP", "characters"), ("en", "ascii")):
        recipe = parse_recipe(tree | ONE | {"text": {"target": {"language": language}}})
        assert {metric.signature()["tok"] for metric in dev_metrics(recipe)} == {tokens}


def test_the_task() -> None:
    recipe = parse_recipe({"task": "summarization", "data": {"train": {"tsv": "x"}, "dev": {"tsv": "x"}}} | ONE)
    assert [metric.name for metric in dev_metrics(recipe)] == ["rouge-1", "rouge-2", "rouge-l"]
    build_task("summarization").check(recipe)


ONE = {"training": {"updates": 1}}


def test_labels_of_whole_sentences_cannot_be_learned_of_beginnings() -> None:
    tree = {
        "data": {"train": {"tsv": "x"}, "truncate_source": 20},
        "model": {"encoder": {"mixer": "dependency"}},
        "objective": {"dependency": {"sides": ["source"]}},
    }
    with pytest.raises(UserError, match=r"data\.truncate_source: the objective learns source_heads"):
        build_task("summarization").check(parse_recipe(tree | ONE))
