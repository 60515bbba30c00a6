"""Recorded steps give what steps give: a record repeats operations on fixed memory, and looks at no value."""

from contextlib import contextmanager
from unittest.mock import MagicMock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headway.core.errors import UserError
from headway.mixers.mixer import mapped
from headway.search import beam, recorded_model
from headway.search.beam import Ensemble, beam_search
from headway.search.decoding_options import Ranking
from headway.search.limits import Limits
from headway.search.recorded_model import MOST_RECORDS, RecordedModel, few
from headway.search.sampling import Sampling, sample
from headway.tensors.looking import GraphRecorder
from tests.models import test_decoder_only as decoder_only
from tests.models import toys
from tests.models.recurrent import toys as recurrent
from tests.search.test_beam import Table, memory
from tests.search.test_reference_search import assert_same
from tests.tiers import thinned


def tensors(value):
    found = []
    mapped(tuple(value), found.append, torch.Tensor)
    return found


class Tape(TorchDispatchMode):
    """What runs within it, operation by operation; as with a CUDA graph, no value may be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "a device would have been waited for"
        given = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, given))
        return given

    def play(self) -> None:
        for function, args, kwargs, kept in self.calls:
            new = function(*args, **kwargs)
            for one, other in zip(*map(tensors, ((kept,), (new,))), strict=True):
                if one.data_ptr() != other.data_ptr():  # no view
                    one.copy_(other)


@pytest.fixture
def tapes(monkeypatch):
    """What is recorded, as on an accelerator: nothing looks at lengths, and at what is done seldom."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(recorded_model, "ROOM", 4)
    looks = lambda time, device: time % 3 == 2  # noqa: E731
    monkeypatch.setattr(beam, "time_to_look", looks)
    monkeypatch.setattr("headway.search.sampling.time_to_look", looks)
    going = lambda finished, sentences, longest, time: beam.halved(  # noqa: E731
        ~finished.done[sentences] & (time < longest[sentences])
    )
    monkeypatch.setattr(beam, "_rows_to_go", going)
    return []


def recorder_into(tapes):
    def record(run):
        given = run.__self__.given
        before, tape = mapped(given, torch.clone, torch.Tensor), Tape()
        with tape:
            run()
        recorded_model._copy(given, before)  # a graph that is recorded has not run yet
        tapes.append(tape)
        return tape.play

    return record


CANON = {"layers": 2, "canon": "ABCD"}
MODELS = {
    "transformer": lambda: toys.model(seed=2),
    "additive": lambda: toys.model(seed=2, decoder={"layers": 2, "cross": "additive"}),
    "merged": lambda: toys.model(seed=2, decoder={"layers": 2, "cross": "merged"}),
    "canon": lambda: toys.model(seed=2, encoder=CANON, decoder=CANON),
    "rotary": lambda: toys.model(seed=2, position="rotary", value_residual=True),
    "t5": lambda: toys.model(seed=2, position="t5"),
    **{
        kind: lambda kind=kind: toys.model(seed=2, decoder={"layers": 2, "mixer": kind})
        for kind in ("ngram", "nplm", "lightconv", "local", "ssru", "delta", "linear")
    },
    "forgetting": lambda: toys.model(seed=2, decoder={"layers": 2, "mixer": {"kind": "attention", "forget": True}}),
    "decoder only": lambda: decoder_only.model(seed=2),
    "recurrent": lambda: recurrent.model(**recurrent.VARIANTS["monotonic, bahdanau"]),
    "ensemble": lambda: Ensemble([toys.model(seed=2), toys.model(seed=3)]),
}


@pytest.mark.parametrize("name", thinned(MODELS, 4))
@torch.inference_mode()
def test_recorded_steps_are_steps(name, tapes):
    model, batch, limits = MODELS[name](), toys.batch(), Limits(3, [14, 4, 9], (), 2)
    encoded = model.encode(batch.source, batch.source_mask)
    other = model.encode(batch.source.flip(0), batch.source_mask.flip(0))
    recorded = RecordedModel(model, recorder_into(tapes))
    for given in (encoded, other, encoded):
        found = beam_search(recorded, given, limits, beam=3, ranking=Ranking(0.6))
        assert_same(found, beam_search(model, given, limits, beam=3, ranking=Ranking(0.6)))  # sums over other rooms
    for seed in (1, 2):
        drawn = {"sampling": Sampling(seed=seed), "lines": (1, 2, 3), "count": 2}
        assert_same(sample(recorded, encoded, limits, **drawn), sample(model, encoded, limits, **drawn))
    assert len(tapes) >= 2
    assert len(recorded.records) <= MOST_RECORDS


def test_few_records_are_kept(tapes, monkeypatch):
    monkeypatch.setattr(recorded_model, "MOST_RECORDS", 2)
    test_recorded_steps_are_steps("ngram", tapes)


def test_a_state_that_grows_with_each_step_is_refused(tapes):
    recorded = RecordedModel(Table(2), recorder_into(tapes))
    with pytest.raises(UserError, match="state changes its size"):
        beam_search(recorded, memory(0, 1), Limits(4, [6, 6]), beam=2)


@pytest.mark.parametrize("make", [recorded_model.recorder, lambda device: GraphRecorder(device).record])
def test_a_step_is_recorded_on_its_device(make, monkeypatch):
    """On another one nothing would be recorded, and a replay would do nothing."""
    streams = []

    @contextmanager
    def graph(graph, *, stream, **options):
        streams.append(stream)
        yield

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", MagicMock)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    make(torch.device("cuda:1"))(lambda: None)
    assert streams == [torch.device("cuda:1")]


def test_few_sizes():
    assert [few(size) for size in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 17, 49, 64)] == [
        1, 2, 3, 4, 6, 6, 8, 12, 12, 16, 24, 64, 64,
    ]  # fmt: skip


@pytest.mark.parametrize("going", ["1111", "0110", "0010", "0000", "10000000000", "01010000001"])
def test_rows_are_halved_where_half_of_them_are_done(going):
    going = torch.tensor([digit == "1" for digit in going])
    rows = beam.halved(going)
    sizes = [0] if not going.any() else [len(going) // 2**power for power in range(8)]
    assert len(rows) in sizes
    assert not len(rows) or len(rows) < 2 * going.sum() or len(rows) == 1
    assert set(going.nonzero().flatten().tolist()) <= set(rows.tolist())
    assert len(set(rows.tolist())) == len(rows)
    assert len(rows) < len(going) or rows.equal(torch.arange(len(going)))
