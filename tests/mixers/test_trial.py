"""A mixer of one's own that breaks the contract is found before training, and named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headway.core.errors import UserError
from headway.mixers import Mixed, Mixer, MixerState, State
from headway.mixers.conformance import try_own_mixers
from headway.models import build_model
from headway.models.transformer import TransformerConfig
from headway.tensors.linear import Linear

DIM = 8


class Keep(Mixer):
    """Every position keeps what it has; draws random numbers that nothing needs."""

    def __init__(self, dim: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.out = causal, Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Any:
        torch.rand(1)
        assert not self.training
        return Mixed(self.out(x), None)

    def initial_state(self, rows: int, capacity: int) -> Any:
        return MixerState(torch.zeros(rows, dtype=torch.int64))

    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Any:
        assert isinstance(state, MixerState)
        return self.out(x), MixerState(state.lengths_after(x.shape[1], lengths))


class TensorAlone(Keep):
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Any:
        return self.out(x)


class FirstPosition(Keep):
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Any:
        return Mixed(self.out(x)[:, :1], None)


class WeightsWithoutHeads(Keep):
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Any:
        return Mixed(self.out(x), x.new_zeros(x.shape[0], x.shape[1], x.shape[1]))


class WrongSize(Keep):
    def forward(self, x: Tensor, mask: Tensor | None, *, need_weights: bool = False) -> Any:
        return Mixed(self.out(x[..., :-1]), None)


class NoDecoding(Keep):
    def initial_state(self, rows: int, capacity: int) -> Any:
        raise NotImplementedError("no decoding")


class NoState(Keep):
    def initial_state(self, rows: int, capacity: int) -> Any:
        return torch.zeros(rows)


class ValuesAlone(Keep):
    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Any:
        return self.out(x)


class OneVector(Keep):
    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Any:
        return self.out(x)[:, 0], state


class OneLength(Keep):
    def extend(self, x: Tensor, state: State, lengths: Tensor | None = None) -> Any:
        return self.out(x), MixerState(torch.tensor(1))


def model_of(mixer: type[Mixer]) -> nn.Module:
    config = TransformerConfig.model_validate({"dim": DIM, "heads": 2, "feed_forward": 8})
    model = build_model(config, 8, 8, False)
    model.encoder[0].mixer, model.decoder[0].mixer = Keep(DIM, causal=False), mixer(DIM, causal=True)
    return model


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_mixer_that_keeps_the_contract_passes_and_leaves_no_trace(device: str) -> None:
    model = model_of(Keep).to(device)
    before = torch.random.get_rng_state()
    try_own_mixers(model, DIM)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    ("mixer", "message"),
    [
        (
            TensorAlone,
            "TensorAlone.forward gives something else than a mixer does; received 'Tensor'; allowed: headway",
        ),
        (FirstPosition, "gives values of another shape than a mixer does; received (2, 1, 8); allowed: (2, 3, 8)"),
        (
            WeightsWithoutHeads,
            "gives weights of another shape than a mixer does; received (2, 3, 3); allowed: (2, 3, 3, 3)",
        ),
        (WrongSize, "WrongSize.forward fails in "),
        (NoDecoding, "NoDecoding.initial_state fails in "),
        (NoState, "NoState.initial_state gives something else than a mixer does; received 'Tensor'"),
        (
            ValuesAlone,
            "ValuesAlone.extend gives something else than a mixer does; received 'Tensor'; allowed: (values, ",
        ),
        (OneVector, "gives values of another shape than a mixer does; received (2, 8); allowed: (2, 1, 8)"),
        (OneLength, "gives lengths of the state of another shape than a mixer does; received (); allowed: (2,)"),
    ],
)
def test_what_breaks_the_contract_is_named(mixer: type[Mixer], message: str) -> None:
    with pytest.raises(UserError) as error:
        try_own_mixers(model_of(mixer), DIM)
    assert str(error.value).startswith("model.decoder.1.mixer: ")
    assert message in str(error.value)


def test_the_line_that_fails_is_named() -> None:
    line = NoDecoding.initial_state.__code__.co_firstlineno + 1
    with pytest.raises(UserError, match=rf"test_trial\.py:{line}: NotImplementedError: no decoding"):
        try_own_mixers(model_of(NoDecoding), DIM)


def test_a_model_of_ones_own_uses_its_mixers_as_it_likes() -> None:
    try_own_mixers(nn.Sequential(TensorAlone(DIM, causal=False)), DIM)  # whose class is torch's


def test_training_finds_it_before_the_first_update(tmp_path, run_headway: Callable[..., Any]) -> None:
    (tmp_path / "data.tsv").write_text("a b\tb a\n" * 4, encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"data: {{train: {{tsv: {tmp_path}/data.tsv}}}}\nvocabulary: {{kind: whitespace}}\n"
        "model: {dim: 8, heads: 2, decoder: {layers: 1, mixer: 'tests.mixers.test_trial:NoDecoding'}}\n"
        "training: {updates: 2}\n",
        encoding="utf-8",
    )
    ended = run_headway("train", recipe, "--output", tmp_path / "run")
    assert (ended.code, "model.decoder.1.mixer: NoDecoding.initial_state fails" in ended.err) == (2, True)
