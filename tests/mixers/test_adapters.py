"""A layer that is called as those of flash-linear-attention are, as a mixer."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headway.core.errors import UserError
from headway.mixers import Mixer, build_mixer, conformance
from headway.mixers.conformance import CHECKS, ConformanceError
from tests.conftest import Command
from tests.tiers import thinned

DIM = 6
ADAPTER, HERE = "headway.mixers.adapters:FlashLinearAttention", "tests.mixers.test_adapters"


class GatedLayer(nn.Module):
    """S_t = g_t S_{t-1} + k_t v_t^T and o_t = q_t S_t, after a short convolution whose cache is written in place."""

    def __init__(self, hidden_size: int, num_heads: int = 2, conv_size: int = 3, layer_idx: int | None = None) -> None:
        super().__init__()
        assert hidden_size % num_heads == 0, f"{num_heads} heads do not divide {hidden_size}"
        self.heads, self.width, self.layer_idx = num_heads, conv_size, layer_idx
        self.conv = nn.Conv1d(hidden_size, hidden_size, conv_size, groups=hidden_size)
        self.maps, self.gate = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, num_heads)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, Any]:
        rows, length, dim = hidden_states.shape
        mask = hidden_states.new_ones(rows, length) if attention_mask is None else attention_mask.to(hidden_states)
        last = None
        if past_key_values is not None and len(past_key_values) > self.layer_idx:
            last = past_key_values[self.layer_idx]
        before = hidden_states.new_zeros(rows, dim, self.width - 1) if last is None else last["conv_state"][0]
        window = torch.cat([before, (hidden_states * mask[..., None]).transpose(1, 2)], 2)
        if last is not None:
            before.copy_(window[..., window.shape[2] - self.width + 1 :])  # the cache is written in place
        else:
            before = window[..., window.shape[2] - self.width + 1 :].clone()
        short = F.silu(self.conv(window)).transpose(1, 2)
        query, key, value = self.maps(short).view(rows, length, 3, self.heads, -1).unbind(2)
        gate = torch.where(mask[..., None] > 0, self.gate(short).sigmoid(), 1)
        value = value * mask[..., None, None]
        memory = query.new_zeros(rows, self.heads, key.shape[3], value.shape[3])
        if last is not None:
            memory = last["recurrent_state"]
        outputs = []
        for t in range(length):
            memory = gate[:, t, :, None, None] * memory + key[:, t, :, :, None] * value[:, t, :, None]
            outputs.append((query[:, t, :, None] @ memory).flatten(1))
        if past_key_values is not None:
            past_key_values.update(
                recurrent_state=memory, conv_state=(before,), layer_idx=self.layer_idx, offset=length
            )
        return self.out(torch.stack(outputs, 1)), None, past_key_values


class LosesItsConvolution(GatedLayer):
    """A layer that forgets its short convolution's cache where more than one token is read."""

    def forward(self, hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None, Any]:
        cache = named.get("past_key_values")
        if cache is not None and len(cache) and hidden_states.shape[1] > 1:
            cache[0]["conv_state"][0].zero_()
        return super().forward(hidden_states, *given, **named)


class Stateless(GatedLayer):
    """A layer that takes a cache and leaves it as it is."""

    def forward(self, hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None, Any]:
        return super().forward(hidden_states)


class KeepsKeys(GatedLayer):
    """A layer with softmax attention's cache."""

    def forward(self, hidden_states: Tensor, *given: Any, **named: Any) -> tuple[Tensor, Tensor | None, Any]:
        if named.get("past_key_values") is not None:
            named["past_key_values"].update(attn_state=(hidden_states, hidden_states), layer_idx=0, offset=1)
        return super().forward(hidden_states)


def adapted(name: str, **options: Any) -> conformance.Build:
    def build(causal: bool) -> Mixer:
        return build_mixer(ADAPTER, DIM, causal, layer=f"{HERE}:{name}", options=options)

    return build


@pytest.mark.parametrize("check", thinned(CHECKS, 4), ids=lambda check: check.__name__)
def test_an_adapted_layer_keeps_the_contract(check: conformance.Check) -> None:
    check(adapted("GatedLayer"), dim=DIM, causal=True)


def test_the_checks_find_a_fault_of_the_layer() -> None:
    with pytest.raises(ConformanceError, match="the values differ from the whole"):
        conformance.check_extend(adapted("LosesItsConvolution"), dim=DIM, causal=True)


def test_decoding_leaves_a_state_as_it_is() -> None:
    mixer, x = adapted("GatedLayer")(True), torch.randn(3, 4, DIM)
    _, state = mixer.extend(x, mixer.initial_state(3, 8))
    before = state.conv_state[0].clone(), state.recurrent_state.clone()
    mixer.extend(x + 1, state)
    mixer.extend(x + 1, state, torch.tensor([2, 0, 4]))
    assert torch.equal(state.conv_state[0], before[0])
    assert torch.equal(state.recurrent_state, before[1])


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        ("GatedLayer", {"num_heads": 4}, r"refuses its options \(4 heads do not divide 6"),
        ("GatedLayer", {"heads": 4}, "unexpected keyword argument 'heads'"),
        ("build", {}, "has no attribute 'build'"),
        ("DIM", {}, "this is not a subclass of torch.nn.Module"),
    ],
)
def test_mistakes(layer: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        adapted(layer, **options)(True)


def test_both_directions_are_refused() -> None:
    with pytest.raises(UserError, match="look backwards alone"):
        adapted("GatedLayer")(False)


@pytest.mark.parametrize(("layer", "message"), [("Stateless", "keeps nothing"), ("KeepsKeys", "of constant size")])
def test_layers_that_cannot_decode(layer: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapted(layer)(True).initial_state(2, 3)


@pytest.mark.slow
def test_a_recipe_names_it_in_a_line(tmp_path, run_headway: Command) -> None:
    (tmp_path / "data.tsv").write_text("a b\tb a\n" * 4, encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"data: {{train: {{tsv: {tmp_path}/data.tsv}}}}\nvocabulary: {{kind: whitespace}}\n"
        "model: {dim: 8, heads: 2, encoder: {layers: 1}, decoder: {layers: 1, "
        f'mixer: {{kind: "{ADAPTER}", layer: "{HERE}:GatedLayer"}}}}}}\n'
        "training: {updates: 2}\n",
        encoding="utf-8",
    )
    assert run_headway("train", recipe, "--output", tmp_path / "run").code == 0
    refused = run_headway("predict", tmp_path / "run", stdin="a b\n")
    assert refused.code == 2
    assert re.search(rf"would import the mixer {ADAPTER}.*--allow-code", refused.err)
    assert run_headway("predict", tmp_path / "run", "--allow-code", stdin="a b\n").code == 0
