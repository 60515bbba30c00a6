"""Tagging tasks from a recipe to predictions: training, resumption, the run folder, every word a label."""

import csv
import gzip
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import headway
from headway.comparison.cells import CellName, NamedCorpus
from headway.core.errors import UserError
from headway.core.files import sha256
from headway.formats.corpus_config import parse_corpus
from headway.formats.labelled_words import read_columns
from headway.grids.run import result_of_run
from headway.inspect.inspect_options import LayerOptions
from headway.inspect.layers import inspect_layers, layer_totals, self_attention, self_attention_figure
from headway.metrics import build_metric
from headway.predictors.label_predictor import LabelPredictor
from headway.recipe import load_recipe
from headway.tasks import build_task
from headway.training.loop import train
from headway.training.report import write_run_report
from headway.training.start import check_recipe
from tests.conftest import Command
from tests.inspect.test_inspection import read_values, sentences_of
from tests.models.encoders import LAYERS, write_encoder
from tests.rounding import rounding
from tests.terminal import at_terminal

WORDS = ["he", "she", "they", "goes", "home", "not", "bad", "xyz", "\u200b", "abcdefgh"]
HARD = ["\u200b", "\U0001f600", "Ω", "abcdefgh" * 30, "don't", "\u00ad", "."]


def sentences(count: int, seed: int) -> str:
    """Columns in which `bad` and what follows `not` is wrong."""
    draw, text = random.Random(seed), ""
    for _ in range(count):
        before = ""
        for _ in range(draw.randint(1, 8)):
            word = draw.choice(WORDS)
            text += f"{word}\t{'i' if word == 'bad' or before == 'not' else 'c'}\n"
            before = word
        text += "\n"
    return text


class Learned(NamedTuple):
    """A trained run, its recipe and its dev."""

    run: Path
    recipe: Path
    dev: Path


