"""Recurrent models equal their oracle with every gradient, in every way of attending."""

import itertools

import pytest
import torch

from headway.core.errors import UserError
from headway.models import build_model, model_section
from headway.tensors.batch import BOS, collate
from tests.models.recurrent import oracle, toys
from tests.models.toys import batch
from tests.rounding import rounding

CROSS = "decoder.1.cross"
variants = pytest.mark.parametrize("changes", toys.VARIANTS.values(), ids=toys.VARIANTS)


@variants
def test_equals_oracle_with_every_gradient(changes):
    model, given = toys.model(**changes), batch()
    output = model(given, capture=("*.cross",))
    slow = oracle.recurrent(toys.config(**changes), model, given)
    fast_sum = slow_sum = torch.zeros(())
    for row, (logits, weights) in enumerate(slow):
        real = given.target_mask[row]
        fast = output.logits[row, real]
        assert torch.allclose(fast, logits, atol=1e-10)
        upstream = torch.randn(logits.shape, generator=torch.Generator().manual_seed(row), dtype=torch.float64)
        fast_sum, slow_sum = fast_sum + (fast * upstream).sum(), slow_sum + (logits * upstream).sum()
        if weights is not None:
            captured = output.attention[CROSS][row, :, real]  # (K, T, S)
            by_head = weights[None] if weights.dim() == 2 else weights.permute(2, 0, 1)
            assert torch.allclose(captured[..., : weights.shape[1]], by_head, atol=1e-10)
            assert (captured[..., weights.shape[1] :] == 0).all()
    names, parameters = zip(*model.named_parameters(), strict=True)
    pairs = (torch.autograd.grad(each, parameters, allow_unused=True) for each in (fast_sum, slow_sum))
    for name, one, other in zip(names, *pairs, strict=True):
        if one is None or other is None:  # what scores positions gets no gradient where only the best one counts
            assert one is None or not one.any(), name
            assert other is None or not other.any(), name
            assert "attention.score" in name
            assert changes["attention"]["kind"] in ("hard", "monotonic")
        else:
            assert torch.allclose(one, other, rtol=1e-8, atol=1e-10), name


@variants
def test_capture_changes_nothing_and_weights_are_a_distribution(changes):
    model, given = toys.model(**changes), batch()
    output = model(given, capture=("*",))
    assert torch.equal(output.logits, model(given).logits)
    assert not model(given).attention
    attention = toys.config(**changes).attention
    if not attention.weighs:
        assert not output.attention
        return
    weights = output.attention[CROSS]
    assert weights.shape == (
        3,
        getattr(model.decoder.attention, "heads", 1),
        given.target_input.shape[1],
        given.source.shape[1],
    )
    assert (weights.masked_fill(given.source_mask[:, None, None, :], 0) == 0).all()
    sums = weights.sum(-1)
    assert (sums <= 1 + 1e-12).all()
    assert attention.window == "local-p" or torch.allclose(sums, torch.ones_like(sums))
    if attention.kind != "soft":
        assert ((weights == 0) | (weights == 1)).all()
    if attention.kind == "monotonic":
        assert (weights.argmax(-1).diff(dim=-1) >= 0).all()


def test_a_row_without_any_word_gives_zeros_and_finite_gradients():
    for changes in ({"cell": "gru"}, {"encoder": {"reverse": True}}, {"encoder": {"bidirectional": True}}):
        model, given = toys.model(**changes), batch()
        mask = given.source_mask.clone()
        mask[1] = False
        memory = model.encode(given.source, mask)
        assert (memory.values[1] == 0).all()
        scores, _ = model.extend(torch.full((3, 1), BOS), model.start(memory, 3))
        scores.sum().backward()
        assert scores.isfinite().all()
        assert all(each.grad is None or each.grad.isfinite().all() for each in model.parameters())


