"""The decoder-only model equals its oracle; it packs both sides into one sequence; learned positions end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headway.core.errors import UserError
from headway.models.decoder_only import packing, take
from headway.search import beam
from headway.search.beam import beam_search
from headway.search.decoding_options import Ranking
from headway.search.limits import Limits
from headway.search.sampling import Sampling, sample
from headway.tensors.batch import Batch, collate
from tests import reference
from tests.models.toys import SOURCE_SIZE, TARGET_SIZE, batch
from tests.models.toys import decoder_only as model

NGRAM = {"kind": "ngram", "n": 3, "global_context": "prefix"}


def stack(position, mixer, **changes):
    return model(position=position, decoder={"layers": 2, "mixer": mixer}, **changes)


def shared_batch() -> Batch:
    given = batch()
    return replace(given, source=given.source.clamp(max=TARGET_SIZE - 1))


def rows_of(given: Batch):
    """Source and target input ids of each row, without padding."""
    for row in range(len(given.source)):
        yield given.source[row][given.source_mask[row]], given.target_input[row][given.target_mask[row]]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("position", "shared", "tied"), [("none", True, None), ("sinusoidal", False, "none")])
def test_equals_oracle_with_every_gradient(norm, position, shared, tied):
    built = model(norm=norm, position=position, shared=shared, tied=tied)
    given = shared_batch() if shared else batch()
    fast = built(given).logits[given.target_mask]
    slow = torch.cat([reference.decoder_only(built, each.tolist(), to.tolist()) for each, to in rows_of(given)])
    assert torch.allclose(fast, slow, atol=1e-10)
    upstream = torch.randn(fast.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights = dict(built.named_parameters())
    gradients = [torch.autograd.grad((each * upstream).sum(), list(weights.values())) for each in (fast, slow)]
    for name, one, other in zip(weights, *gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10), name


def test_packing_puts_each_target_behind_its_source():
    given = batch()
    lengths = given.source_mask.sum(1)
    index = packing(lengths, given.source.shape[1], given.target_input.shape[1])
    both = torch.cat([given.source, given.target_input], 1)
    packed = take(both[..., None].double(), index).squeeze(-1)
    for row, (source, target) in enumerate(rows_of(given)):
        assert packed[row, : len(source) + len(target)].tolist() == [*source.tolist(), *target.tolist()]


def test_the_loss_is_the_answers_alone():
    built, given = model(shared=True), shared_batch()
    logits = built(given).logits
    assert logits.shape == (*given.target_output.shape, TARGET_SIZE)
    spare = replace(given, target_mask=torch.zeros_like(given.target_mask))  # a row that only takes part in exchanges
    assert built(spare).logits.isfinite().all()


def search(built, given: Batch, **options):
    memory = built.encode(given.source, given.source_mask)
    limits = Limits(0, [6] * len(given.source))
    if "sampling" in options:
        return sample(built, memory, limits, lines=[1, 2, 3], **options)
    return beam_search(built, memory, limits, ranking=Ranking(0.6), **options)


def test_a_sample_scores_what_its_rescoring_says():
    built, given = model(seed=3), batch()
    sources = [source[:-1].numpy() for source, _ in rows_of(given)]
    for row, hypotheses in enumerate(search(built, given, sampling=Sampling(), count=2)):
        for hypothesis in hypotheses:
            again = collate([sources[row]], [np.array(hypothesis.ids, dtype=np.int64)])
            scores = built(again).logits.log_softmax(-1)[0].gather(1, again.target_output[0, :, None]).squeeze(1)
            # The scores of a search are kept in float32.
            assert torch.allclose(scores, torch.tensor(hypothesis.log_probabilities).double(), atol=1e-5)
            assert hypothesis.score == pytest.approx(float(scores.detach().sum()), abs=1e-4)


def test_outputs_do_not_depend_on_the_batch():
    built, given = model(seed=3), batch()
    together = search(built, given, beam=2)
    for row, (source, _) in enumerate(rows_of(given)):
        (alone,) = search(built, collate([source[:-1].numpy()], None), beam=2)
        assert [each.ids for each in alone] == [each.ids for each in together[row]]


def test_capture_gives_the_whole_sequence_and_the_part_that_reads_the_source():
    built, given = model(), batch()
    output = built(given, capture=("*",))
    assert set(output.attention) == {f"decoder.{layer}.{kind}" for layer in (1, 2) for kind in ("self", "cross")}
    assert set(built(given, capture=("*.2.self",)).attention) == {"decoder.2.self"}
    assert torch.equal(output.logits, built(given).logits)
    whole, read = output.attention["decoder.2.self"], output.attention["decoder.2.cross"]
    for row, (source, target) in enumerate(rows_of(given)):
        size, length = len(source), len(source) + len(target)
        assert torch.allclose(whole[row, :, :length].sum(-1), torch.ones(()).double())
        assert torch.equal(read[row, :, : len(target), :size], whole[row, :, size:length, :size])
        assert (read[row, :, :, size:] == 0).all()
    assert built.attention_axes("decoder.2.self") == ("both", "both")
    assert built.attention_axes("decoder.2.cross") == ("target", "source")
    assert not stack("none", NGRAM)(given, capture=("*",)).attention


def test_embeddings_are_shared_as_the_recipe_says():
    shared = model(shared=True)
    assert shared.source_tokens is shared.target_tokens
    assert shared.projection.weight is shared.target_tokens.weight
    apart = model()
    assert apart.source_tokens.weight.shape == (SOURCE_SIZE, 8)
    assert apart.projection.weight is apart.target_tokens.weight
    assert model(shared=True, tied="none").source_tokens.weight is not shared.target_tokens.weight
    with pytest.raises(UserError, match=r"model\.tied"):
        model(tied="all")


def test_learned_positions_are_those_of_the_whole_sequence():
    built = model(position="learned", max_position=14)
    assert (built.longest_source(), built.longest_target(5), built.longest_target(12)) == (12, 7, 0)
    assert model().longest_target(10_000) is None
    fits = collate([np.full(10, 5), np.full(2, 5)], [np.full(2, 5), np.full(10, 5)])  # no row is longer than 14
    assert built(fits).logits.shape[1] == 11
    with pytest.raises(UserError, match=r"model\.max_position"):
        built(collate([np.full(6, 5)], [np.full(7, 5)]))
    for order in ([0, 1], [1, 0]):  # rows of 12 and 13 positions, whichever comes last
        rows = [(np.full(9, 5), np.full(1, 5)), (np.full(3, 5), np.full(8, 5))]
        mixed = collate([rows[row][0] for row in order], [rows[row][1] for row in order])
        output = built(mixed, capture=["decoder.1.cross"])
        for index, row in enumerate(order):
            alone = built(collate([rows[row][0]], [rows[row][1]])).logits[0]
            assert torch.allclose(output.logits[index, : len(alone)], alone, atol=1e-12)
        assert output.attention["decoder.1.cross"].isfinite().all()
    source = collate([np.full(10, 5)], None)
    longest = built.longest_target(10)
    assert longest == 2
    memory = built.encode(source.source, source.source_mask)
    (hypotheses,) = beam_search(built, memory, Limits(longest, [longest]), beam=2)
    assert len(hypotheses[0].ids) == longest


def ids(outputs):
    """The ids of all hypotheses of each sentence."""
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in outputs]


@pytest.mark.parametrize("everywhere", [False, True])
def test_prompts_of_other_lengths_do_not_move_the_end_of_learned_positions(monkeypatch, everywhere):
    if everywhere:  # as on an accelerator, where rows that have ended are carried along
        monkeypatch.setattr(
            beam, "_rows_to_go", lambda finished, sentences, longest, time: torch.arange(len(sentences))
        )
    built = model(position="learned", max_position=14)
    sources = [np.full(11, 5), np.full(2, 6)]
    given = collate(sources, None)
    longest = [built.longest_target(len(source)) for source in sources]
    memory = built.encode(given.source, given.source_mask)
    found = [
        beam_search(built, memory, Limits(0, longest), beam=2),
        sample(built, memory, Limits(0, longest), sampling=Sampling(), lines=[1, 2], count=3),
    ]
    for row, each in enumerate(sources):
        one = collate([each], None)
        alone = built.encode(one.source, one.source_mask)
        limits = Limits(0, longest[row : row + 1])
        assert ids(beam_search(built, alone, limits, beam=2)) == ids(found[0][row : row + 1])
        drawn = sample(built, alone, limits, sampling=Sampling(), lines=[row + 1], count=3)
        assert ids(drawn) == ids(found[1][row : row + 1])


def test_relative_positions_without_attention_are_refused():
    with pytest.raises(UserError, match=r"model\.position: .*received 'model\.decoder\.mixer: ngram'"):
        stack("rotary", NGRAM)