def write_recipe(folder: Path, **changes: Any) -> Path:
    tree = {
        "task": "error_detection",
        "data": {"train": {"tsv": "train.tsv"}, "dev": {"tsv": "dev.tsv"}, "max_length": 40, "folder": str(folder)},
        "model": {"kind": "tagger", "encoder": str(folder / "encoder"), "heads": 3, "dropout": 0.1},
        "objective": {"label_smoothing": 0.0},
        "optimizer": {"learning_rate": 5e-3, "schedule": "constant", "warmup": 0},
        "training": {"updates": 90, "batch_sentences": 16, "checkpoint_every": 30},
    }
    for key, value in changes.items():
        tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learned]:
    folder = tmp_path_factory.mktemp("detection")
    write_encoder(folder / "encoder")
    for name, count, seed in (("train", 400, 1), ("dev", 60, 2)):
        (folder / f"{name}.tsv").write_text(sentences(count, seed), encoding="utf-8")
    recipe = write_recipe(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert train(load_recipe(recipe), folder / "run") == 0
    shutil.rmtree(folder / "encoder")  # the run folder is all that is needed from here on
    yield Learned(folder / "run", recipe, folder / "dev.tsv")
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("this needs no network")

    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.fixture(scope="module")
def predictor(learned: Learned) -> LabelPredictor:
    found = headway.load(learned.run, device="cpu")
    assert isinstance(found, LabelPredictor)
    return found


def test_a_run_has_learned_and_holds_all_it_needs(learned: Learned) -> None:
    lines = [json.loads(line) for line in (learned.run / "metrics.jsonl").read_text().splitlines()]
    dev = [line["dev"] for line in lines if "dev" in line]
    assert set(dev[0]) == {"f0.5", "precision", "recall"}
    assert dev[-1]["f0.5"] > 80
    names = {path.name for path in (learned.run / "vocabulary").iterdir()}
    assert {"config.json", "labels.json", "tokenizer.json"} <= names


def test_every_word_gets_a_label(predictor: LabelPredictor) -> None:
    draw = random.Random(1)
    given = [[draw.choice(WORDS + HARD) for _ in range(length)] for length in (0, 1, 3, 40, 300)]
    for budget in (40, 400):
        said = predictor.predict(given, batch_tokens=budget)
        assert [len(each.labels) for each in said] == [0, 1, 3, 40, 300]
        for words, each in zip(given, said, strict=True):
            assert each.words == tuple(words)
            assert set(each.labels) <= {"c", "i"}
            np.testing.assert_allclose(each.probabilities.sum(1), 1, atol=1e-5)


def test_batches_and_order_change_nothing(predictor: LabelPredictor) -> None:
    given = ["he goes home", "bad", "they goes not home " * 20]
    together = predictor.predict(given, batch_tokens=2000)
    for words, each in zip(given, together, strict=True):
        (alone,) = predictor.predict([words], batch_tokens=1)
        np.testing.assert_allclose(alone.probabilities, each.probabilities, atol=1e-5)


def test_several_runs_are_averaged(learned: Learned, predictor: LabelPredictor) -> None:
    both = headway.load(learned.run, learned.run, device="cpu").predict(["he goes bad home"])
    np.testing.assert_allclose(
        both[0].probabilities, predictor.predict(["he goes bad home"])[0].probabilities, atol=rounding()
    )


def test_dev_scores_are_those_of_the_loaded_run(learned: Learned, predictor: LabelPredictor) -> None:
    dev = list(read_columns(learned.dev))
    said = [" ".join(each.labels) for each in predictor.predict([each.words for each in dev])]
    value = build_metric("f0.5").score(said, [[" ".join(each.labels[0]) for each in dev]]).value
    lines = [json.loads(line) for line in (learned.run / "metrics.jsonl").read_text().splitlines()]
    assert value == pytest.approx(max(line["dev"]["f0.5"] for line in lines if "dev" in line))


def test_resuming_ends_with_the_same_bytes(learned: Learned, tmp_path: Path) -> None:
    write_encoder(learned.recipe.parent / "encoder")
    try:
        recipe = load_recipe(learned.recipe, ["training.updates=8", "training.checkpoint_every=4"])
        assert train(recipe, tmp_path / "whole") == 0
        half = load_recipe(learned.recipe, ["training.updates=4", "training.checkpoint_every=4"])
        assert train(half, tmp_path / "parts") == 0
        shutil.rmtree(learned.recipe.parent / "encoder")
        write_encoder(learned.recipe.parent / "encoder", num_hidden_layers=1)  # resumption does not look at it
        (learned.recipe.parent / "encoder" / "model.safetensors").unlink()
        assert train(recipe, tmp_path / "parts", resume=True) == 0
    finally:
        shutil.rmtree(learned.recipe.parent / "encoder")
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == two


def test_resuming_with_other_cached_layers_ends_with_the_same_bytes(
    learned: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_encoder(tmp_path / "encoder")
    for name in ("train", "dev"):
        shutil.copy(learned.dev.with_stem(name), tmp_path)
    written = write_recipe(tmp_path, model={"freeze": True, "cache_bytes": 20_000, "dropout": 0.3})
    recipe = load_recipe(written, ["training.updates=8", "training.checkpoint_every=4"])
    assert train(recipe, tmp_path / "whole") == 0
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "empty"))
    half = load_recipe(written, ["training.updates=4", "training.checkpoint_every=4"])
    assert train(half, tmp_path / "parts") == 0
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "emptied"))
    assert train(recipe, tmp_path / "parts", resume=True) == 0
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == two


