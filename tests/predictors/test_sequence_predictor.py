"""The Python interface: `headway.load(run).predict(lines)`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headway
from headway.core.errors import NotFiniteError, UserError
from headway.models import build_model
from headway.predictors.predict_options import PredictOptions
from headway.predictors.predictor import Run, batches
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.run_folder import model_weights
from headway.tensors.batch import collate
from tests.conftest import REVERSAL, Reversal


def test_a_prediction_has_text_score_tokens(reversal: Reversal) -> None:
    blank, said = headway.load(reversal.run).predict(["", "abcd"])
    assert said.source == "abcd"
    assert said.text == "dcba"
    assert said.tokens == ["▁", "d", "c", "b", "a"]
    assert said.source_tokens == ["▁", "a", "b", "c", "d"]
    assert said.attention == {}
    assert len(said.hypotheses) == 1
    (best,) = said.hypotheses
    assert len(best.log_probabilities) == len(best.tokens) + 1
    assert said.score == pytest.approx(sum(best.log_probabilities) / ((5 + 6) / 6) ** 0.6)
    assert (blank.text, blank.score, blank.tokens, blank.attention) == ("", 0.0, [], {})


HALF = "a\ud83db"


@pytest.mark.parametrize(
    "call",
    [
        lambda predictor: predictor.predict([HALF]), lambda predictor: predictor.predict(["ab"] * 200 + [HALF]),
        lambda predictor: predictor.predict(["ab"], prefixes=[HALF]),
        lambda predictor: predictor.force([HALF], ["ba"]), lambda predictor: predictor.force(["ab"], [HALF]),
        lambda predictor: predictor.can_read("ab", HALF), lambda predictor: predictor.source.encode_with_spans(HALF),
    ],
)  # fmt: skip
def test_half_of_a_character_is_no_text(
    predictor: SequencePredictor, call: Callable[[SequencePredictor], object]
) -> None:
    with pytest.raises(UserError, match=r"half of a surrogate pair.*'a\\ud83db'"):
        call(predictor)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_are_named(reversal: Reversal, number: float) -> None:
    predictor = headway.load(reversal.run, device="cpu")
    assert isinstance(predictor, SequencePredictor)
    with torch.no_grad():
        model_weights(predictor.models[0])["decoder.1.mixer.in_projection.weight"][-1] = number
    for options in ({}, {"beam": 1}, {"nbest": 2}, {"sample": True}):
        with pytest.raises(NotFiniteError, match="the model's scores are not finite"):
            predictor.predict(["abcd", "ab"], **options)
    with pytest.raises(NotFiniteError, match="the model's scores are not finite"):
        predictor.score(["abcd"], ["dcba"])


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"nbest": 3}, {"sample": True, "temperature": 2.0, "nbest": 2}])
def test_outputs_do_not_depend_on_batches_or_order(
    reversal: Reversal, predictor: SequencePredictor, options: dict[str, Any]
) -> None:
    given = [*reversal.words[:20], "", "abcdabcdabcd", "a"]
    together = predictor.predict(given, **options)
    for batch_tokens in (1, 30):
        for one, other in zip(together, predictor.predict(given, batch_tokens=batch_tokens, **options), strict=True):
            assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
            assert one.score == pytest.approx(other.score, abs=1e-4)
    if "sample" not in options:  # a line's random numbers hang on its number
        turned = predictor.predict(given[::-1], **options)[::-1]
        assert [each.text for each in turned] == [each.text for each in together]


def test_batches_keep_to_their_budget_unless_a_line_alone_is_over_it() -> None:
    lengths = [3, 0, 9, 1, 4, 30, 4, 2, 0, 5]
    chosen = list(batches(lengths, 20, end_marks=1))
    assert sorted(row for rows in chosen for row in rows) == [0, 2, 3, 4, 5, 6, 7, 9]  # all but the empty ones
    padded = [len(rows) * (max(lengths[row] for row in rows) + 1) for rows in chosen]  # with the end mark
    assert padded[0] == 31
    assert max(padded[1:]) <= 20
    assert len(chosen) == 4


def test_sampled_lines_hang_on_their_number(predictor: SequencePredictor) -> None:
    options = PredictOptions(sample=True, temperature=4.0, seed=5)
    whole = [each.text for each in predictor.predict(["abcd"] * 6, options)]
    parts = [predictor.predict(["abcd"] * 3, options, first_line=first) for first in (1, 4)]
    assert whole == [each.text for part in parts for each in part]


@pytest.mark.parametrize("options", [{"nbest": 4}, {"sample": True, "temperature": 3.0, "nbest": 3}, {"min_length": 7}])
def test_a_hypothesis_scores_what_its_rescoring_says(
    reversal: Reversal, predictor: SequencePredictor, options: dict[str, Any]
) -> None:
    """Each output is forced by its very tokens: its text alone could be cut into others."""
    model, given = predictor.models[0], [*reversal.words[:10], "abcdabcd"]
    for source, said in zip(given, predictor.predict(given, **options), strict=True):
        ids = predictor.source.encode(source).values
        for hypothesis in said.hypotheses:
            tokens = [list(map(predictor.target.vocabulary.token, range(predictor.target.size))).index(token)
                      for token in hypothesis.tokens]  # fmt: skip
            batch = collate([np.array(ids)], [np.array(tokens, dtype=np.int64)])
            with torch.inference_mode():
                scores = model(batch).logits.log_softmax(-1)
            forced = scores.gather(2, batch.target_output[:, :, None]).flatten().tolist()
            np.testing.assert_allclose(hypothesis.log_probabilities, forced, atol=1e-4)
            penalty = ((5 + len(forced)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(sum(forced) / penalty, abs=1e-4)


def test_forcing_a_text_scores_the_tokens_that_it_is_cut_into(predictor: SequencePredictor) -> None:
    (said,) = predictor.predict(["abcd"])
    (again,) = predictor.score(["abcd"], [said.text])
    assert again.tokens == said.tokens
    np.testing.assert_allclose(again.log_probabilities, said.hypotheses[0].log_probabilities, atol=1e-4)


def test_one_text_is_one_line(predictor: SequencePredictor) -> None:
    assert predictor.predict([]) == predictor.score([], []) == []
    assert [each.text for each in predictor.predict("abcd")] == [each.text for each in predictor.predict(["abcd"])]
    assert predictor.score("abcd", "dcba") == predictor.score(["abcd"], ["dcba"])
    assert predictor.predict(iter(["ab", "abcd"])) == predictor.predict(["ab", "abcd"])


@pytest.mark.parametrize("line", [["a", "b"], None, 3, b"ab"])
def test_what_is_no_text_is_named(predictor: SequencePredictor, line: Any) -> None:
    with pytest.raises(UserError, match=r"line 2: a line is a text; received .*; allowed: str"):
        predictor.predict(["ab", line])


@pytest.mark.parametrize("together", [2000, 3, 1])
def test_a_problem_of_an_input_is_a_value(
    predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(SequencePredictor, "together", together)
    given = ["abcd", "ab", "ab" * 700, None, "ba"]
    told = ["line 3: this line is too long; received ", "line 4: a line is a text; received "]
    for outputs in (predictor.predict(given, skip_broken=True), list(predictor.stream(given, skip_broken=True))):
        assert [output.text for output in outputs] == ["dcba", "ba", "", "", "ab"]
        assert [str(output.problem)[: len(text)] for output, text in zip(outputs[2:4], told, strict=True)] == told
        assert [output.problem is None for output in outputs] == [True, True, False, False, True]
    *before, last = predictor.stream(iter(given))
    assert [output.text for output in before] == ["dcba", "ba"]
    assert str(last.problem).startswith(told[0])


@pytest.mark.parametrize("inputs", [5, None, {"a": 1}, b"ab"])
def test_what_are_no_texts_is_named(predictor: SequencePredictor, inputs: Any) -> None:
    with pytest.raises(UserError, match=r"^predictors read a text, or several"):
        predictor.predict(inputs)


def test_scores_do_not_depend_on_the_batch(reversal: Reversal, predictor: SequencePredictor) -> None:
    sources = [*reversal.words[:15], "", "abcdabcd"]
    targets = [*(word[::-1] for word in sources[:10]), "a", "", *sources[12:]]
    together = predictor.score(sources, targets)
    for source, target, scored in zip(sources, targets, together, strict=True):
        (alone,) = predictor.score([source], [target])
        assert alone.tokens == scored.tokens
        np.testing.assert_allclose(alone.log_probabilities, scored.log_probabilities, atol=1e-4)


def test_prefixes_begin_the_outputs(predictor: SequencePredictor) -> None:
    said = predictor.predict(["abcd", "", "ab"], prefixes=["cc", "d", ""])
    assert said[0].text.startswith("cc")
    assert [each.text for each in said[1:]] == ["", "ba"]
    with pytest.raises(
        UserError, match=r"prefixes: there must be one prefix a line; received '1 prefixes'; allowed: 2"
    ):
        predictor.predict(["ab", "ba"], prefixes=["a"])
    with pytest.raises(UserError, match=r"line 8: this beginning of an output has tokens .*; received 'a蛙'"):
        predictor.predict(["ab", "ba"], prefixes=["a", "a蛙"], first_line=7)


@pytest.mark.parametrize("options", [{"beam": 4}, {"beam": 1}, {"sample": True}])
def test_what_is_asked_for_moves_the_length_that_the_source_gives(
    predictor: SequencePredictor, options: dict[str, Any]
) -> None:
    (said,) = predictor.predict(["ab"], min_length=15, **options)  # of itself at most 3 + 8
    assert len(said.tokens) == 15
    (said,) = predictor.predict(["ab"], prefixes=["c" * 20], **options)
    assert said.text.startswith("c" * 20)
    with pytest.raises(UserError, match="line 2: this prefix is longer than the longest output; received '5 tokens'"):
        predictor.predict(["ab", "ab"], prefixes=["a", "aaaa"], max_length=4, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 3}, "beams: unknown option of predict; did you mean 'beam'?; allowed: beam, length_penalty"),
        ({"nbest": 3, "beam": 2}, "nbest: more outputs than the beam has; received 3; allowed: up to 2"),
        ({"sample": True, "beam": 3}, "beam: outputs are drawn or searched for, not both; allowed: without sample"),
        ({"capture": ("*.corss",)}, "capture: no attention of this model has such a name"),
    ],
)
def test_options_that_are_not_allowed(predictor: SequencePredictor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        predictor.predict(["ab"], **options)
    assert str(error.value).startswith(message)


@pytest.fixture
def copied(reversal: Reversal, tmp_path: Path) -> Path:
    """A copy of the run, to be damaged."""
    return Path(shutil.copytree(reversal.run, tmp_path / "copied"))


def before_its_first_checkpoint(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    del manifest["model_sha256"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "model.safetensors").unlink()


def cut_short(path: Path, share: float = 0.5) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: shutil.rmtree(run), "copied: this is not a run folder: it has no recipe.yaml"),
        (before_its_first_checkpoint, "copied: this run has no model yet"),
        (lambda run: (run / "model.safetensors").unlink(), "model.safetensors: the weights of this run are missing"),
        (lambda run: shutil.rmtree(run / "vocabulary"), "copied: this run has no vocabulary yet"),
        (lambda run: cut_short(run / "model.safetensors"), "model.safetensors: these weights cannot be read"),
        (lambda run: cut_short(run / "recipe.yaml", 0), "recipe.yaml: a recipe is a mapping"),
        (lambda run: (run / "recipe.yaml").write_text("a: {b"), "recipe.yaml:1: this is not YAML"),
        (lambda run: cut_short(run / "vocabulary" / "sides.json"), "sides.json"),
    ],
)
def test_runs_that_cannot_be_loaded(copied: Path, damage: Any, message: str) -> None:
    damage(copied)
    with pytest.raises(UserError) as error:
        headway.load(copied)
    assert message in str(error.value)


def test_an_ensemble_needs_the_same_vocabulary(reversal: Reversal, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("xy\tyx\n", encoding="utf-8")
    tree = REVERSAL | {
        "data": {"train": {"tsv": str(tmp_path / "train.tsv")}},
        "training": {"updates": 1, "checkpoint_every": 1},
    }
    headway.train(headway.recipe.parse_recipe(tree), tmp_path / "other")
    with pytest.raises(UserError, match="run 2: runs that are averaged prepare text alike, with one vocabulary"):
        headway.load(reversal.run, tmp_path / "other")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_ensemble_keeps_to_the_limits_of_all(reversal: Reversal, order: tuple[int, int]) -> None:
    (run,) = headway.load(reversal.run, device="cpu").runs
    runs = []
    for changes in ({}, {"position": "learned", "max_position": 6}):
        recipe = headway.recipe.parse_recipe(REVERSAL | {"model": REVERSAL["model"] | changes})
        untrained = build_model(recipe.model, run.source.size, run.target.size, True).eval()
        runs.append(Run(recipe, run.source, run.target, untrained))
    both = SequencePredictor([runs[index] for index in order], torch.device("cpu"))
    assert (both.longest_source(), both.longest_target(3)) == (5, 5)
    assert max(len(each.tokens) for each in both.predict(["abc", "dcab"], beam=1)) <= 5
    with pytest.raises(UserError, match=r"too long; received '6 tokens'; allowed: up to 5"):
        both.predict(["abcdef"])


def test_what_takes_one_model_takes_no_ensemble(reversal: Reversal) -> None:
    both = headway.load(reversal.run, reversal.run)
    assert both.predict(["abcd"])[0].text == "dcba"
    with pytest.raises(UserError, match="attention and scores are one model's"):
        both.score(["a"], ["a"])
    with pytest.raises(UserError, match="capture: attention and scores are one model's"):
        both.predict(["a"], capture=("*",))


def test_nothing_is_left_to_train(predictor: SequencePredictor) -> None:
    assert not any(model.training for model in predictor.models)
    predictor.predict(["ab"], capture=("*",))
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in predictor.models[0].parameters())