def test_every_combination_is_taken_or_refused_by_name():
    options = itertools.product(
        ("soft", "hard", "monotonic", "last", "none"), ("dot", "general", "concat", "additive", "location"),
        ("bahdanau", "luong"), ("global", "local-m", "local-p"), (False, True), ("state", "tanh", "maxout"),
    )  # fmt: skip
    taken = refused = 0
    for kind, score, timing, window, feeding, readout in options:
        attention = {"kind": kind, "score": score, "timing": timing, "window": window, "input_feeding": feeding}
        wrong = [
            feeding and (timing == "bahdanau" or kind in ("last", "none")),
            kind in ("hard", "monotonic") and window == "local-p",
            readout == "state" and timing == "luong" and kind != "none",
        ]
        if any(wrong):
            with pytest.raises(ValueError, match=r"input_feeding|local-p|readout state"):
                toys.config(attention=attention, readout=readout)
            refused += 1
        else:
            toys.config(attention=attention, readout=readout)
            taken += 1
    assert (taken, refused) == (75 + 105 + 70 + 70 + 90, 490)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"bidirectional": True, "reverse": True}}, "model.encoder: reverse changes nothing"),
        ({"encoder": {"bidirectional": True, "hidden": 7}}, "model.encoder: two directions share hidden"),
        ({"decoder": {"layers": 3}}, "decoder.start copy needs as many layers"),
        ({"decoder": {"hidden": 4, "start": "project"}, "attention": {"score": "dot"}}, "attention.score dot compares"),
        ({"attention": {"score": "concat", "scaled": True}}, "concat has bounds"),
        ({"attention": {"score": "dott"}}, "unknown score 'dott'; did you mean 'dot'"),
        ({"attention": {"score": "multi_head", "window": "local-m"}}, "window does nothing with score multi_head"),
        ({"attention": {"score": "multi_head", "kind": "hard"}}, "kind does nothing with score multi_head"),
        ({"readout": "state", "attention": {"kind": "none"}, "tied": "target"}, "readout state predicts from"),
        ({"readout": {"size": 3}, "tied": "target"}, r"readout tanh predicts from readout.size \(3\)"),
        ({"readout": {"kind": "state", "size": 3}}, "readout state is of the size decoder.hidden"),
        ({"readout": {"kind": "tanh", "state": "previous"}}, "would not know the last word"),
        ({"readout": {"kind": "maxout", "state": "previous"}}, "belongs to attention of timing bahdanau"),
        ({"readout": {"kind": "maxout", "state": "previous"}, "attention": "none"}, "belongs to attention of timing"),
        (
            {"readout": {"kind": "maxout", "state": "previous"}, "attention": {"kind": "last", "timing": "bahdanau"}},
            "belongs to attention of timing",
        ),
        ({"attention": {"kind": "last", "input_feeding": True}}, "kind is last"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message.removeprefix("model.encoder: ")):
        toys.config(**changes)


def test_a_source_longer_than_the_positions_of_location_scores():
    model = toys.model(attention={"score": "location"})
    long = collate([torch.full((12,), 5).numpy()], [torch.full((3,), 5).numpy()])
    with pytest.raises(UserError, match=r"model\.max_position"):
        model(long)
    assert (model.longest_source(), model.longest_target(5), model.learned_sources()) == (11, None, True)
    assert not toys.model().learned_sources()


def test_attention_and_readout_may_be_written_as_their_kinds():
    config = toys.config(attention="hard", readout="maxout")
    assert (config.attention.kind, config.readout.kind) == ("hard", "maxout")


def test_all_weights_begin_within_the_range():
    torch.manual_seed(1)
    model = build_model(toys.config(uniform_range=0.1, **toys.VARIANTS["bahdanau as printed"]), 50, 50, False)
    weights = torch.cat([parameter.flatten() for parameter in model.parameters()])
    assert weights.abs().max() <= 0.1
    assert weights.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.05)


def gru_size(inputs: int, hidden: int) -> int:
    return 3 * hidden * (inputs + hidden + 2)


def lstm_size(inputs: int, hidden: int) -> int:
    return 4 * hidden * (inputs + hidden + 2)


# Input and output vectors of 1,000 words; the layers; attention and readout (sections named at the presets).
@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("sutskever", 3 * 1000 * 1000 + 8 * lstm_size(1000, 1000)),
        (
            "bahdanau",
            3 * 1000 * 620 + 2 * gru_size(620, 1000) + gru_size(620 + 2000, 1000)
            + (1000 * 1000 + 1000) + (2000 * 1000 + 1000 * 1000 + 1000) + 2 * 620 * (620 + 1000 + 2000),
        ),
        (
            "luong",
            3 * 1000 * 1000 + 7 * lstm_size(1000, 1000) + lstm_size(2000, 1000) + 1000 * 1000 + 2000 * 1000,
        ),
    ],
)  # fmt: skip
def test_presets_have_the_sizes_of_the_papers(preset, parameters):
    with torch.device("meta"):
        model = build_model(model_section(preset), 1000, 1000, False)
    assert sum(each.numel() for each in model.parameters()) == parameters


def test_bf16_stays_close():
    for changes in ({}, {"cell": "gru", "attention": {"input_feeding": True}}, {"attention": {"window": "local-p"}}):
        model, given = toys.model(dtype=torch.float32, **changes), batch()
        with torch.autocast("cpu", torch.bfloat16):
            low = model(given).logits
            low.float().sum().backward()
        whole = model(given).logits
        assert (low - whole)[given.target_mask].abs().max() < rounding(torch.bfloat16, 4) * (1 + whole.abs().max())
