"""A task says what an experiment is scored by."""

from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import UserError
from headway.metrics import check_kind
from headway.processing.text.text_processor import PreparationConfig, TextConfig
from headway.recipe import Recipe, parse_recipe
from headway.tasks import TASKS, build_task, dev_metrics
from headway.training.start import check_recipe


def recipe(task: str = "translation", dev: bool = True, **training: Any) -> Recipe:
    corpus = {"tsv": "data.tsv"}
    data = {"train": corpus} | ({"dev": corpus} if dev else {})
    return parse_recipe({"task": task, "data": data, "training": {"updates": 1} | training})


def test_every_task_has_metrics_that_exist() -> None:
    for name in TASKS:
        assert build_task(name).name == name
        assert dev_metrics(recipe(name))


def test_the_metrics_of_translation() -> None:
    assert [metric.name for metric in dev_metrics(recipe())] == ["bleu", "chrf"]


def test_others_can_be_named_or_none() -> None:
    chosen = dev_metrics(recipe(dev_metrics=["exact_match", {"name": "bleu", "lowercase": True}]))
    assert [metric.name for metric in chosen] == ["exact_match", "bleu"]
    assert list(dev_metrics(recipe(dev_metrics=[]))) == []
    assert list(dev_metrics(recipe(dev=False))) == []


@pytest.mark.parametrize("best_by", ["loss", "bleu", "chrf", None])
def test_best_by_is_the_loss_or_a_metric(best_by: str | None) -> None:
    assert len(dev_metrics(recipe(best_by=best_by))) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "translate"}, "task: unknown task; did you mean 'translation'?; received 'translate'"),
        ({"task": "x", "dev_metrics": ["bleu"]}, "task: unknown task"),
        ({"best_by": "ter"}, "training.best_by: no such dev metric; received 'ter'; allowed: loss, bleu, chrf"),
        ({"best_by": "bleu", "dev_metrics": []}, "training.best_by: no such dev metric"),
        ({"dev_metrics": ["blue"]}, "training.dev_metrics: unknown metric; did you mean 'bleu'?"),
        ({"dev_metrics": [{"name": "bleu", "lower": True}]}, "bleu.lower: unknown key; did you mean 'lowercase'?"),
        ({"dev_metrics": [{"lowercase": True}]}, "training.dev_metrics: unknown metric"),
        ({"dev_metrics": ["chrf", {"name": "chrf", "word_order": 2}]}, "which stand twice; received ['chrf']"),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        dev_metrics(recipe(**given))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("entry", "language", "tokenizer"),
    [
        ("bleu", "ja", "char"), ("bleu", "zh-Hant", "zh"), ("bleu", "lo", "char"), ("bleu", "ko", "13a"),
        ("bleu", "fr-FR", "13a"), ({"name": "bleu", "tokenize": "intl"}, "ja", "intl"),
        ({"name": "bleu", "language": "en"}, "ja", "13a"), ("bleu", "a code of older runs", "13a"),
    ],
)  # fmt: skip
def test_dev_is_scored_by_the_language_of_the_target(entry: Any, language: str, tokenizer: str) -> None:
    of_language = recipe(dev_metrics=[entry, "chrf"]).model_copy(
        update={"text": TextConfig(target=PreparationConfig(language=language))}
    )
    assert dev_metrics(of_language)[0].signature()["tok"] == tokenizer
    before = dev_metrics(of_language, by_language=False)[0].signature()["tok"]
    assert before == (entry.get("tokenize", "13a") if isinstance(entry, dict) else "13a")


def test_a_metric_suits_its_task() -> None:
    for name in TASKS:
        task = build_task(name)
        check_kind(dev_metrics(recipe(name)), task.writes, "task", of_texts=task.reads_text)
    check_recipe(recipe(dev_metrics=["exact_match", "chrf"]))
    message = "training.dev_metrics: this metric scores labels, and the outputs are text; received 'accuracy'; allowed:"
    with pytest.raises(UserError, match=f"{message} bleu, chrf, ter, comet, rouge-1"):
        check_recipe(recipe(dev_metrics=["accuracy"]))


@pytest.mark.parametrize(
    ("data", "model", "allowed"),
    [
        ({"max_length": 50}, {"max_position": 50}, "up to 49"),
        ({"max_length": 50}, {"kind": "decoder_only", "max_position": 50}, "up to 48"),
        ({"max_length": 50}, {"kind": "recurrent", "max_position": 20}, "up to 19"),
        ({"max_length": 10**9}, {"max_position": 20}, "up to 19"),  # found at once
    ],
)
def test_what_training_reads_prediction_reads_too(data: dict[str, Any], model: dict[str, Any], allowed: str) -> None:
    tree = {"data": {"train": {"tsv": "x"}} | data, "model": model, "training": {"updates": 1}}
    message = f"data.max_length: sentences may be longer than what the model reads; received {data['max_length']}; "
    with pytest.raises(UserError, match=f"{message}allowed: {allowed},"):
        check_recipe(parse_recipe(tree))
    enough = {"data": tree["data"] | {"max_length": 50}, "model": model | {"max_position": 52}}
    check_recipe(parse_recipe(tree | enough))


