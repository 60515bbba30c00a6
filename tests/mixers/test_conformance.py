"""Every registered mixer keeps the contract; every check fails on a mixer that breaks what it checks."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.mixers import MIXERS, Contributions, Mixed, Mixer, MixerState, build_mixer, conformance
from headway.mixers.attention import Attention, AttentionState
from headway.mixers.conformance import CHECKS, ConformanceError
from headway.mixers.ngram import Ngram, NgramState
from headway.mixers.points import heads_of
from tests.tiers import thinned, tiered

DIM = 6
POSITIONS = {
    "no position": None,
    "t5": {"kind": "t5", "buckets": 8, "max_distance": 5},
    "alibi": "alibi",
    "rotary": "rotary",
    "half rotary": {"kind": "rotary", "share": 0.5},
}
SHARED = {"head_dim": 4, "key_value_heads": 1, "query_key_norm": True}
OPTIONS = {
    "attention": {
        f"attention, {name}": {"head_dim": 4, "value_dim": 3, "position": position}
        for name, position in POSITIONS.items()
    }
    | {
        "attention, shared heads, norms": SHARED | {"position": "rotary"},
        "attention, forget": {"forget": True},
        "attention, canon": {"canon": True},
        "attention, all options": SHARED | {"forget": True, "canon": True, "position": "alibi"},
    },
    "delta": {
        f"delta, {gate}{', all options' if len(more) > 1 else ''}": {"gate": gate} | more
        for gate in ("none", "scalar", "vector")
        for more in (
            {"head_dim": 4},
            {
                "negative_eigenvalues": True,
                "key_dim": 3,
                "value_dim": 5,
                "canon": True,
                "output_norm": False,
                "output_gate": True,
                "bias": False,
            },
        )
    },
    "dependency": {
        "dependency": {},
        "dependency, all options": {
            "head_dim": 4,
            "value_dim": 3,
            "dependency_heads": 2,
            "key_bias": True,
            "position": "rotary",
        },
        "dependency, shared heads, norms, forget": SHARED | {"forget": True, "canon": True},
    },
    "lightconv": {"lightconv": {"width": 3}, "lightconv, even": {"width": 4, "bias": False}},
    "linear": {
        f"linear, {gate}": {"gate": gate, "head_dim": 8, "value_dim": 5}
        for gate in ("none", "fixed", "scalar", "vector")
    }
    | {
        "linear, convolution": {"gate": "scalar", "canon": True, "output_norm": False, "bias": False},
        "linear, normalised": {"canon": True, "output_norm": True, "output_gate": True},
    },
    "local": {
        f"local, {name}": {"n": 3, "head_dim": 4, "value_dim": 3, "position": position}
        for name, position in POSITIONS.items()
    }
    | {"local, itself": {"n": 1}, "local, shared heads, norms": SHARED | {"n": 3, "position": "rotary", "canon": True}},
    "ngram": {
        "ngram": {"n": 3},
        "ngram, global": {"n": 2, "global_context": True},
        "ngram, prefix": {"n": 2, "global_context": "prefix", "head_dim": 5, "bias": False},
        "ngram, itself and prefix": {"n": 1, "global_context": "prefix"},
    },
    "nplm": {
        "nplm": {"n": 2, "blocks": 2, "block_size": 2, "kernels": 2, "hidden": 5},
        "nplm, distant": {"n": 1, "blocks": 1, "block_size": 3},
        "nplm, near": {"n": 3, "blocks": 0, "bias": False},
    },
    "ssru": {"ssru": {}},
}
HEADS = {"attention": 3, "delta": 3, "dependency": 3, "lightconv": 3, "linear": 3, "local": 3, "ngram": 3}
CONFIGS = {
    name: {"kind": kind} | ({"heads": HEADS[kind]} if kind in HEADS else {}) | options
    for kind, variants in OPTIONS.items()
    for name, options in variants.items()
}

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def test_every_registered_mixer_is_here():
    assert OPTIONS.keys() == set(MIXERS)


# A window of one position is no mixing unless there is a context besides it.
NAMES = [(name, causal) for name in CONFIGS for causal in (False, True) if causal or "itself" not in name]


# The fast tier has every check of the first variant of each mixer, and one of eight of the other variants. To compile
# takes a second: fast tests do so with a third of the first variants, a whole sequence that is not causal, and with
# another third the steps of one that is.
FIRST = [next(iter(variants)) for variants in OPTIONS.values()]
COMPILED = {conformance.check_compile: (FIRST[::3], False), conformance.check_compiled_steps: (FIRST[1::3], True)}


def _is_slow(check, name, causal, place):
    names, direction = COMPILED.get(check, (FIRST, causal))
    if name in names and causal is direction:
        return False
    return check in COMPILED or place % 8 > 0


CASES = [
    tiered(check, name, causal, slow=_is_slow(check, name, causal, place + number))
    for place, check in enumerate(CHECKS)
    for number, (name, causal) in enumerate(NAMES)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("check", "name", "causal"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_mixer_conforms(name, check, causal, device):
    if causal and CONFIGS[name].get("global_context") is True:
        with pytest.raises(UserError, match="would see the future"):
            build_mixer(CONFIGS[name], DIM, causal)
    else:
        check(lambda causal: build_mixer(CONFIGS[name], DIM, causal), dim=DIM, causal=causal, device=device)


@pytest.mark.parametrize(("name", "causal"), [pair for pair in NAMES if pair != ("ngram, global", True)])
def test_padding_before_and_between_real_positions_changes_nothing(name, causal):
    torch.manual_seed(23)
    mixer = build_mixer(CONFIGS[name], DIM, causal).double()
    for parameter in mixer.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(4, 9, DIM, dtype=torch.float64)
    mask = torch.ones(4, 9, dtype=torch.bool)
    mask[0, :3] = mask[1, 4] = mask[2, 1:3] = mask[2, 7:] = mask[3, :] = False
    values = mixer(x, mask).values
    assert (values[~mask] == 0).all()
    changed = (x + (~mask[..., None] * 5.0)).requires_grad_()
    found = mixer(changed, mask).values
    assert torch.allclose(found, values, atol=1e-12)
    found.square().sum().backward()
    assert (changed.grad[~mask] == 0).all()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


@pytest.mark.parametrize("name", [name for name in CONFIGS if CONFIGS[name].get("global_context") is not True])
def test_rows_of_a_state_are_selected_with_gradients(name):
    torch.manual_seed(29)
    mixer = build_mixer(CONFIGS[name], DIM, True).double()
    x, order = torch.randn(2, 3, DIM, dtype=torch.float64), torch.tensor([1, 0, 1])
    values, state = mixer.extend(x[:, :2], mixer.initial_state(2, 3))
    values, _ = mixer.extend(x[order, 2:], state.select(order))
    whole = mixer(x, None).values[order, 2:]
    upstream = torch.randn_like(whole)
    parameters = list(mixer.parameters())
    found = torch.autograd.grad(values, parameters, upstream, allow_unused=True)
    for one, other in zip(found, torch.autograd.grad(whole, parameters, upstream, allow_unused=True), strict=True):
        assert one is other is None or torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize(
    "check", [tiered(check, slow=check in COMPILED) for check in CHECKS], ids=lambda check: check.__name__
)
def test_checks_take_a_type(check):
    check(lambda causal: build_mixer("attention", DIM, causal, heads=3), dim=DIM, causal=True, dtype=torch.float32)


@pytest.mark.parametrize(
    ("check", "position", "causal"),
    thinned(itertools.product([check for check in CHECKS if check not in COMPILED], POSITIONS, [False, True]), 3)
    + [tiered(*row, slow=True) for row in itertools.product(COMPILED, POSITIONS, [False, True])],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_local_attention_conforms_in_blocks(monkeypatch, position, check, causal):
    monkeypatch.setattr("headway.mixers.local.SMALLEST_BLOCK", 2)
    options = {"kind": "local", "n": 3, "heads": 3, "head_dim": 4, "position": POSITIONS[position]}
    check(lambda causal: build_mixer(options, DIM, causal), dim=DIM, causal=causal)


class Broken(Attention):
    """Self-attention with one thing wrong, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__(DIM, causal, heads=3)
        self.fault = fault
        self.shift = torch.rand(1).item()  # not in the state dict
        self.calls = 0

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Mixed:
        if self.fault == "padding is not masked":
            return Mixed(super().forward(x, None, need_weights=need_weights).values, None)
        if self.fault == "sees the future":
            self.causal = False
        values, weights = super().forward(x, mask, need_weights=need_weights)
        if self.fault == "NaN at padding":
            values = values / (1 if mask is None else mask[..., None])
        if self.fault == "rows mix":
            values = values + 1e-3 * values.mean(0, keepdim=True)
        if self.fault == "weights are halved" and weights is not None:
            weights = weights / 2
        if self.fault == "not all is saved":
            values = values * self.shift
        if self.fault == "coarse in bf16" and torch.is_autocast_enabled("cpu"):
            values = values * 1.1
        if self.fault == "breaks the graph" and float(values.sum().item()) > 1e9:
            values = values + 1
        if self.fault == "sees only itself":
            values = self.out_projection(self.in_projection(x)[..., :DIM])
            values = values if mask is None else values * mask[..., None]
        return Mixed(values, weights)

    def extend(self, x: Tensor, state: AttentionState, lengths: Tensor | None = None):
        self.calls += 1
        if self.fault == "ignores lengths":
            lengths = None
        if self.fault == "reads padding" and lengths is not None:
            x = x + 1e-3 * x.mean(1, keepdim=True)
        if self.fault == "positions of the first row":
            state = replace(state, lengths=state.lengths[:1].expand(len(state.lengths)))
        values, after = super().extend(x, state, lengths)
        if self.fault == "forgets":
            after = replace(after, lengths=state.lengths)
        if self.fault == "forgets where a prompt ends" and x.shape[1] > 1:
            after.keys[x.shape[1] - 1 :] = 0
        if self.fault == "another value at once" and x.shape[1] > 1:
            values = values * 1.1
        if self.fault == "a state that changes":
            values = values * (1 + 1e-6 * self.calls)
        if self.fault == "looks at the device" and bool((after.lengths > 1000).any()):
            values = values + 1
        return values, after


