"""Sentences with those before them: what is read, learned, scored and written is what a slow loop over ids gives."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headway.core.errors import UserError
from headway.losses.cross_entropy import smoothed_cross_entropy
from headway.models import Seq2Seq
from headway.predictors.minimum_risk import utility_of
from headway.predictors.output import Example, Output
from headway.predictors.predictor import Run
from headway.predictors.sentence_translator import SentenceTranslator
from headway.predictors.sequence_predictor import SequencePredictor
from headway.processing.text.text_processor import TextProcessor
from headway.recipe import Recipe, load_recipe
from headway.tasks import build_task
from headway.tasks.task import Corpora
from headway.tensors.batch import BOS, EOS
from tests.metrics.made_comet import write_checkpoint
from tests.predictors.test_minimum_risk import risk_by_loops
from tests.tiers import thinned

SOURCE = ["a b", "c", "", "d a c", "b b", "a", "c d"]
TARGET = ["x y", "z", "", "y z x", "x", "z z", "y"]
DOCUMENTS = [0, 0, None, 3, 3, 3, 3]  # by line, the first of its document
CONTEXTS: list[Any] = [0, 1, 2, {"target": 1}, {"source": 2, "target": 1}, {"source": 1, "target": 3}]
KINDS = {
    "transformer": {"kind": "transformer", "encoder": {"layers": 1}, "decoder": {"layers": 2}},
    "decoder only": {"kind": "decoder_only", "decoder": {"layers": 2}, "position": "rotary"},
    "recurrent": {"kind": "recurrent", "encoder": {"layers": 1}, "decoder": {"layers": 1}},
    "n-grams": {"kind": "transformer", "decoder": {"layers": 1, "mixer": {"kind": "ngram", "n": 3}}},
}


def recipe_with(folder: Path, context: Any, kind: str = "transformer", **data: Any) -> Recipe:
    folder.mkdir(exist_ok=True)
    for name, lines in (("s", SOURCE), ("t", TARGET)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    corpus = {"source": str(folder / "s"), "target": str(folder / "t")}
    sizes = {"dim": 16, "dropout": 0.0} | ({} if kind == "recurrent" else {"feed_forward": 32, "heads": 2})
    return load_recipe({
        "data": {"train": corpus, "dev": corpus, "context": context} | data,
        "vocabulary": {"kind": "whitespace"},
        "model": sizes | KINDS[kind],
        "training": {"updates": 1},
        "decoding": {"beam": 1, "max_length_ratio": 0, "max_length_offset": 5},
    })  # fmt: skip


def made(recipe: Recipe, folder: Path) -> tuple[SequencePredictor, Corpora]:
    """A predictor with initial weights, scaled so that its outputs differ, and the corpora."""
    corpora = build_task("translation").corpora(recipe, folder / "vocabulary")
    torch.manual_seed(3)
    model = build_task("translation").model(recipe, corpora.processors).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    run = Run(recipe, *corpora.processors, model)
    predictor = build_task("translation").predictor([run], torch.device("cpu"))
    assert isinstance(predictor, SequencePredictor)
    return predictor, corpora


def joined_ids(processor: TextProcessor, texts: list[str]) -> list[int]:
    """The ids of sentences with marks between them."""
    ids = list[int]()
    for text in texts:
        ids += ([len(processor.vocabulary) - 1] if ids else []) + [
            processor.vocabulary.encode(w)[0] for w in text.split()
        ]
    return ids


def before(line: int, texts: list[str], count: int) -> list[str]:
    first = DOCUMENTS[line]
    assert first is not None
    return texts[max(first, line - count) : line]


@torch.no_grad()
def slow_outputs(predictor: SequencePredictor) -> tuple[list[str], list[list[float]]]:
    """Greedy search, a line at a time, with the whole target read anew at every step."""
    (model,), context = predictor.models, predictor.recipe.data.context
    assert isinstance(model, Seq2Seq)
    source, target = predictor.source, predictor.target
    assert isinstance(source, TextProcessor)
    texts, scores = list[str](), list[list[float]]()
    for line, text in enumerate(SOURCE):
        if not text:
            texts.append("")
            scores.append([])
            continue
        read = joined_ids(source, [*before(line, SOURCE, context.source), text])
        earlier = [each for each in before(line, texts, context.target) if each]
        start = joined_ids(target, earlier) + ([len(target.vocabulary) - 1] if earlier else [])
        ids, logs = list[int](), list[float]()
        memory = model.encode(torch.tensor([[*read, EOS]]), torch.ones(1, len(read) + 1, dtype=torch.bool))
        while True:
            tokens = torch.tensor([[BOS, *start, *ids]])
            values, _ = model.extend(tokens, model.start(memory, 40))
            allowed = values[0].clone()
            allowed[:2] = -torch.inf
            allowed[4 + len({word for text in TARGET for word in text.split()}) :] = -torch.inf  # the mark
            best = int(allowed.argmax()) if len(ids) < 5 else EOS
            logs.append(float(values[0, best]))
            if best == EOS:
                break
            ids.append(best)
        texts.append(target.decode(ids))
        scores.append(logs)
    return texts, scores


def assert_same(outputs: list[Output], texts: list[str], scores: list[list[float]]) -> None:
    assert [output.text for output in outputs] == texts
    for output, wanted in zip(outputs, scores, strict=True):
        assert output.log_probabilities == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("context", thinned(CONTEXTS, 3, 2), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_a_slow_loop(tmp_path: Path, kind: str, context: Any) -> None:
    predictor, _ = made(recipe_with(tmp_path, context, kind), tmp_path)
    texts, scores = slow_outputs(predictor)
    outputs = predictor.predict(SOURCE)
    assert_same(outputs, texts, scores)
    assert [output.source for output in outputs] == SOURCE


@pytest.mark.parametrize("context", CONTEXTS[1:], ids=str)
def test_a_stream_goes_on_with_its_documents(tmp_path: Path, context: Any) -> None:
    predictor, _ = made(recipe_with(tmp_path, context), tmp_path)
    texts, scores = slow_outputs(predictor)
    for together in (1, 2, 3):
        predictor.together = together
        assert_same(list(predictor.stream(SOURCE)), texts, scores)
    first = [(source, text) for source, text in zip(SOURCE[3:6], texts[3:6], strict=True)]
    assert_same(predictor.predict(SOURCE[6:], before=first), texts[6:], scores[6:])


@pytest.mark.parametrize("context", CONTEXTS[1:], ids=str)
def test_the_examples_of_a_test_set_are_its_lines(tmp_path: Path, context: Any) -> None:
    predictor, corpora = made(recipe_with(tmp_path, context), tmp_path)
    assert corpora.dev is not None
    examples = list(corpora.dev.examples)
    assert [example.source for example in examples] == SOURCE
    assert [example.references for example in examples] == [(text,) for text in TARGET]
    assert_same(predictor.predict(examples), *slow_outputs(predictor))


def test_what_is_not_among_the_inputs_is_written_first(tmp_path: Path) -> None:
    predictor, corpora = made(recipe_with(tmp_path, {"source": 2, "target": 2}), tmp_path)
    assert corpora.dev is not None
    alone = predictor.predict([corpora.dev.examples[5]])
    (whole,) = predictor.predict(SOURCE[3:6])[2:]
    assert (alone[0].text, alone[0].source_tokens) == (whole.text, whole.source_tokens)
    assert alone[0].log_probabilities == pytest.approx(whole.log_probabilities)


@pytest.mark.parametrize("context", thinned(CONTEXTS, 3, 1), ids=str)
@pytest.mark.parametrize("kind", ["transformer", "decoder only", "recurrent"])
@torch.no_grad()
def test_only_the_sentence_is_learned_and_scored(tmp_path: Path, kind: str, context: Any) -> None:
    predictor, corpora = made(recipe_with(tmp_path, context, kind), tmp_path)
    (model,) = predictor.models
    forced = [output for output in predictor.force(SOURCE, TARGET) if output.source]
    own = [len(text.split()) + 1 for text in TARGET if text]
    assert [len(output.log_probabilities) for output in forced] == own
    lines = [line for line, text in enumerate(SOURCE) if text]
    size = predictor.recipe.data.context
    for output, line in zip(forced, lines, strict=True):
        read = joined_ids(predictor.source, [*before(line, SOURCE, size.source), SOURCE[line]])  # type: ignore[arg-type]
        given = joined_ids(predictor.target, [*before(line, TARGET, size.target), TARGET[line]])
        memory = model.encode(torch.tensor([[*read, EOS]]), torch.ones(1, len(read) + 1, dtype=torch.bool))
        wanted = list[float]()
        for place in range(len(given) - len(TARGET[line].split()), len(given) + 1):
            values, _ = model.extend(torch.tensor([[BOS, *given[:place]]]), model.start(memory, 40))
            wanted.append(float(values[0, [*given, EOS][place]]))
        assert output.log_probabilities == pytest.approx(wanted, abs=1e-5)
    batch = corpora.train.collate(next(iter(corpora.train.plan(1, 0, batch_tokens=10_000))))
    assert batch.counts["target_tokens"] == sum(own) == int(batch.scored.sum())
    loss = smoothed_cross_entropy(model(batch).logits, batch.target_output, batch.scored, 0.0)[0]
    assert float(loss) == pytest.approx(-sum(sum(output.log_probabilities) for output in forced))


def test_attention_is_that_of_the_sentence_over_all_that_was_read(tmp_path: Path) -> None:
    predictor, _ = made(recipe_with(tmp_path, {"source": 1, "target": 2}), tmp_path)
    outputs = predictor.predict(SOURCE[3:], capture="all", min_length=1)
    forced = predictor.force(SOURCE[3:], [output.text for output in outputs], capture="all")
    for output, again in zip(outputs, forced, strict=True):
        rows, columns = len(output.tokens) + 1, len(output.source_tokens) + 1
        assert output.attention["decoder.1.cross"].shape[1:] == (rows, columns)
        assert output.attention["decoder.1.self"].shape[1:] == (rows, rows)
        for name, weights in output.attention.items():
            assert again.attention[name] == pytest.approx(weights, abs=1e-6)
    assert outputs[1].source_tokens == ["d", "a", "c", "<sep>", "b", "b"]
    assert outputs[1].source_words.tags == 4


def test_what_is_too_long_loses_its_earliest_sentences(tmp_path: Path) -> None:
    predictor, corpora = made(recipe_with(tmp_path, {"source": 3, "target": 3}, max_length=5), tmp_path)
    tokens = [output.source_tokens for output in predictor.predict(SOURCE[3:])]
    assert tokens == [["d", "a", "c"], ["b", "b"], ["b", "b", "<sep>", "a"], ["a", "<sep>", "c", "d"]]
    lengths = [len(corpora.train.source(index)) for index in range(len(corpora.train))]  # type: ignore[attr-defined]
    assert lengths == [2, 4, 3, 2, 4, 4]
    predictor, corpora = made(recipe_with(tmp_path / "words", 3, max_length=3, count="words"), tmp_path / "words")
    assert [len(output.source_tokens) for output in predictor.predict(SOURCE[3:])] == [3, 2, 1, 2]


def test_no_text_has_the_mark(tmp_path: Path) -> None:
    predictor, _ = made(recipe_with(tmp_path, 2), tmp_path)
    (output,) = predictor.predict(["a <sep> b\nc"])
    assert output.source_tokens == ["a", "<unk>", "b", "c"]
    assert output.example == Example("a <sep> b c")


def test_what_does_not_go_with_context(tmp_path: Path) -> None:
    recipe = recipe_with(tmp_path, {"target": 1}, max_ratio=2.0)
    with pytest.raises(UserError, match="unlike context have no ratio"):
        build_task("translation").check(recipe)
    predictor, _ = made(recipe_with(tmp_path, 1), tmp_path)
    with pytest.raises(UserError, match="unknown words of sentences with context are kept"):
        predictor.predict(SOURCE, unknown_words="copy")
    made(recipe_with(tmp_path / "alone", 0), tmp_path / "alone")
    with pytest.raises(UserError, match="no mark between sentences"):
        build_task("translation").corpora(recipe_with(tmp_path, 1), tmp_path / "alone" / "vocabulary")


def test_sentences_by_themselves_are_refused(tmp_path: Path) -> None:
    predictor, _ = made(recipe_with(tmp_path, 1), tmp_path)
    with pytest.raises(UserError, match="this run reads the sentences before each"):
        SentenceTranslator(predictor)


def test_outputs_without_a_word_take_no_room(tmp_path: Path) -> None:
    predictor, _ = made(recipe_with(tmp_path, {"target": 2}, max_length=4), tmp_path)
    (wanted,), (found,) = (
        predictor.predict(["a b"], before=[("c", "y"), *blank]) for blank in ((), (("d", ""),))
    )  # fmt: skip
    assert_same([found], [wanted.text], [wanted.log_probabilities])
    assert wanted.log_probabilities != predictor.predict(["a b"])[0].log_probabilities


def test_a_utility_reads_the_sentence_alone(tmp_path: Path) -> None:
    predictor, _ = made(recipe_with(tmp_path, {"source": 2}), tmp_path)
    name = f"comet:model={write_checkpoint(tmp_path / 'made', 'regression')},device=cpu"
    found = predictor.predict(SOURCE[:2], kind="mbr", samples=6, temperature=3.0, utility=name)[1]
    drawn = predictor.predict(SOURCE[:2], sample=True, nbest=6, temperature=3.0)[1]
    texts = [each.text for each in drawn.hypotheses]
    expected = risk_by_loops(texts, texts, utility_of(name, None, of_texts=True), SOURCE[1])
    assert found.score == pytest.approx(max(expected.values()), abs=1e-4)


def test_an_ensemble_reads_equally_many_sentences(tmp_path: Path) -> None:
    runs = [made(recipe_with(tmp_path / str(n), {"source": n}), tmp_path / str(n))[0].runs[0] for n in (1, 2)]
    with pytest.raises(UserError, match="runs that are averaged prepare text alike"):
        SequencePredictor(runs, torch.device("cpu"))
