"""Every kind of cross-attention equals its oracle, alone and in a Transformer."""

import pytest
import torch

from headway.core.errors import UserError
from headway.models import CROSS_ATTENTIONS
from headway.models.cross_attention import CrossMixer, Read, View
from headway.tensors.masks import padding_mask
from tests import reference
from tests.models import toys
from tests.tiers import thinned

KINDS = [
    {"kind": "multi_head", "heads": 2},
    {"kind": "multi_head", "heads": 3, "head_dim": 5},
    {"kind": "multi_head", "heads": 3, "key_dim": 2, "value_dim": 5},
    {"kind": "dot", "scaled": True},
    {"kind": "general", "window": "local-m", "width": 1},
    {"kind": "additive"},
    {"kind": "concat", "window": "local-m", "width": 1},
    {"kind": "location"},
]
HARD = {"kind": "general", "choice": "hard", "estimator": "straight_through"}
kinds = pytest.mark.parametrize("options", KINDS, ids=str)


def built(options, dim: int = 6) -> CrossMixer:
    torch.manual_seed(3)
    cross = CROSS_ATTENTIONS.build(options, dim, 6, 7).double().eval()
    with torch.no_grad():
        for parameter in cross.parameters():
            parameter.mul_(2).add_(0.1 * torch.randn_like(parameter))
    return cross


def given():
    torch.manual_seed(4)
    x, memory = (torch.randn(2, length, 6, dtype=torch.float64, requires_grad=True) for length in (3, 5))
    return x, memory, padding_mask(torch.tensor([5, 2]))


@kinds
def test_equals_oracle_in_values_weights_and_gradients(options):
    cross, (x, memory, mask) = built(options), given()
    values, weights, _ = cross(x, cross.project(memory, mask), need_weights=True)
    slow_values, slow_weights = reference.read_source(cross, x, memory, mask)
    assert torch.allclose(values, slow_values, atol=1e-12)
    assert torch.allclose(weights, slow_weights, atol=1e-12)
    upstream, inputs = torch.randn_like(values), [x, memory, *cross.parameters()]
    fast = torch.autograd.grad((values * upstream).sum(), inputs, allow_unused=True)
    slow = torch.autograd.grad((slow_values * upstream).sum(), inputs, allow_unused=True)
    for one, other in zip(fast, slow, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("options", [*KINDS, {"kind": "general", "window": "local-p"}, HARD], ids=str)
@pytest.mark.parametrize("cuts", [(1, 1, 1), (2, 1), (3,)])
@torch.no_grad()
def test_hypotheses_share_the_source_in_any_cuts(options, cuts):
    cross, (_, memory, mask) = built(options), given()
    hypotheses, view = torch.randn(2 * 4, 3, 6, dtype=torch.float64), cross.project(memory, mask)
    stepped, first = [], 0
    for count in cuts:
        part = hypotheses[:, first : first + count]
        stepped.append(cross.extend(part, view, 4, torch.full((8,), first)).values)
        first += count
    every = cross.project(memory.repeat_interleave(4, 0), mask.repeat_interleave(4, 0))
    assert torch.allclose(torch.cat(stepped, 1), cross(hypotheses, every).values, atol=1e-12)
    one = view.select(torch.tensor([1, 1]))
    assert torch.allclose(cross(hypotheses[:2], one).values[1], cross(hypotheses[:2], view).values[1], atol=1e-12)


def test_scores_are_what_weights_are_the_softmax_of():
    for options in KINDS:
        cross, (x, memory, _) = built({**options, "window": "global"} if "window" in options else options), given()
        view = cross.project(memory, None)
        assert torch.allclose(cross.scores(x, view).softmax(-1), cross(x, view, need_weights=True).weights)


@pytest.mark.parametrize(
    "cross", thinned(["dot", "additive", "location", {"kind": "general", "scaled": True}], 2), ids=str
)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_transformers_with_it_equal_their_oracle_with_every_gradient(cross, norm):
    model, batch = toys.model(norm=norm, decoder={"layers": 2, "cross": cross}, head_dim=3), toys.batch()
    fast, real = model(batch).logits, batch.target_mask
    slow = reference.transformer(model, batch.source, batch.source_mask, batch.target_input, real)
    assert torch.allclose(fast[real], slow[real], atol=1e-10)
    parameters = list(model.parameters())
    upstream = torch.randn(fast[real].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pairs = (torch.autograd.grad((each[real] * upstream).sum(), parameters) for each in (fast, slow))
    for one, other in zip(*pairs, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("cross", [*KINDS, {"kind": "general", "window": "local-p"}, HARD], ids=str)
def test_transformers_with_it_learn_and_capture(cross):
    model, batch = toys.model(decoder={"layers": 2, "cross": cross}), toys.batch()
    optimizer, losses = torch.optim.Adam(model.train().parameters(), 0.01), []
    for _ in range(5):
        logits = model(batch).logits[batch.target_mask]
        loss = torch.nn.functional.cross_entropy(logits, batch.target_output[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    output = model.eval()(batch, capture=("*.cross",))
    assert set(output.attention) == {"decoder.1.cross", "decoder.2.cross"}


class Mean(CrossMixer):
    """The mean of the source, whatever is asked: a kind from outside."""

    def __init__(self, dim: int, memory_dim: int, positions: int, *, factor: float = 1.0) -> None:
        super().__init__()
        self.size, self.factor = memory_dim, factor

    def project(self, memory, mask):
        return Source(memory.mean(1, keepdim=True) * self.factor)

    def forward(self, x, view, *, need_weights=False):
        return Read(view.mean.expand(-1, x.shape[1], -1), None)

    def extend(self, x, view, width, positions, previous=None, *, need_weights=False):
        return Read(view.mean.repeat_interleave(width, 0).expand(-1, x.shape[1], -1), None)

    def scores(self, x, view):
        raise NotImplementedError


class Source(View):
    def __init__(self, mean) -> None:
        object.__setattr__(self, "mean", mean)


def test_a_kind_from_outside_serves_both_families():
    from tests.models.recurrent import toys as recurrent

    entry = {"kind": "tests.models.test_cross_attention:Mean", "factor": 2.0}
    model = toys.model(decoder={"layers": 1, "cross": entry})
    assert model.decoder[0].cross.factor == 2.0
    assert model(toys.batch()).logits.isfinite().all()
    assert recurrent.model(attention={"score": entry})(toys.batch()).logits.isfinite().all()


@pytest.mark.parametrize(
    ("cross", "message"),
    [
        ("generall", r"model\.decoder\.cross\.kind: unknown cross attention; did you mean 'general'"),
        ({"kind": "general", "wndow": "local-m"}, r"model\.decoder\.cross\.wndow: unknown key; did you mean 'window'"),
        ({"kind": "general", "choice": "hard", "window": "local-p"}, "window local-p weighs positions, and hard"),
        ({"kind": "general", "choice": "hard"}, r"model\.decoder\.cross: only recurrent models"),
        ({"kind": "additive", "scaled": True}, r"model\.decoder\.cross\.scaled: unknown key"),
    ],
)
def test_mistakes_name_their_key(cross, message):
    with pytest.raises(UserError, match=message):
        toys.model(decoder={"layers": 1, "cross": cross})
