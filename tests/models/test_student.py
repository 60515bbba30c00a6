"""The model that translation engines in browsers compute equals its equations, written step by step."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from headway.models import PRESETS, build_model, model_section
from headway.search.beam import beam_search
from headway.search.limits import Limits
from headway.tensors.batch import BOS, EOS, collate
from tests import reference
from tests.models import toys

SIZE, DIM, HEADS = 9, 8, 2
SMALL = {"dim": DIM, "feed_forward": 10, "heads": HEADS, "dropout": 0.0, "encoder": {"layers": 2}}


def student(seed: int = 1):
    torch.manual_seed(seed)
    model = build_model({"preset": "student"} | SMALL, SIZE, SIZE, True).double().eval()
    torch.nn.init.normal_(model.projection.bias, std=0.3)
    return toys.drawn(model)


def place(t: int) -> Tensor:
    """sin(t * 1e-4^((c mod T) / (T - 1)) + (c div T) * pi / 2), T = D / 2."""
    half = DIM // 2
    angles = [t * 1e-4 ** ((c % half) / (half - 1)) + (c // half) * math.pi / 2 for c in range(DIM)]
    return torch.tensor([math.sin(angle) for angle in angles], dtype=torch.float32).double()


def embedded(model, id: int, t: int) -> Tensor:
    return model.projection.weight[id] * math.sqrt(DIM) + place(t)


def attended(queries: list[Tensor], memory: list[Tensor], projections, out) -> list[Tensor]:
    seen = [[True] * len(memory) for _ in queries]
    means, _ = reference.attention_rows(queries, memory, projections, seen, HEADS)
    return [reference.linear(out.weight, out.bias, mean) for mean in means]


def fed(block, x: Tensor) -> Tensor:
    return reference.layer_norm(block.feed_forward_residual.norm, x + reference.feed_forward(block.feed_forward, x))


def encoded(model, source: list[int]) -> list[Tensor]:
    vectors = [embedded(model, id, t) for t, id in enumerate(source)]
    for block in model.encoder:
        projections = reference.parts_of(block.mixer.in_projection, HEADS, (DIM // HEADS,) * 3)
        mixed = attended(vectors, vectors, projections, block.mixer.out_projection)
        vectors = [
            fed(block, reference.layer_norm(block.mixer_residual.norm, x + y))
            for x, y in zip(vectors, mixed, strict=True)
        ]
    return vectors


def stepped(model, source: list[int], target: list[int]) -> Tensor:
    """Logits (T, V) before each of the tokens y1 .. yT of a pair, one step after the other."""
    memory, logits = encoded(model, source), []
    cells = [torch.zeros(DIM, dtype=torch.float64) for _ in model.decoder]
    for t in range(len(target)):
        x = place(0) if t == 0 else embedded(model, target[t - 1], t)
        for number, block in enumerate(model.decoder):
            values, forget = block.mixer.in_projection.weight[:DIM], block.mixer.in_projection.weight[DIM:]
            gate = 1 / (1 + (-(forget @ x + block.mixer.bias)).exp())
            cells[number] = gate * cells[number] + (1 - gate) * (values @ x)
            x = reference.layer_norm(block.mixer_residual.norm, x + cells[number].clamp(min=0))
            query = (block.cross.query_projection.weight, block.cross.query_projection.bias)
            projections = [query, *reference.parts_of(block.cross.memory_projection, HEADS, (DIM // HEADS,) * 2)]
            (read,) = attended([x], memory, projections, block.cross.out_projection)
            x = fed(block, reference.layer_norm(block.cross_residual.norm, x + read))
        logits.append(model.projection.weight @ x + model.projection.bias)
    return torch.stack(logits)


def rows(batch):
    """Source with its end mark, and target with its own, of each pair."""
    pairs = zip(batch.source, batch.source_mask, batch.target_output, batch.target_mask, strict=True)
    return [(source[real].tolist(), target[written].tolist()) for source, real, target, written in pairs]


def pairs():
    random = np.random.default_rng(1)
    ids = [[random.integers(4, SIZE, length) for length in lengths] for lengths in ((5, 3, 6), (4, 6, 1))]
    return collate(*ids)


def test_equals_the_equations_with_every_gradient():
    model, batch = student(), pairs()
    fast = model(batch).logits[batch.target_mask]
    slow = torch.cat([stepped(model, *pair) for pair in rows(batch)])
    torch.testing.assert_close(fast, slow, atol=1e-10, rtol=0)
    upstream = torch.randn(fast.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parameters = dict(model.named_parameters())
    gradients = [torch.autograd.grad((each * upstream).sum(), list(parameters.values())) for each in (fast, slow)]
    for name, one, other in zip(parameters, *gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=name)


def test_greedy_search_takes_the_best_token_of_each_step():
    model, batch = student(seed=2), pairs()
    found = beam_search(model, model.encode(batch.source, batch.source_mask), Limits(0, [6, 6, 6]), beam=1)
    for (source, _), ((best, *_), *_) in zip(rows(batch), [[each] for each in found], strict=True):
        written: list[int] = []
        while len(written) < 6:
            scores = stepped(model, source, [*written, EOS])[-1]
            scores[[0, BOS]] = -torch.inf
            if (token := int(scores.argmax())) == EOS:
                break
            written.append(token)
        assert list(best.ids) == written


def test_the_first_input_does_not_read_the_begin_mark():
    untied = {"tied": "target", "output_bias": False}
    model, batch = toys.model(first_input="zero", **untied), toys.batch()
    before = model(batch).logits
    with torch.no_grad():
        model.target_embedding.tokens.weight[BOS] = torch.nan
    after = model(batch).logits
    others = [id for id in range(toys.TARGET_SIZE) if id != BOS]
    assert torch.equal(after[..., others], before[..., others])
    start = model.start(model.encode(batch.source, batch.source_mask), 3)
    state = model.extend(torch.full((3, 1), BOS), start)[1]
    for layer in state.layers:
        assert layer.keys.isfinite().all()


@pytest.mark.parametrize(
    ("name", "shape", "millions"),
    [
        ("firefox-tiny", (256, 1536, 6, 2), (10.7, 12.7, 16.8)),
        ("firefox-base-memory", (384, 1536, 6, 4), (21.9, 25.0, 31.2)),
        ("firefox-base", (512, 2048, 6, 2), (30.3, 34.4, 42.6)),
    ],
)
def test_the_sizes_of_mozilla(name, shape, millions):
    """The matrices, of which an engine stores each weight in a byte, with vocabularies of 8,000, 16,000 and 32,000."""
    section = model_section(name)
    layers = section.encoder.layers, section.decoder.layers
    assert (section.dim, section.feed_forward, *layers, section.heads) == (*shape, 8)
    for size, expected in zip((8_000, 16_000, 32_000), millions, strict=True):
        with torch.device("meta"):
            shared, split = build_model(name, size, size, True), build_model(name, size, size, False)
        weights = [sum(each.numel() for each in model.parameters() if each.dim() > 1) for model in (shared, split)]
        assert weights[0] / 1e6 == pytest.approx(expected, abs=0.06)
        assert weights[1] - weights[0] == size * section.dim


@pytest.mark.parametrize(("name", "layers", "dim"), [("student", 6, 384), ("student-tiny", 2, 256)])
def test_presets(name, layers, dim):
    section = model_section(name)
    assert (section.dim, section.feed_forward, section.heads) == (dim, 4 * dim, 8)
    assert (section.encoder.layers, section.decoder.layers) == (layers, 2)
    assert model_section({"preset": name, "decoder": {"layers": 1}}).decoder.mixer == {"kind": "ssru"}
    assert PRESETS[name]["first_input"] == "zero"
