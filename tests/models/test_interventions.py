"""Interventions reach what they name in every model, in scoring and search alike, and leave nothing behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.core.errors import UserError
from headway.mixers import MIXERS
from headway.models import Seq2Seq
from headway.models.interventions import Apply, Freeze, Mean, Resample, named_parts, parts_of
from headway.search.beam import beam_search
from headway.search.limits import Limits
from headway.tensors.batch import Batch, collate
from tests.models import toys
from tests.models.recurrent import toys as recurrent_toys
from tests.models.test_tagger import batch as word_batch
from tests.models.test_tagger import stored, tagger  # noqa: F401  # a fixture
from tests.tiers import thinned

STACKS = [{"mixer": kind} for kind in MIXERS if kind != "nplm"] + [
    {"mixer": {"kind": "nplm", "n": 2, "blocks": 2, "block_size": 1}},
    {"mixer": {"kind": "ngram", "n": 3, "global_context": "prefix"}},
    {"mixer": {"kind": "delta", "gate": "vector", "canon": True, "output_gate": True}},
    {"mixer": "attention", "canon": "ABCD"},
    {"mixer": "attention", "residual": "attention"},
    {"mixer": {"kind": "attention", "key_value_heads": 1, "value_residual": True, "forget": True}},
]


def transformers() -> dict[str, Callable[[], Seq2Seq]]:
    encoder, two = {"layers": 1, "mixer": "ngram"}, {"layers": 2}
    built = {f"{stack}": lambda stack=stack: toys.model(encoder=encoder, decoder=two | stack) for stack in STACKS}
    built["merged"] = lambda: toys.model(encoder=encoder, decoder={"layers": 1, "cross": "merged"})
    built["pre-norm"] = lambda: toys.model(norm="pre", encoder={"layers": 1}, decoder={"layers": 1})
    return built


def decoder_onlys() -> dict[str, Callable[[], Seq2Seq]]:
    return {
        f"decoder only {stack}": lambda stack=stack: toys.decoder_only(decoder={"layers": 2} | stack)
        for stack in STACKS[::3]
    }


def recurrents() -> dict[str, Callable[[], Seq2Seq]]:
    return {
        f"recurrent {name}": lambda changes=changes: recurrent_toys.model(**changes)
        for name, changes in recurrent_toys.VARIANTS.items()
    }


MODELS = transformers() | decoder_onlys() | recurrents()


def singles(seed: int = 3) -> list[Batch]:
    """The pairs of a batch, each in one without padding."""
    whole = toys.batch(seed)
    sources, targets = whole.source_mask.sum(1).tolist(), whole.target_mask.sum(1).tolist()
    return [
        collate([whole.source[row, : source - 1].numpy()], [whole.target_output[row, : target - 1].numpy()])
        for row, (source, target) in enumerate(zip(sources, targets, strict=True))
    ]


@torch.no_grad()
def stepwise(model: Seq2Seq, batch: Batch) -> Tensor:
    """(B, T, V): the log probabilities that decoding gives, with the second and third token read at once."""
    state = model.start(model.encode(batch.source, batch.source_mask), batch.target_input.shape[1])
    found, first = [], 0
    for count in (1, 2, *[1] * (batch.target_input.shape[1] - 3)):
        scores, state = model.extend(batch.target_input[:, first : first + count], state)
        first += count
        found.append(scores)
    return torch.stack(found, 1)


@torch.no_grad()
def scored(model: Seq2Seq, batch: Batch) -> Tensor:
    return model(batch).logits.log_softmax(-1)


@pytest.mark.parametrize("name", thinned(MODELS, 18))
def test_every_place_is_reached_in_scoring_and_in_steps_alike(name: str) -> None:
    model, batch = MODELS[name](), toys.batch()
    points, before = model.points(), scored(model, batch)
    recorded = model.recorded(points, singles())
    assert points.keys() == recorded.keys()
    for place in points:
        for rule in ("zero", Resample(recorded, 5)):
            with model.intervened({place: rule}) as reached:
                whole, steps = scored(model, batch), stepwise(model, batch)
            assert reached[place] > 0
            assert not torch.equal(whole, before)
            at = [0, *range(2, whole.shape[1])]
            real = batch.target_mask[:, at]
            assert torch.allclose(steps[real], whole[:, at][real], atol=1e-10)
    assert torch.equal(scored(model, batch), before)


@pytest.mark.parametrize("name", thinned(MODELS, 3, 1))
def test_a_rule_that_changes_nothing_changes_nothing(name: str) -> None:
    model, batch = MODELS[name](), toys.batch()
    before = scored(model, batch)
    with model.intervened(dict.fromkeys(model.points(), lambda values: values)):
        assert torch.allclose(scored(model, batch), before, atol=1e-12)


def traces(model: Seq2Seq) -> list[Any]:
    """All that an intervention could leave behind in a model."""
    return [
        (
            type(module),
            sorted(vars(module)),
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            bool(getattr(module, "edits", ())),
        )
        for module in model.modules()
    ]


def test_without_a_rule_nothing_of_it_is_there() -> None:
    for model in (toys.model(decoder={"layers": 2, "mixer": "ngram"}), recurrent_toys.model()):
        before, scores = traces(model), scored(model, toys.batch())
        with pytest.raises(UserError), model.intervened(dict.fromkeys(model.points(), lambda values: None)):
            scored(model, toys.batch())
        assert traces(model) == before
        assert torch.equal(scored(model, toys.batch()), scores)


def watched(model: Seq2Seq, batch: Batch, name: str, rules: dict[str, Any]) -> Tensor:
    """The values of a part under rules."""
    seen: list[Tensor] = []
    with model.intervened(rules), model.intervened({name: lambda values: seen.append(values) or values}):
        scored(model, batch)
    return seen[0]


def surgery(model: Seq2Seq) -> None:
    """The same as zeros for decoder.2.cross:head=2 and decoder.1.self:offset=-2, written into the weights."""
    with torch.no_grad():
        model.decoder[1].cross.out_projection.weight[:, 4:] = 0
        model.decoder[0].mixer.weight[..., model.decoder[0].mixer.n - 3] = 0


@pytest.mark.parametrize("beam", [1, 3])
def test_zeros_are_zeros_in_the_weights_in_scoring_and_search(beam: int) -> None:
    rules = {"decoder.2.cross:head=2": "zero", "decoder.1.self:offset=-2": "zero"}
    model, cut = (toys.model(decoder={"layers": 2, "mixer": {"kind": "ngram", "n": 4}}) for _ in range(2))
    surgery(cut)
    batch = toys.batch()

    def found(model: Seq2Seq) -> list[list[tuple[tuple[int, ...], float]]]:
        with torch.no_grad():
            memory = model.encode(batch.source, batch.source_mask)
            return [
                [(each.ids, round(each.score, 9)) for each in row]
                for row in beam_search(model, memory, Limits(0, [8] * 3), beam=beam)
            ]

    plain = found(model)
    with model.intervened(rules):
        assert torch.allclose(scored(model, batch), scored(cut, batch), atol=1e-12)
        assert found(model) == found(cut)
    assert found(model) == plain != found(cut)


def test_a_layer_is_all_that_its_sublayers_add() -> None:
    model, batch = toys.model(norm="pre", decoder={"layers": 2}), toys.batch()
    with model.intervened({"decoder.2": "zero"}) as reached:
        without = scored(model, batch)
    assert reached == {"decoder.2.self": 1, "decoder.2.cross": 1, "decoder.2.feed_forward": 1}
    model.decoder = model.decoder[:1]
    assert torch.equal(scored(model, batch), without)


def test_the_mean_is_that_of_all_positions() -> None:
    model, name = toys.model(), "encoder.1.self:head=2"
    recorded = model.recorded([name], singles())
    whole, values = torch.cat(recorded[name]), watched(model, toys.batch(), name, {name: Mean(recorded)})
    assert whole.shape == (5 + 3 + 6 + 3, 4)
    assert torch.allclose(values, whole.mean(0).expand_as(values))


def test_resampled_values_are_those_of_other_sentences_at_the_same_position() -> None:
    model, name = toys.model(), "decoder.1.cross"
    recorded = model.recorded([name], singles())
    one, again, other = (watched(model, toys.batch(), name, {name: Resample(recorded, seed)}) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    for position, value in enumerate(one[0]):
        assert any(torch.equal(value, sentence[min(position, len(sentence) - 1)]) for sentence in recorded[name])


def test_a_model_frozen_to_another_input_gives_what_that_does() -> None:
    model, name = toys.model(), "decoder.2.residual"
    recorded = model.recorded([name], singles(2)[:1])
    donor, given = singles(2)[0], singles(1)[0]
    assert donor.target_input.shape == given.target_input.shape
    with model.intervened({name: Freeze(recorded)}):
        assert torch.equal(scored(model, given), scored(model, donor))
        assert torch.allclose(stepwise(model, given), stepwise(model, donor))
    assert not torch.equal(scored(model, given), scored(model, donor))


def test_another_length_needs_a_rule() -> None:
    model, name = toys.model(), "decoder.1.self"
    short, long = sorted(singles(), key=lambda pair: pair.target_input.shape[1])[::2]
    recorded = model.recorded([name], [short])
    for call in (scored, stepwise):
        with (
            pytest.raises(UserError, match=r"another length.*decoder\.1\.self|decoder\.1\.self.*another length"),
            model.intervened({name: Freeze(recorded)}),
        ):
            call(model, long)
    length = short.target_input.shape[1]
    for lengths in ("own", "last"):
        own, frozen = (watched(model, long, name, rules) for rules in ({}, {name: Freeze(recorded, lengths)}))
        assert torch.equal(frozen[0, :length], recorded[name][0])
        assert torch.equal(frozen[0, length:], own[0, length:]) == (lengths == "own")
        assert (frozen[0, length:] == recorded[name][0][-1]).all() == (lengths == "last")
    with (
        pytest.raises(UserError, match="as many as there are rows"),
        model.intervened({name: Freeze({name: recorded[name] * 2}, "own")}),
    ):
        scored(model, toys.batch())


def test_names_that_no_part_has() -> None:
    points = toys.model(decoder={"layers": 2, "mixer": "ngram"}).points()
    for asked, hint in (
        ("decoder.1.cros", "did you mean 'decoder.1.cross'"),
        ("decoder.3.cross", "did you mean"),
        ("decoder.1.cross:head=9", "did you mean 'decoder.1.cross:head="),
        ("encoder.*.cross:heads", r"decoder\.\*\.cross:heads"),
        ("nothing", r"encoder\.\*\.feed_forward"),
    ):
        with pytest.raises(UserError, match=hint):
            named_parts(points, asked)


def test_patterns() -> None:
    points = toys.model(decoder={"layers": 2, "mixer": {"kind": "ngram", "n": 2}}).points()
    assert named_parts(points, "decoder.*.cross:heads") == [
        f"decoder.{n}.cross:head={h}" for n in (1, 2) for h in (1, 2)
    ]
    assert named_parts(points, "offsets") == [f"decoder.{n}.self:offset={o}" for n in (1, 2) for o in (-1, 0)]
    assert named_parts(points, "layers") == ["encoder.1", "encoder.2", "decoder.1", "decoder.2"]
    assert named_parts(points, "feed_forward") == [
        f"{stack}.{n}.feed_forward" for stack in ("encoder", "decoder") for n in (1, 2)
    ]
    assert parts_of(points)["encoder.1"] == ("encoder.1.self", "encoder.1.feed_forward")


@pytest.mark.parametrize(
    "nothing", [lambda values: None, lambda values: values[:, :1], Mean({}), Resample({"x": []}), Freeze({})]
)
def test_a_rule_that_leaves_no_value(nothing: Any) -> None:
    model = toys.model()
    with pytest.raises(UserError, match="leaves this part no value"), model.intervened({"encoder.1.self": nothing}):
        scored(model, toys.batch())


def test_values_are_recorded_without_padding() -> None:
    with pytest.raises(ValueError, match="without padding"):
        toys.model().recorded(["encoder.1"], [toys.batch()])


def test_a_gradient_passes_through_a_function() -> None:
    model, batch = toys.model(), toys.batch()
    with model.intervened({"encoder.2.self:head=1": Apply(lambda values: 2 * values)}):
        model(batch).logits.sum().backward()
    assert model.encoder[0].mixer.in_projection.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("layers", ["last", "attention"])
def test_a_tagger(stored: Path, layers: str) -> None:  # noqa: F811
    model, batch = tagger(stored, layers=layers).double(), word_batch(0, 1, 2)
    with torch.no_grad():
        plain = model(batch).logits
        assert ("layers:head=1" in model.points()) == (layers == "attention")
        assert named_parts(model.points(), "encoder.1.self:heads")
        recorded = model.recorded(model.points(), [word_batch(1)])
        for name in model.points():
            for rule in ("zero", Mean(recorded)):
                with model.intervened({name: rule}):
                    assert not torch.allclose(model(batch).logits, plain)
                    assert torch.allclose(model(batch).logits, model(batch, capture=["*"]).logits)
            with model.intervened({name: lambda values: values}):
                assert torch.allclose(model(batch).logits, plain)
        with model.intervened({"encoder.1": "zero", "encoder.2": "zero"}):
            cut = model(batch).logits
    assert not torch.allclose(cut, plain)