class SelectsViews(Attention):
    """Self-attention whose states share their memory with those that are selected from them."""

    def __init__(self, causal: bool) -> None:
        super().__init__(DIM, causal, heads=3)

    def initial_state(self, rows, capacity):
        state = super().initial_state(rows, capacity)
        return _Shared(state.lengths, state.keys, state.values)

    def extend(self, x, state, lengths=None):
        values, after = super().extend(x, state, lengths)
        return values, _Shared(after.lengths, after.keys, after.values)


class _Shared(AttentionState):
    def select(self, index):
        if torch.equal(index, torch.arange(len(self.lengths))):
            return self
        selected = super().select(index)
        return _Shared(selected.lengths, selected.keys, selected.values)


class Grows(Ngram):
    """N-grams whose state keeps all that was ever read."""

    def __init__(self, causal: bool) -> None:
        super().__init__(DIM, causal, n=3, heads=3)

    def extend(self, x, state, lengths=None):
        window = torch.cat([state.recent, self.in_projection(x)], 1)
        read = self._finish(self._read_window(window)[:, -x.shape[1] :], None)
        return read, NgramState(state.lengths_after(x.shape[1], lengths), window, None)


@dataclass(frozen=True)
class _Counted(AttentionState):
    position: int = 0

    def select(self, index):
        selected = super().select(index)
        return _Counted(selected.lengths, selected.keys, selected.values, position=self.position)


