"""Every kind of sequence-to-sequence model keeps the contract; every check fails on a model that breaks it."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from headway.models import MODELS, Seq2Seq
from headway.search.beam import beam_search
from headway.search.limits import Limits
from headway.tensors.batch import BOS, collate
from tests.models import toys
from tests.models.recurrent import toys as recurrent
from tests.tiers import tiered

LOCAL, NGRAM = {"kind": "local", "n": 3}, {"kind": "ngram", "n": 3, "global_context": "prefix"}
BOTTOM = [{"kind": "ngram", "n": 2}, "attention", "attention"]
SHARED = {"kind": "attention", "key_value_heads": 1, "query_key_norm": True}
SCORES = ["attention", SHARED | {"forget": True}, LOCAL]
EACH = [{"kind": "ngram", "n": 2}, {"kind": "local", "n": 2}, {"kind": "nplm", "n": 2}, "attention"]
STACKS = {
    "each": EACH,
    "lightconv": [{"kind": "lightconv", "width": width} for width in (2, 3, 4, 5)],
    "ngram": {"kind": "ngram", "n": 3},
    "ssru": "ssru",
    "forget": SHARED | {"forget": True},
    "attention": "attention",
}
RELATIVE = ["t5", "alibi", {"kind": "rotary", "share": 0.5}]
POSITIONS = ["sinusoidal", "learned", "none", "rotary", *RELATIVE]
FEED_FORWARDS = [10, {"kind": "gelu", "hidden": 3}, {"kind": "swiglu", "hidden": 6}]
CROSS = [
    {"kind": "multi_head", "heads": 3, "head_dim": 5},
    {"kind": "multi_head", "heads": 3, "key_dim": 2, "value_dim": 5},
    {"kind": "dot", "scaled": True},
    {"kind": "general", "window": "local-m", "width": 1},
    {"kind": "general", "window": "local-p"},
    {"kind": "general", "choice": "hard", "estimator": "straight_through"},
    {"kind": "additive"},
    {"kind": "concat", "window": "local-m", "width": 1},
    {"kind": "location"},
]


def sides(encoder, decoder, **changes):
    return {"encoder": {"layers": 4, "mixer": encoder}, "decoder": {"layers": 4, "mixer": decoder}} | changes


def canon(points):
    return {side: {"layers": 2, "canon": points} for side in ("encoder", "decoder")}


def depth(over, **changes):
    """Attention over depth on both sides."""
    residual = {"kind": "attention", "over": over}
    return {side: {"layers": 3, "residual": residual, **changes} for side in ("encoder", "decoder")}


VALUES = {"kind": "attention", "value_residual": True}
MERGED = {"layers": 3, "cross": "merged"}


def decoder(position, mixer):
    return {"position": position, "decoder": {"layers": 2, "mixer": mixer}}


TRANSFORMERS = {
    **{f"{norm}, {position}": {"norm": norm, "position": position}
       for norm in ("post", "pre") for position in ("sinusoidal", "learned", "none")},
    **{f"{one} and {other}": sides(STACKS[one], STACKS[other])
       for one, other in zip(STACKS, reversed(STACKS), strict=True)},
    **{f"{name} and {name}": sides(mixer, mixer) for name, mixer in STACKS.items()},
    **{f"each, {position}": sides(EACH, EACH, position=position) for position in POSITIONS},
    **{f"{feed_forward}, {norm}": {"feed_forward": feed_forward, "norm_kind": norm, "norm": "pre"}
       for feed_forward, norm in zip(FEED_FORWARDS, ("rms", {"kind": "rms", "eps": 1e-3}, "rms"), strict=True)},
    **{f"canon {points}": canon(points) for points in ("A", "C", "AC", "B", "D", "ABCD")},
    **{str(cross): {"decoder": {"layers": 2, "cross": cross}} for cross in CROSS},
    **{f"over {over}, {norm}": {"norm": norm, **depth(over)}
       for over in ("layers", "blocks") for norm in ("post", "pre")},
    "over layers, n-grams below, post, canon": depth("layers", mixer=BOTTOM, canon="AC"),
    "over blocks of the decoder, general, rms": {
        "decoder": depth("blocks", mixer=BOTTOM, cross="general")["decoder"], "norm_kind": "rms", "position": "rotary"},
    **{f"merged, {norm}, {position}": {"norm": norm, "position": position, "decoder": MERGED}
       for norm, position in (("post", "sinusoidal"), ("pre", "rotary"), ("pre", "t5"), ("post", "alibi"))},
    "merged, over layers, post, n-grams below the encoder": {
        "encoder": depth("layers", mixer=BOTTOM)["encoder"], "decoder": {**depth("layers")["decoder"], **MERGED}},
    "merged, over blocks, canon, wide heads, values of the first layer": {
        "decoder": {**depth("blocks", canon="AC")["decoder"], **MERGED}, "value_residual": True, "key_dim": 3,
        "value_dim": 5, "norm": "pre"},
    "merged, shared heads, norms and gates, values of the first layer": {
        "heads": 4, "position": "rotary", "decoder": MERGED | {
            "mixer": SHARED | {"key_value_heads": 2, "forget": True, "value_residual": True}}},
    "values of the first layer": sides(VALUES, VALUES, norm="pre"),
    "values of the lowest attention, n-grams below and between, post": sides(
        [BOTTOM[0], "attention", BOTTOM[0], VALUES], [LOCAL, "attention", VALUES, BOTTOM[0]], position="rotary"),
    "zero first input, positions in halves": {
        "first_input": "zero", "position": {"kind": "sinusoidal", "arrangement": "halves"}, "output_bias": True,
        "decoder": {"layers": 2, "mixer": ["ssru", "attention"]}},
    "norm of embeddings, learned positions": {"embedding_norm": True, "position": "learned"},
    "norm of embeddings, positions from 2 on, geglu, pre": {
        "embedding_norm": True, "position": {"kind": "sinusoidal", "arrangement": "halves", "first": 2},
        "feed_forward": {"kind": "geglu", "hidden": 6}, "norm": "pre"},
    "no biases": {"bias": False, "norm_kind": "rms"},
}  # fmt: skip
DECODER_ONLY = {
    **{f"{position}, {mixer}": decoder(position, mixer)
       for position, mixer in [
           *itertools.product(["sinusoidal", "learned", "none"], SCORES[:1]), *itertools.product(RELATIVE, SCORES)]},
    **{f"{position}, {mixer}": decoder(position, mixer)
       for position, mixer in itertools.product(["sinusoidal", "none"], [NGRAM, {"kind": "nplm", "n": 2}, "ssru"])},
    "canon B, D, swiglu, local": {
        "feed_forward": {"kind": "swiglu", "hidden": 6}, "decoder": {"layers": 2, "mixer": LOCAL, "canon": "BD"}
    },
    "alibi, attention above n-grams": decoder("alibi", ["attention", NGRAM]),
    **{f"canon {points}": {"decoder": {"layers": 2, "canon": points}} for points in ("A", "C", "AC", "B", "D", "ABCD")},
    **{f"over {over}, {norm}, n-grams below": {"norm": norm, "decoder": depth(over, mixer=BOTTOM)["decoder"]}
       for over in ("layers", "blocks") for norm in ("post", "pre")},
    "values of the first layer, over layers, post": {
        "value_residual": True, "decoder": depth("layers", mixer=["attention", BOTTOM[0], "attention"])["decoder"]},
}  # fmt: skip
FAMILIES = {
    "transformer": (toys.model, TRANSFORMERS),
    "decoder_only": (toys.decoder_only, DECODER_ONLY),
    "recurrent": (recurrent.model, recurrent.VARIANTS),
}
BUILDS = {
    f"{family}: {name}": partial(build, **changes)
    for family, (build, variants) in FAMILIES.items()
    for name, changes in variants.items()
}
Build = Callable[..., Seq2Seq]


def test_every_registered_model_that_writes_sequences_is_here():
    assert FAMILIES.keys() == {name for name in MODELS if issubclass(MODELS.get(name), Seq2Seq)}


def begun(model: Seq2Seq, given):
    return model.start(model.encode(given.source, given.source_mask), 10)


def check_steps(build: Build) -> None:
    """Tokens one at a time give what all at once give; what is selected from a state goes on as the state does."""
    model, given = build(), toys.batch()
    whole, state = model(given).logits.log_softmax(-1), begun(model, given)
    for time in range(given.target_input.shape[1]):
        tokens = given.target_input[:, time : time + 1]
        again, _ = model.extend(tokens, state.select(torch.arange(3)))
        scores, state = model.extend(tokens, state)
        real = given.target_mask[:, time]
        torch.testing.assert_close(scores[real], whole[real, time], atol=1e-10, rtol=0)
        torch.testing.assert_close(scores, again, atol=1e-12, rtol=0)


def check_prompts(build: Build) -> None:
    """Several tokens at once leave the state and the scores that steps leave."""
    model, given = build(), toys.batch()
    start, tokens = begun(model, given), given.target_input[:, :4]
    state = start.select(torch.arange(3))
    for time in range(3):
        _, state = model.extend(tokens[:, time : time + 1], state)
    stepped, _ = model.extend(tokens[:, 3:], state)
    _, cut = model.extend(tokens[:, :1], start)
    _, cut = model.extend(tokens[:, 1:3], cut)
    torch.testing.assert_close(model.extend(tokens[:, 3:], cut)[0], stepped, atol=1e-11, rtol=0)


def check_selection(build: Build) -> None:
    """Rows that are chosen, once, twice or by sentence, go on as they would have."""
    model, given = build(), toys.batch()
    _, state = model.extend(torch.full((3, 1), BOS), begun(model, given))
    tokens, order = torch.tensor([[4], [5], [6], [7]]), torch.tensor([2, 2, 0, 0])
    every = {token: model.extend(torch.full((3, 1), token), state.select(torch.arange(3)))[0] for token in range(4, 8)}
    apart, _ = model.extend(tokens, state.select(order))
    together, wide = model.extend(tokens, state.select(order.view(2, 2)))
    for row, token, chosen in zip(order.tolist(), tokens[:, 0].tolist(), apart, strict=True):
        torch.testing.assert_close(chosen, every[token][row], atol=1e-12, rtol=0)
    torch.testing.assert_close(apart, together, atol=1e-12, rtol=0)
    one, _ = model.extend(tokens[:2], wide.select(torch.tensor([[3, 2]])))
    single, _ = model.extend(tokens[:2], wide.select(torch.tensor([3, 2])))
    torch.testing.assert_close(one, single, atol=1e-12, rtol=0)


def check_rows(build: Build) -> None:
    """A batch gives what each of its rows gives alone, whatever stands at padding."""
    model, given = build(), toys.batch()
    logits = model(given).logits
    source, target = given.source.clone(), given.target_input.clone()
    source[~given.source_mask], target[~given.target_mask] = 5, 6
    other = model(replace(given, source=source, target_input=target)).logits
    assert torch.equal(other[given.target_mask], logits[given.target_mask])
    for row in range(3):
        alone = collate(
            [given.source[row][given.source_mask[row]][:-1].numpy()],
            [given.target_output[row][given.target_mask[row]][:-1].numpy()],
        )
        torch.testing.assert_close(logits[row][given.target_mask[row]], model(alone).logits[0], atol=1e-12, rtol=0)


def check_beams(build: Build) -> None:
    """Hypotheses, whose rows change places at every step, score what the whole says of them."""
    model, given = build(seed=3), toys.batch()
    memory = model.encode(given.source, given.source_mask)
    for beam in (1, 3):
        for row, hypotheses in enumerate(beam_search(model, memory, Limits(0, [6, 4, 5]), beam=beam)):
            source = given.source[row][given.source_mask[row]][:-1].numpy()
            for each in hypotheses:
                again = collate([source], [np.array(each.ids, dtype=np.int64)])
                scores = model(again).logits[0].log_softmax(-1).gather(1, again.target_output[0, :, None])[:, 0]
                found = torch.tensor(each.log_probabilities).double()
                torch.testing.assert_close(scores, found, atol=1e-5, rtol=0)  # a search keeps scores in float32


def check_capture(build: Build) -> None:
    """Capture changes no output and no gradient; what is captured are weights of real positions."""
    model, given = build(), toys.batch()
    output, quiet = model(given, capture=("*",)), model(given)
    assert torch.equal(output.logits, quiet.logits)
    assert not quiet.attention
    masks = {"source": given.source_mask, "target": given.target_mask}
    for name, weights in output.attention.items():
        assert set(model(given, capture=(name,)).attention) == {name}
        queries, keys = model.attention_axes(name)
        if queries == "both":
            continue
        real = weights.transpose(1, 2)[masks[queries]]
        assert ((real >= 0) & (real.sum(-1, keepdim=True) <= 1 + 1e-9)).all()
        if keys in masks:
            assert not weights.masked_fill(masks[keys][:, None, None], 0).any()
    parameters = list(model.parameters())
    pairs = (torch.autograd.grad(each.logits.sum(), parameters, allow_unused=True) for each in (output, quiet))
    for one, other in zip(*pairs, strict=True):
        assert one is other is None or torch.allclose(one, other, atol=1e-12)


def check_gradients(build: Build) -> None:
    """Every parameter learns, but for those that only score positions where the best one alone counts."""
    model, given = build(), toys.batch()
    model(given).logits[given.target_mask].square().sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not [name for name in without if "attention.score" not in name and ".cross." not in name]
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in model.parameters())


def check_save_and_load(build: Build) -> None:
    """Weights are all that there is to know of a model."""
    model, other = build(seed=1), build(seed=2)
    assert not torch.allclose(model(toys.batch()).logits, other(toys.batch()).logits)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(toys.batch()).logits, other(toys.batch()).logits)


def check_dropout(build: Build) -> None:
    """Draws are made in training alone."""
    model, given = build(dropout=0.5), toys.batch()
    assert torch.equal(model(given).logits, model(given).logits)
    model.train()
    assert not torch.equal(model(given).logits, model(given).logits)


CHECKS = [
    check_steps, check_prompts, check_selection, check_rows, check_beams, check_capture, check_gradients,
    check_save_and_load, check_dropout,
]  # fmt: skip


# One check of each model is in the fast tier.
PAIRS = [
    tiered(check, name, slow=(place + number) % len(CHECKS) > 0)
    for place, check in enumerate(CHECKS)
    for number, name in enumerate(BUILDS)
]


@pytest.mark.parametrize(("check", "name"), PAIRS, ids=lambda value: getattr(value, "__name__", value))
def test_model_conforms(check, name):
    check(BUILDS[name])


def broken(fault: str, **changes) -> Seq2Seq:
    """A Transformer with one thing wrong, by name."""
    model = toys.model(**changes)
    forward, extend, encode, shift = model.forward, model.extend, model.encode, torch.rand(1).item()

    def wrong_forward(batch, *, capture=()):
        output = forward(batch, capture=capture)
        logits = output.logits
        if fault == "rows mix":
            logits = logits + 1e-3 * logits.mean(0, keepdim=True)
        if fault == "not all is saved":
            logits = logits * shift
        if fault == "draws in evaluation":
            logits = logits + torch.rand(1)
        if fault == "capture counts" and capture:
            logits = logits * 1.1
        return output._replace(logits=logits)

    def wrong_extend(tokens, state):
        scores, after = extend(tokens, state)
        if fault == "forgets":
            after = begun(model, toys.batch()) if scores.shape[0] == 3 else after
        if fault == "forgets a prompt" and tokens.shape[1] > 1:
            _, after = extend(tokens[:, -1:], state)
        if fault == "selects another row":
            scores = scores.roll(1, 0) if scores.shape[0] == 4 else scores
        if fault == "another score":
            scores = scores * 1.1
        return scores, after

    model.forward, model.extend = wrong_forward, wrong_extend
    if fault == "padding is read":
        model.encode = lambda source, mask: encode(source, torch.ones_like(mask))
        model.forward = lambda batch, **given: forward(
            replace(batch, source_mask=torch.ones_like(batch.source_mask)), **given
        )
    if fault == "a parameter does not learn":
        model.spare = torch.nn.Parameter(torch.ones(1))
    return model


FAULTS = [
    (check_steps, "forgets"), (check_prompts, "forgets a prompt"), (check_selection, "selects another row"),
    (check_rows, "rows mix"), (check_rows, "padding is read"), (check_beams, "another score"),
    (check_capture, "capture counts"), (check_gradients, "a parameter does not learn"),
    (check_save_and_load, "not all is saved"), (check_dropout, "draws in evaluation"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "fault"), FAULTS, ids=lambda value: str(getattr(value, "__name__", value)))
def test_check_finds_the_fault(check, fault):
    with pytest.raises(AssertionError):
        check(partial(broken, fault))
    check(partial(broken, "none"))