def test_an_encoder_that_learns_is_not_cached(learned: Learned, tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    recipe = load_recipe(write_recipe(tmp_path, model={"cache_bytes": 20_000}))
    with pytest.raises(UserError, match=r"model\.cache_bytes"):
        train(recipe, tmp_path / "run")


@pytest.mark.parametrize("changes", [{"layers": "average", "freeze": True}, {"pretrained": False}])
def test_baselines_train(learned: Learned, tmp_path: Path, changes: dict[str, Any]) -> None:
    write_encoder(tmp_path / "encoder")
    for name in ("train", "dev"):
        shutil.copy(learned.dev.with_stem(name), tmp_path)
    recipe = load_recipe(write_recipe(tmp_path, model=changes), ["training.updates=3", "training.checkpoint_every=3"])
    assert train(recipe, tmp_path / "run") == 0
    weights = load_file(tmp_path / "run" / "model.safetensors")
    before = load_file(tmp_path / "encoder" / "model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    changed = not torch.equal(weights[f"encoder.{name}"], before[name])
    assert changed is not changes.get("freeze", False)
    assert len(headway.load(tmp_path / "run").predict(["he goes home"])[0].labels) == 3


def test_part_of_speech_tagging_is_another_task_of_the_same_kind(tmp_path: Path, run_headway: Command) -> None:
    write_encoder(tmp_path / "encoder")
    tags = {"he": "PRON", "they": "PRON", "goes": "VERB", "home": "NOUN", ".": "PUNCT"}
    draw = random.Random(3)
    for name, count in (("train", 150), ("dev", 20)):
        text = ""
        for _ in range(count):
            words = [draw.choice(list(tags)) for _ in range(draw.randint(1, 6))]
            text += "".join(f"{n}\t{w}\t{w}\tX\t{tags[w]}\t_\t0\t_\t_\t_\n" for n, w in enumerate(words, 1)) + "\n"
        (tmp_path / f"{name}.conllu").write_text(text, encoding="utf-8")
    recipe = load_recipe(
        write_recipe(
            tmp_path,
            task="tagging",
            data={name: {"conllu": f"{name}.conllu", "label": "xpos"} for name in ("train", "dev")},
        ),
        ["training.updates=60"],
    )
    assert train(recipe, tmp_path / "run") == 0
    loaded = headway.load(tmp_path / "run")
    assert loaded.labels == ("NOUN", "PRON", "PUNCT", "VERB")
    assert loaded.predict(["they goes home ."])[0].labels == ("PRON", "VERB", "NOUN", "PUNCT")
    with pytest.raises(UserError, match="threshold: this task seeks no label"):
        loaded.predict(["he"], threshold=0.5)
    check_commands_on_conllu(loaded, run_headway, tmp_path)


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ([{"name": "f0.5"}, {"name": "recall"}], ["data.dev: no word of the references has the label 'i'"]),
        ([{"name": "f0.5", "label": "VERB"}, {"name": "accuracy"}], []),
    ],
)
def test_a_label_that_dev_does_not_have_is_told_before_training(
    tmp_path: Path, metrics: list[dict[str, str]], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_encoder(tmp_path / "encoder")
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("he\tPRON\ngoes\tVERB\n\n" * 4, encoding="utf-8")
    training = {"updates": 2, "checkpoint_every": 1, "dev_metrics": metrics}
    recipe = load_recipe(write_recipe(tmp_path, task="tagging", training=training))
    assert train(recipe, tmp_path / "run") == 0
    told = [message.partition(";")[0] for message in caplog.messages if "no word of" in message]
    assert told == said
    caplog.clear()
    assert train(recipe, tmp_path / "run", resume=True) == 0
    assert not any("no word of" in message for message in caplog.messages)


def check_commands_on_conllu(loaded: LabelPredictor, run_headway: Command, folder: Path) -> None:
    """Commands read CoNLL-U, compressed as well, by the column that was learned."""
    run, dev, gold = folder / "run", folder / "dev.conllu.gz", folder / "gold.tsv"
    text = (folder / "dev.conllu").read_text(encoding="utf-8")
    dev.write_bytes(gzip.compress(f"# a comment\n{text}".encode()))
    rows = [row.split("\t") for row in text.splitlines()]
    gold.write_text("".join(f"{row[1]}\t{row[4]}\n" if len(row) > 1 else "\n" for row in rows), encoding="utf-8")
    sentences = list(read_columns(gold))
    raw = build_task("tagging").given_test_set(loaded.recipe, [dev])
    assert [example.words for example in raw.examples] == [each.words for each in sentences]
    for command in (["score", run, "--source"], ["inspect", "tables", "layers", run, "--data"]):
        by_columns, by_conllu = (run_headway(*command, path) for path in (gold, dev))
        assert (by_conllu.code, by_conllu.out) == (0, by_columns.out), by_conllu.err
    said = run_headway("predict", run, stdin="".join(f"{' '.join(each.words)}\n" for each in sentences)).out
    (folder / "said.tsv").write_text(said, encoding="utf-8")
    files = ["--hypotheses", folder / "said.tsv", "--json", "--references"]
    metrics = {"accuracy": gold, "accuracy:conllu_label=xpos": dev, "accuracy:conllu_label=upos": dev}
    scores = [run_headway("score", *files, path, "--metric", metric).out for metric, path in metrics.items()]
    values = [json.loads(out)["variants"]["said"]["accuracy"]["mean"] for out in scores]
    assert values[0] == values[1] > 50
    assert values[2] == 0


def test_predict_writes_tsv_json_and_marks(learned: Learned, run_headway: Command) -> None:
    lines = "he goes bad home\n\n" + " ".join(HARD) + "\n"
    tsv = run_headway("predict", learned.run, stdin=lines)
    assert tsv.code == 0
    blocks = tsv.out.split("\n\n")
    written = tsv.out.splitlines()
    assert [place for place, row in enumerate(written) if not row] == [4, 5, 6 + len(HARD)]  # after each input line
    rows = [row.split("\t") for row in blocks[0].splitlines()]
    assert [row[:2] for row in rows] == [["he", "c"], ["goes", "c"], ["bad", "i"], ["home", "c"]]
    assert float(rows[2][2]) > 0.5 > float(rows[1][2])
    objects = [
        json.loads(line)
        for line in run_headway("predict", learned.run, "--format", "json", stdin=lines).out.splitlines()
    ]
    assert [len(each["words"]) for each in objects] == [4, 0, len(HARD)]
    assert objects[0]["labels"] == ["c", "c", "i", "c"]
    assert set(objects[0]["probabilities"]) == {"c", "i"}
    columns = run_headway("predict", learned.run, stdin="he\tc\nbad\ti\n")
    assert (columns.code, columns.out) == (2, "")
    assert "line 1: lines of text are read here, and these are rows with tabs" in columns.err
    assert """`cut -f1 FILE | awk -v RS= '{gsub("\\n", " "); print}'`""" in columns.err, "a word alone is no sentence"
    marked = run_headway("predict", learned.run, "--format", "marked", stdin="he goes bad home\n").out
    assert marked == "he goes [bad] home\n"
    assert (
        run_headway("predict", learned.run, "--raw", stdin="bad.\n").out.count("\n") == 3
    )  # two words and a blank line


@pytest.mark.parametrize("sentence", ["he \ud83d", ("he", "\ud83d")])
def test_half_of_a_character_is_no_word(predictor: LabelPredictor, sentence: Any) -> None:
    with pytest.raises(UserError, match="half of a surrogate pair"):
        predictor.predict([sentence])


@pytest.mark.slow
def test_labels_reach_a_file_from_a_terminal(learned: Learned, tmp_path: Path) -> None:
    ended = at_terminal("predict", learned.run, out="file", folder=tmp_path, stdin="he bad\n")
    assert [row.split("\t")[:2] for row in ended.out.splitlines()] == [["he", "c"], ["bad", "i"], [""]]
    assert "labelling" in ended.drawn
    assert ended.screen == []


def test_thresholds(learned: Learned, predictor: LabelPredictor, run_headway: Command) -> None:
    for threshold, expected in (("0", "i"), ("1", "c")):
        out = run_headway("predict", learned.run, "--threshold", threshold, stdin="he goes\n").out
        assert [row.split("\t")[1] for row in out.split("\n\n")[0].splitlines()] == [expected] * 2
    first = run_headway("predict", learned.run, "--threshold", "dev", stdin="he bad\n")
    assert "F0.5" in first.err
    kept = json.loads((learned.run / "threshold.json").read_text())
    again = run_headway("predict", learned.run, "--threshold", "dev", stdin="he bad\n")
    assert (again.out, again.err) == (first.out, "")
    dev = list(read_columns(learned.dev))
    gold = [[" ".join(each.labels[0]) for each in dev]]
    words = [each.words for each in dev]

    def score(threshold: float) -> float:
        said = [" ".join(each.labels) for each in predictor.predict(words, threshold=threshold)]
        return build_metric("f0.5").score(said, gold).value

    assert score(kept["threshold"]) == pytest.approx(kept["dev_f0.5"])
    assert all(score(other / 20) <= kept["dev_f0.5"] + 1e-6 for other in range(21))
    for wrong in ("1.5", "high"):
        assert run_headway("predict", learned.run, "--threshold", wrong, stdin="he\n").code == 2


def test_a_threshold_is_kept_for_the_weights_of_one_run_alone(learned: Learned, tmp_path: Path) -> None:
    def copied(folder: Path, scale: float) -> Path:
        """The run with scaled weights, which are not those of any checkpoint."""
        shutil.copytree(learned.run, folder)
        (folder / "threshold.json").unlink(missing_ok=True)
        weights = {name: values * scale for name, values in load_file(folder / "model.safetensors").items()}
        save_file(weights, folder / "model.safetensors")
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["model_sha256"] = sha256(folder / "model.safetensors")
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    def chosen(predictor: LabelPredictor) -> float:
        return predictor.choose_threshold([(each.words, each.labels[0]) for each in read_columns(learned.dev)])[0]

    first, second = copied(tmp_path / "first", 0.9), copied(tmp_path / "second", 0.8)
    alone = headway.load(first).best_threshold()
    kept = (first / "threshold.json").read_text()
    assert alone == json.loads(kept)["threshold"]
    for changed in (headway.load(first, second), headway.load(first, average=2)):
        assert changed.best_threshold() == changed.best_threshold() == chosen(changed) != alone
        assert (first / "threshold.json").read_text() == kept
    assert headway.load(first).best_threshold() == alone


def test_options_of_translation_are_refused(learned: Learned, run_headway: Command) -> None:
    ended = run_headway("predict", learned.run, "--beam", "3", stdin="he\n")
    assert ended.code == 2
    assert "--beam: error_detection has no such option" in ended.err
    assert (
        "--format: input should be 'tsv', 'json' or 'marked'"
        in run_headway("predict", learned.run, "--format", "xml", stdin="he\n").err
    )


def test_scoring_files_and_forced_scores(learned: Learned, run_headway: Command, tmp_path: Path) -> None:
    dev = list(read_columns(learned.dev))
    said = run_headway("predict", learned.run, stdin="".join(" ".join(each.words) + "\n" for each in dev)).out
    (tmp_path / "said.tsv").write_text(said, encoding="utf-8")
    ended = run_headway(
        "score",
        "--metric",
        "precision",
        "recall",
        "f0.5",
        "--hypotheses",
        tmp_path / "said.tsv",
        "--references",
        learned.dev,
    )
    assert ended.code == 0
    assert "f0.5" in ended.out
    assert f"{len(dev)} segments" in ended.out
    rows = run_headway("score", learned.run, "--source", learned.dev).out.splitlines()
    assert [int(row.split("\t")[2]) for row in rows] == [len(each.words) for each in dev]
    assert all(float(row.split("\t")[0]) <= 0 for row in rows)
    first = json.loads(run_headway("score", learned.run, "--source", learned.dev, "--json").out.splitlines()[0])
    assert first["log_probability"] == pytest.approx(sum(first["log_probabilities"]))
    assert run_headway("score", learned.run).code == 2


def test_the_report_shows_dev_sentences_with_their_marks(learned: Learned) -> None:
    shown = build_task("error_detection").examples(headway.load(learned.run), 5)
    assert len(shown) == 5
    first = next(read_columns(learned.dev))
    assert shown[0].source == " ".join(first.words)
    assert shown[0].example.references[0].count("[") == first.labels[0].count("i")
    (name,) = shown[0].attention
    assert (name, shown[0].attention.columns[name][0]) == (f"encoder.{LAYERS}.self", "[CLS]")


def test_the_report_page_of_a_run(learned: Learned) -> None:
    page = write_run_report(learned.run).read_text(encoding="utf-8")
    for part in ("error_detection", "tagger, ", "dev.f0.5", "[bad]", f"encoder layer {LAYERS}, self"):
        assert part in page


def test_a_corpus_without_sentences(learned: Learned, tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    (tmp_path / "train.tsv").write_text("\n\n", encoding="utf-8")
    shutil.copy(learned.dev, tmp_path)
    with pytest.raises(UserError, match=r"data\.train: there is no sentence here"):
        train(load_recipe(write_recipe(tmp_path)), tmp_path / "run")


def test_data_check_says_what_is_there(learned: Learned, run_headway: Command) -> None:
    write_encoder(learned.recipe.parent / "encoder")
    try:
        ended = run_headway("data", "check", learned.recipe, "data.max_length=9")
        assert "data.train: 400 sentences" in ended.out
        assert "data.dev: 60 sentences" in ended.out
        assert " are longer than data.max_length" in ended.out
        assert json.loads(run_headway("data", "check", learned.recipe, "--json").out)["dev"]["sentences"] == 60
    finally:
        shutil.rmtree(learned.recipe.parent / "encoder")


def test_mistakes_before_any_work(learned: Learned, tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    cases = [
        ({"model": {"heads": 5}}, r"model\.heads: heads do not divide"),
        ({"data": {"max_length": 41}}, r"data\.max_length: the encoder cannot read so many tokens; .* up to 40"),
        ({"optimizer": {"schedule": "noam"}}, r"optimizer\.schedule: noam needs a model\.dim"),
        ({"training": {"best_by": "accuracy"}}, r"training\.best_by"),
        ({"data": {"drop_duplicates": True}}, r"data\.drop_duplicates: error_detection has no pairs"),
        ({"data": {"truncate_source": 3}}, r"data\.truncate_source: error_detection reads whole sentences"),
        ({"data": {"lead": [8]}}, r"data\.lead: error_detection reads whole sentences"),
        ({"text": {"source": {"normalise": ["lower"]}}}, r"text\.source\.normalise: labelled words are read as they"),
        ({"objective": {"dependency": {}}}, r"objective: a tagger learns from labels alone"),
        ({"task": "translation"}, r"model\.kind: the task translation cannot use this kind of model; .*'tagger'"),
    ]
    for changes, message in cases:
        with pytest.raises(UserError, match=message):
            check_recipe(load_recipe(write_recipe(tmp_path, **changes)))
    other = {"task": "error_detection", "data": {"train": {"tsv": "x"}}, "training": {"updates": 1}}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    with pytest.raises(
        UserError, match=r"model\.kind: the task error_detection cannot use .*received 'transformer'.*tagger"
    ):
        check_recipe(load_recipe(tmp_path / "other.yaml"))


def test_layer_weights_and_evenness(learned: Learned, predictor: LabelPredictor) -> None:
    words = [each.words for each in read_columns(learned.dev)][:20]
    totals = layer_totals(predictor, words)
    weights, evenness = totals.weights(), totals.evenness()
    looks = [look for each in words for look in predictor.capture(each)]
    every = [each for look in looks for each in look.layer_weights()]
    assert weights.words == len(every)
    for head in range(3):
        for layer in range(LAYERS):
            column = [each[head, layer] for each in every]
            assert weights.mean[head, layer] == pytest.approx(sum(column) / len(column), abs=rounding())
            assert weights.deviation[head, layer] == pytest.approx(np.std(column), abs=rounding())
    assert weights.mean.sum(1) == pytest.approx(1)
    look, deviations = looks[0], []
    last, mixed = self_attention(look)
    for row, place in enumerate(look.words):
        share = look.layer_weights()[row].mean(0)
        slow = sum(share[layer] * look.self_attention()[layer, :, place].mean(0) for layer in range(LAYERS))
        np.testing.assert_allclose(mixed[row], slow, atol=rounding())
        np.testing.assert_allclose(last[row], look.self_attention()[-1, :, place].mean(0), atol=rounding())
        deviations.append(np.std(last[row]))
    assert layer_totals(predictor, words[:1]).evenness().last == pytest.approx(np.mean(deviations), abs=rounding())
    assert 0 < evenness.mixed < 1


def test_the_evenness_of_a_run_is_an_output(learned: Learned, predictor: LabelPredictor) -> None:
    corpus = parse_corpus({"tsv": learned.dev}, "test")
    long = [word for each in read_columns(learned.dev) for word in each.words][:60]  # more than a window
    (learned.dev.parent / "long.tsv").write_text("".join(f"{word}\tc\n" for word in long))
    tests = [
        NamedCorpus("evenness", corpus, evenness=True),
        NamedCorpus("long", parse_corpus({"tsv": learned.dev.with_name("long.tsv")}, "test"), evenness=True),
    ]
    dev, other = result_of_run(CellName("mixed", 1, learned.run), tests, device="cpu").outputs
    evenness = layer_totals(predictor, [each.words for each in read_columns(learned.dev)]).evenness()
    found = build_metric("deviation").score(dev.hypotheses, dev.test.references).value
    assert found == pytest.approx(1000 * evenness.mixed, rel=1e-4)
    assert len(other.hypotheses[0].split()) == 60
    assert NamedCorpus("a", corpus, evenness=True).fingerprint() != NamedCorpus("a", corpus).fingerprint()


def test_inspect_prints_and_draws(learned: Learned, run_headway: Command, tmp_path: Path) -> None:
    ended = run_headway(
        "inspect",
        "tables",
        "layers",
        learned.run,
        "--data",
        learned.dev,
        "--figure",
        tmp_path / "a.png",
        "--beside",
        learned.run,
    )
    assert ended.code == 0, ended.err
    assert "layers as weighted" in ended.out
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    content = json.loads(run_headway("inspect", "tables", "layers", learned.run, "--data", learned.dev, "--json").out)
    assert len(content["layer_weights"]["mean"]) == LAYERS
    with pytest.raises(UserError, match="sentence: there are fewer sentences; received 99"):
        inspect_layers(learned.run, LayerOptions(data=learned.dev, figure=tmp_path / "b.png", sentence=99))


@pytest.mark.slow
def test_figures_of_a_corpus_of_words(
    learned: Learned, predictor: LabelPredictor, run_headway: Command, tmp_path: Path
) -> None:
    ended = run_headway("inspect", "figures", learned.run, "--output", tmp_path / "own")
    assert ended.code == 0, ended.err
    names = {"entropy", "layer-weights", "quality-by-length", "relative-position-encoder", "self-attention-deviation"}
    assert {path.stem for path in (tmp_path / "own").iterdir()} == names | {"within-encoder"}
    totals = layer_totals(predictor, [each.words for each in read_columns(learned.dev)])
    weights, evenness = totals.weights(), totals.evenness()
    with (tmp_path / "own" / "layer-weights.csv").open(newline="") as file:
        found = [float(row["mean"]) for row in csv.DictReader(file)]
    assert found == pytest.approx(weights.mean.ravel(), abs=1e-5)
    with (tmp_path / "own" / "self-attention-deviation.csv").open(newline="") as file:
        found = {row["layer"]: float(row["deviation"]) for row in csv.DictReader(file)}
    assert found["as weighted"] == pytest.approx(evenness.mixed, abs=1e-5)
    assert found[str(LAYERS)] == pytest.approx(evenness.last, abs=1e-5)
    with (tmp_path / "own" / "quality-by-length.csv").open(newline="") as file:
        assert sum(int(row["segments"]) for row in csv.DictReader(file)) == 60
    (tmp_path / "words").write_text("he goes home\n\nnot bad\n")
    (tmp_path / "labels").write_text("c c c\n\nc i\n")
    given = ("--output", tmp_path / "given", "--input", tmp_path / "words", "--json")
    assert json.loads(run_headway("inspect", "figures", learned.run, *given).out)["read"] == 2
    assert not (tmp_path / "given" / "quality-by-length.csv").exists()
    assert run_headway("inspect", "figures", learned.run, *given, "--reference", tmp_path / "labels").code == 0
    assert (tmp_path / "given" / "quality-by-length.csv").exists()
    (tmp_path / "labels").write_text("c c c\n\nc\n")
    ended = run_headway("inspect", "figures", learned.run, *given, "--reference", tmp_path / "labels")
    assert "labels:3: each word needs one label; received '1 labels for 2 words'" in ended.err


def test_only_a_model_with_layer_attention_has_a_mix(learned: Learned, tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    for name in ("train", "dev"):
        shutil.copy(learned.dev.with_stem(name), tmp_path)
    path = write_recipe(tmp_path, model={"layers": "last"}, training={"updates": 1, "checkpoint_every": 1})
    assert train(load_recipe(path), tmp_path / "run") == 0
    loaded = headway.load(tmp_path / "run")
    totals = layer_totals(loaded, [["he", "goes"]])
    assert (totals.weights(), totals.evenness().mixed) == (None, None)
    (tmp_path / "test.tsv").write_text("he\tc\ngoes\tc\n")
    tests = [NamedCorpus("a", parse_corpus({"tsv": tmp_path / "test.tsv"}, "test"), evenness=True)]
    (output,) = result_of_run(CellName("last", 1, tmp_path / "run"), tests).outputs
    found = build_metric("deviation").score(output.hypotheses, output.test.references).value
    assert found == pytest.approx(1000 * totals.evenness().last, rel=1e-4)
    with pytest.raises(UserError, match="does not attend to layers"):
        self_attention_figure(loaded, ["he"], None, tmp_path / "a.png")


def test_capture_gives_arrays_with_their_tokens_and_changes_nothing(predictor: LabelPredictor) -> None:
    draw = random.Random(3)
    words = [draw.choice(WORDS) for _ in range(60)]  # more than a window
    (off,), (on,) = predictor.predict(" ".join(words)), predictor.predict(" ".join(words), capture="all")
    assert (on.words, on.labels, off.windows) == (off.words, off.labels, ())
    np.testing.assert_array_equal(on.probabilities, off.probabilities)
    assert len(on.windows) > 1
    assert [word for look in on.windows for word in look.rows["layers"]] == words
    for look in on.windows:
        own, layers = look.captured["encoder.self"], look.captured["layers"]
        assert own.weights.shape == (LAYERS, own.weights.shape[1], len(own.rows), len(own.columns))
        assert own.rows == own.columns
        assert layers.weights.shape == (1, 3, len(look.words), LAYERS)
        assert layers.columns[0] == "layer 1"
        for each in (own, layers):
            np.testing.assert_allclose(each.weights.sum(-1), 1, atol=1e-5)
        shown = look.to_bertviz()
        assert torch.stack([each.squeeze(0) for each in shown["attention"]]).shape[2] == len(shown["tokens"])
    with pytest.raises(UserError, match="capture: a tagger captures all or nothing; received 'layers'; allowed: all"):
        predictor.predict(["he"], capture="layers")


def test_a_page_shows_labels_layers_and_self_attention(
    learned: Learned, predictor: LabelPredictor, run_headway: Command, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert run_headway("inspect", learned.run, "--sentences", "4", "--output", page, "--device", "cpu").code == 0
    dev = list(read_columns(learned.dev))[:4]
    for sentence, shown in zip(dev, sentences_of(page), strict=True):
        (said,), (look,) = predictor.predict([sentence.words]), predictor.capture(sentence.words)
        assert [each["word"] for each in shown["words"]] == list(sentence.words)
        assert [each["label"] for each in shown["words"]] == list(said.labels)
        assert [each["gold"] for each in shown["words"]] == list(sentence.labels[0])
        best = [said.probabilities[n, predictor.labels.index(label)] for n, label in enumerate(said.labels)]
        np.testing.assert_allclose([each["probability"] for each in shown["words"]], best, rtol=1e-5)
        layers, own = shown["maps"]
        assert (layers["title"], own["title"]) == ("Layers", "Encoder")
        weights = read_values(layers["layers"][0], 16, False, LAYERS)
        np.testing.assert_allclose(weights, look["layers"], atol=1e-4)
        expected = look.self_attention()[-1]
        last = read_values(own["layers"][-1], 16, False, expected.shape[-1])
        np.testing.assert_allclose(last, expected, atol=1e-4)


def test_what_a_page_of_labels_refuses(learned: Learned, run_headway: Command, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("c i c\n")
    given = ("inspect", learned.run, "--text", "a b", "--reference", tmp_path / "labels", "--output", tmp_path / "p")
    code, _, err = run_headway(*given)
    assert (code, "line 1: a tagger's reference has a label for each word" in err) == (2, True)
    (tmp_path / "gold").write_text("0-0\n")
    assert "--gold: a tagger aligns nothing" in run_headway(*given, "--gold", tmp_path / "gold").err


def test_a_dev_set_with_other_labels_is_refused_before_training(tmp_path: Path, run_headway: Command) -> None:
    write_encoder(tmp_path / "encoder")
    (tmp_path / "train.tsv").write_text("he\tPRON\ngoes\tVERB\n\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("he\tPRP\ngoes\tVBZ\n\n", encoding="utf-8")
    recipe = write_recipe(tmp_path, task="tagging", training={"updates": 2, "checkpoint_every": 1})
    for command in (["data", "check", recipe], ["train", recipe, "--output", tmp_path / "run"]):
        ended = run_headway(*command)
        assert ended.code == 2
        said = "data.dev: no word here has a label that data.train has; received 'PRP'; allowed: PRON, VERB"
        assert said in " ".join(ended.err.split())


@pytest.mark.parametrize("window", [1000, 60, 7])
def test_many_lines_keep_their_order(
    run_headway: Command, learned: Learned, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(LabelPredictor, "together", window)
    given = [f"{WORDS[number % 7]} line{number} {WORDS[number % 8]}" for number in range(130)]
    stdin = "".join(f"{line}\n" for line in given)
    code, out, _ = run_headway("predict", learned.run, "--format", "json", stdin=stdin)
    assert code == 0
    assert [" ".join(json.loads(line)["words"]) for line in out.splitlines()] == given


def test_parts_of_a_tagger_are_cut(learned: Learned, predictor: LabelPredictor, run_headway: Command) -> None:
    parts = [f"layers:layer={layer}" for layer in range(1, LAYERS + 1)]
    asked = ["inspect", "ablate", learned.run, "--what", "layers:layer=*", "--how", "zero,mean", "--json"]
    cut = run_headway(*asked, "--metric", "logprob,f0.5", "--sentences", 20)
    assert cut.code == 0, cut.err
    found = json.loads(cut.out)
    assert [len(each["parts"]) for each in found["ablations"]] == [LAYERS] * 4
    examples = [*build_task("error_detection").given_test_set(predictor.recipe).examples][:20]
    words, labels = [each.words for each in examples], [each.target for each in examples]

    def logprob() -> float:
        return float(np.mean([value for each in predictor.force(words, labels) for value in each.log_probabilities]))

    whole, model = logprob(), predictor.runs[0].model
    assert found["whole"]["logprob"] == [pytest.approx(whole)]
    recorded: list[torch.Tensor] = []
    with model.intervened({parts[0]: lambda values: recorded.append(values[0]) or values}):
        for sentence in words:
            predictor.predict([sentence])
    mean = torch.cat(recorded).mean(0)
    for how, replaced in (("zero", torch.zeros_like), ("mean", mean.expand_as)):
        (table,) = (each["parts"] for each in found["ablations"] if (each["metric"], each["how"]) == ("logprob", how))
        (row,) = (row for row in table if row["part"] == parts[0])
        with model.intervened({parts[0]: replaced}):
            assert row["difference"] == pytest.approx(logprob() - whole, abs=1e-6)
        assert row["difference"] != 0