class Counts(Attention):
    """Self-attention that counts positions as a number of Python."""

    def __init__(self, causal: bool) -> None:
        super().__init__(DIM, causal, heads=3)

    def initial_state(self, rows, capacity):
        state = super().initial_state(rows, capacity)
        return _Counted(state.lengths, state.keys, state.values)

    def extend(self, x, state, lengths=None):
        values, after = super().extend(
            x, replace(state, lengths=torch.full_like(state.lengths, state.position)), lengths
        )
        return values, _Counted(after.lengths, after.keys, after.values, position=state.position + x.shape[1])


class BrokenContributions(Ngram):
    """N-grams with one thing wrong in their contributions, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__(DIM, causal, n=2, heads=3)
        self.fault = fault

    def contributions(self, x: Tensor, mask: Tensor | None) -> Contributions:
        right = super().contributions(x, mask)
        if self.fault == "not all is attributed":
            return super().contributions(x * 1.01, mask)
        if self.fault == "spans are mixed up":
            return right._replace(spans=right.spans[::-1])
        if self.fault == "contributions at padding":
            return right._replace(contributions=right.contributions + 1)
        if self.fault == "values of another computation":
            return right._replace(values=self.forward(x, mask).values)
        return right


FAULTS = [
    (conformance.check_shapes, True, "NaN at padding"),
    (conformance.check_causality, True, "sees the future"),
    (conformance.check_causality, False, "sees only itself"),
    (conformance.check_padding, False, "padding is not masked"),
    (conformance.check_batch, True, "rows mix"),
    (conformance.check_states, True, "forgets"),
    (conformance.check_extend, True, "forgets"),
    (conformance.check_extend, True, "a state that changes"),
    (conformance.check_extend, True, "forgets where a prompt ends"),
    (conformance.check_extend, True, "another value at once"),
    (conformance.check_prompts, True, "ignores lengths"),
    (conformance.check_prompts, True, "reads padding"),
    (conformance.check_prompts, True, "forgets where a prompt ends"),
    (conformance.check_prompts, True, "positions of the first row"),
    (conformance.check_weights, True, "weights are halved"),
    (conformance.check_save_and_load, True, "not all is saved"),
    (conformance.check_bf16, True, "coarse in bf16"),
]


@pytest.mark.parametrize(("check", "causal", "fault"), FAULTS, ids=lambda value: str(getattr(value, "__name__", value)))
def test_check_finds_the_fault(check, causal, fault):
    with pytest.raises(ConformanceError):
        check(lambda causal: Broken(causal, fault), dim=DIM, causal=causal)
    check(lambda causal: Broken(causal, "none"), dim=DIM, causal=causal)


def test_extend_check_finds_states_that_share_memory():
    with pytest.raises(ConformanceError, match="differ from the whole"):
        conformance.check_extend(SelectsViews, dim=DIM, causal=True)


def test_states_check_finds_a_state_that_grows():
    conformance.check_extend(Grows, dim=DIM, causal=True)
    with pytest.raises(ConformanceError, match="the shapes"):
        conformance.check_states(Grows, dim=DIM, causal=True)


def test_compiled_steps_check_finds_a_python_number():
    conformance.check_extend(Counts, dim=DIM, causal=True)
    with pytest.raises(ConformanceError, match="compiled the step once more"):
        conformance.check_compiled_steps(Counts, dim=DIM, causal=True)


@pytest.mark.parametrize(
    "fault",
    ["not all is attributed", "spans are mixed up", "contributions at padding", "values of another computation"],
)
def test_contributions_check_finds_the_fault(fault):
    with pytest.raises(ConformanceError):
        conformance.check_contributions(lambda causal: BrokenContributions(causal, fault), dim=DIM, causal=True)
    conformance.check_contributions(lambda causal: BrokenContributions(causal, "none"), dim=DIM, causal=True)


class BrokenPoints(Ngram):
    """N-grams that heed rules for their heads and offsets with one thing wrong, by name."""

    def __init__(self, causal: bool, fault: str) -> None:
        super().__init__(DIM, causal, n=3, heads=3)
        self.fault = fault

    def edited(self, terms, spans):
        edited = super().edited(terms, spans)
        if self.fault == "an offset takes its neighbour along" and len(spans) > 1:
            edited[:, :, :, 0] += edited[:, :, :, 1] - terms[:, :, :, 1]
        return edited

    def points(self):
        found = super().points()
        if self.fault == "heads are read before they are mixed":
            found |= heads_of(self.in_projection, 3)
        if self.fault == "two heads are one":
            found[":head=2"] = found[":head=1"]
        if self.fault == "a head is named that is nowhere":
            found[":head=4"] = lambda edit: lambda: None
        if self.fault == "rules stay":
            third = found[":head=3"]

            def put(edit):
                take_out = third(edit)
                return lambda: (take_out(), third(lambda values: values + 1))

            found[":head=3"] = put
        return found

    def extend(self, x, state, lengths=None):
        before, hooks = self.edits, self.out_projection._forward_pre_hooks
        if self.fault == "extend knows no offset":
            self.edits = {}
        if self.fault == "extend knows no head":
            self.out_projection._forward_pre_hooks = type(hooks)()
        try:
            return super().extend(x, state, lengths)
        finally:
            self.edits, self.out_projection._forward_pre_hooks = before, hooks


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("an offset takes its neighbour along", "a rule for :offset=-1 does not do what one for :offset=-2 does"),
        ("heads are read before they are mixed", "at one position reaches others"),
        ("two heads are one", "a rule for :head=1 changed :head=2"),
        ("a head is named that is nowhere", "forward does not read :head=4"),
        ("rules stay", "a rule that changes nothing changed the values"),
        ("extend knows no offset", "under a rule for :offset=-2 extend differs from forward"),
        ("extend knows no head", "under a rule for :head=1 extend differs from forward"),
    ],
)
def test_interventions_check_finds_the_fault(fault, message):
    with pytest.raises(ConformanceError, match=message):
        conformance.check_interventions(lambda causal: BrokenPoints(causal, fault), dim=DIM, causal=True)
    conformance.check_interventions(lambda causal: BrokenPoints(causal, "none"), dim=DIM, causal=True)


@pytest.mark.parametrize(
    ("check", "fault"),
    [(conformance.check_compile, "breaks the graph"), (conformance.check_compiled_steps, "looks at the device")],
)
def test_compile_checks_find_a_graph_break(check, fault):
    with pytest.raises(Exception, match=r"(?i)graph|unsupported|data-dependent"):
        check(lambda causal: Broken(causal, fault), dim=DIM, causal=True)


class Stateful(Mixer):
    """Not causal, yet gives a state."""

    def __init__(self) -> None:
        super().__init__()
        self.causal, self.linear = False, nn.Linear(DIM, DIM)

    def forward(self, x, mask, *, need_weights=False):
        return Mixed(self.linear(x), None)

    def initial_state(self, rows, capacity):
        return MixerState(torch.zeros(rows, dtype=torch.int64))

    def extend(self, x, state, lengths=None):
        return self.linear(x), MixerState(state.lengths_after(x.shape[1], lengths))


def test_states_check_refuses_a_state_without_causality():
    with pytest.raises(ConformanceError, match="not causal"):
        conformance.check_states(lambda causal: Stateful(), dim=DIM, causal=False)