@pytest.mark.parametrize(
    ("decoding", "model", "vocabulary", "message"),
    [
        (
            {"min_length": 25}, {"kind": "decoder_only", "position": "learned", "max_position": 20}, {},
            r"decoding\.min_length: the shortest output is longer than .* received 25; allowed: up to 12, or a higher",
        ),
        (
            {"unknown_words": "copy"}, {}, {},
            r"decoding\.unknown_words: .* parts of words, .* 'copy, and vocabulary\.kind bpe'; allowed: keep, or",
        ),
        ({"unknown_words": "copy"}, {}, {"kind": "word", "target": {"kind": "char"}}, r"vocabulary\.kind char"),
    ],
)  # fmt: skip
def test_what_prediction_would_refuse_is_found_before_training(
    decoding: dict[str, Any], model: dict[str, Any], vocabulary: dict[str, Any], message: str
) -> None:
    tree = {"data": {"train": {"tsv": "x"}, "max_length": 6}, "training": {"updates": 1}, "model": model}
    with pytest.raises(UserError, match=message):
        check_recipe(parse_recipe(tree | {"decoding": decoding, "vocabulary": vocabulary}))
    for kind in ("word", "whitespace"):
        check_recipe(parse_recipe(tree | {"decoding": {"unknown_words": "copy"}, "vocabulary": {"kind": kind}}))


@pytest.mark.parametrize(
    ("model", "attends"),
    [
        ({}, True),
        ({"decoder": {"cross": {"kind": "location", "window": "local-p"}}}, True),
        ({"decoder": {"cross": {"kind": "dot", "choice": "hard", "estimator": "straight_through"}}}, True),
        ({"kind": "decoder_only", "decoder": {"layers": 2, "mixer": ["attention", "ngram"]}}, True),
        ({"kind": "decoder_only", "decoder": {"mixer": "ngram"}}, False),
        ({"kind": "recurrent", "attention": {"score": "location", "window": "local-m"}}, True),
        ({"kind": "recurrent", "attention": {"kind": "monotonic"}}, True),
        ({"kind": "recurrent", "attention": {"kind": "none"}}, False),
    ],
)
def test_models_without_attention_copy_nothing(model: dict[str, Any], attends: bool) -> None:
    tree = {"data": {"train": {"tsv": "x"}}, "training": {"updates": 1}, "model": model | {"dim": 16}}
    recipe = parse_recipe(tree | {"decoding": {"unknown_words": "copy"}, "vocabulary": {"kind": "word"}})
    if attends:
        check_recipe(recipe)
    else:
        with pytest.raises(UserError, match=r"decoding\.unknown_words: this model has no attention to the source"):
            check_recipe(recipe)


def test_words_of_more_tokens_than_the_model_reads_are_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("abcdefgh\tb\n" * 3, encoding="utf-8")
    data = {"train": {"tsv": str(tmp_path / "x.tsv")}, "count": "words", "max_length": 2}
    tree = {"data": data, "vocabulary": {"kind": "char"}, "training": {"updates": 1}}
    task = build_task("translation")
    for room in (9, 10):
        given = parse_recipe(tree | {"model": {"dim": 8, "heads": 1, "max_position": room}})
        check_recipe(given)
        if room == 9:
            with pytest.raises(
                UserError, match=r"data.max_length: a pair of 9 and \d tokens .* allowed: up to 8 tokens"
            ):
                task.corpora(given, tmp_path / f"vocabulary-{room}")
        else:
            assert len(task.corpora(given, tmp_path / f"vocabulary-{room}").train) == 3


def test_sources_of_dev_that_decoding_cuts_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.tsv").write_text("a b\tb\n" * 3, encoding="utf-8")
    (tmp_path / "y.tsv").write_text("a b\tb\na b a b a b a b\tb\n", encoding="utf-8")
    data = {"train": {"tsv": str(tmp_path / "x.tsv")}, "dev": {"tsv": str(tmp_path / "y.tsv")}, "max_length": 5}
    tree = {"data": data, "vocabulary": {"kind": "whitespace"}, "training": {"updates": 1}}
    for room in (8, 9):
        caplog.clear()
        given = parse_recipe(tree | {"model": {"dim": 8, "heads": 1, "max_position": room}})
        build_task("translation").corpora(given, tmp_path / f"vocabulary-{room}")
        told = "data.dev: 1 of 2 sources are longer than the model reads; decoding reads their first 7 tokens"
        assert (told in caplog.text) == (room == 8)
