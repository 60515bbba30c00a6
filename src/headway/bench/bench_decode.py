"""`headway bench decode`: headway's beam search beside generate() of Hugging Face, with the same weights.

Shapes: B batch, S source, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.bench.timing import (
    SIZES,
    BenchReport,
    Contender,
    Measurement,
    Play,
    Size,
    SyntheticCorpus,
    check_choices,
    check_output,
    compete,
)
from headway.device import keep_freed_memory
from headway.errors import UserError
from headway.mixers.positions import sinusoids
from headway.models import Seq2Seq, TransformerConfig, build_model
from headway.search.beam import beam_search
from headway.search.limits import Limits
from headway.tensors.batch import BOS, EOS, PAD, Batch, collate

BEAM = 4
BATCHES = 4  # different batches; the outputs of all of them are compared
SENTENCES = 4  # at least so many are decoded in a round
SHARPNESS = (
    4.0  # random weights give flat distributions, in which rounding would decide; these are as peaked as trained ones
)

# Decodes a batch to ids without the marks at either end, one list a sentence.
Decode = Callable[[Batch], list[list[int]]]


def run_bench_decode(
    sizes: Sequence[str], batch_sizes: Sequence[int], rounds: int, output: Path | None = None
) -> BenchReport:
    """Measure beam search, with outputs of a fixed length, at each of `sizes` and each of `batch_sizes`.

    Args:
        sizes: names in `SIZES`.
        batch_sizes: sentences decoded at once.
        rounds: turns of each contender.
        output: where to write the report as JSON.

    Raises:
        UserError: an unknown size, an output that cannot be written, or transformers is not installed.
        RunError: a contender failed.
    """
    check_choices("size", sizes, SIZES)
    check_output(output)
    if find_spec("transformers") is None:
        raise UserError(
            "bench decode measures beside Hugging Face transformers, which is not installed",
            allowed="pip install 'headway[pretrained]'",
        )
    measurements: list[Measurement] = []
    notes = [
        f"beam {BEAM}, outputs of {SIZES[size].forced} tokens ({size}), forced; the encoder included" for size in sizes
    ]
    for size in sizes:
        for batch in batch_sizes:
            contenders = [
                Contender("headway", setup, (size, batch, headway_decoder)),
                Contender("Hugging Face", setup, (size, batch, marian_decoder)),
            ]
            played = compete(size, str(batch), contenders, rounds)
            notes.append(_compare(played))
            measurements += played
    return BenchReport("decoding, output tokens a second", "batch", measurements, {}, notes).write(output)


def _compare(measurements: Sequence[Measurement]) -> str:
    ours, theirs = (measurement.facts["outputs"] for measurement in measurements)
    equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
    for measurement in measurements:
        measurement.facts = {"equal_outputs": equal, "outputs": len(ours)}
    first = measurements[0]
    return f"{first.size}, batch {first.setting}: {equal} of {len(ours)} outputs equal those of the baseline"


def setup(
    name: str, batch_size: int, decoder: Callable[[Size[TransformerConfig], Seq2Seq], Decode]
) -> tuple[Play, dict[str, Any]]:
    """A contender that decodes the same batches of the same model as the others."""
    size = SIZES[name]
    decode = decoder(size, random_model(size))
    batches = source_batches(size, batch_size)
    outputs = [output for batch in batches for output in decode(batch)]
    repeats = max(1, SENTENCES // batch_size)

    def play(number: int) -> int:
        played = [decode(batches[(number * repeats + repeat) % BATCHES]) for repeat in range(repeats)]
        return sum(len(output) for batch in played for output in batch)

    return play, {"outputs": outputs}


def random_model(size: Size[TransformerConfig]) -> Seq2Seq:
    """The model whose weights all contenders share."""
    torch.manual_seed(1)
    model = build_model(size.model, size.vocabulary, size.vocabulary, shared=True).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("tokens.weight"):
                parameter.mul_(SHARPNESS)
    return model


def source_batches(size: Size[TransformerConfig], batch_size: int) -> list[Batch]:
    """Batches of sentences of 25 to 30 tokens, lengths mixed."""
    corpus = SyntheticCorpus(size.vocabulary, 20 * BATCHES * batch_size + 100)
    fitting = np.flatnonzero((corpus.source_lengths >= 25) & (corpus.source_lengths <= 30))[: BATCHES * batch_size]
    return [
        collate([corpus.source(int(index)) for index in indices], None)
        for indices in fitting.reshape(BATCHES, batch_size)
    ]


def headway_decoder(size: Size[TransformerConfig], model: Seq2Seq) -> Decode:
    """headway's encoder and beam search."""
    keep_freed_memory()

    def decode(batch: Batch) -> list[list[int]]:
        limits = Limits(size.forced, [size.forced] * len(batch.source))
        with torch.inference_mode():
            memory = model.encode(batch.source, batch.source_mask)
        return [list(best[0].ids) for best in beam_search(model, memory, limits, beam=BEAM)]

    return decode


@dataclass(frozen=True)
class EndAt:
    """A logits processor after whose `length` tokens an output must end, with the probability that the end has.

    That of transformers (`forced_eos_token_id`) takes it for one, so that other outputs would win.
    """

    length: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (B, V) for what comes after ids (B, BOS and the tokens so far)."""
        if ids.shape[1] <= self.length:
            return scores
        ended = torch.full_like(scores, -torch.inf)
        ended[:, EOS] = scores[:, EOS]
        return ended


def marian_decoder(size: Size[TransformerConfig], model: Seq2Seq) -> Decode:
    """MarianMTModel with the weights of `model`, and its generate()."""
    from transformers import GenerationConfig, LogitsProcessorList

    marian = marian_model(size, model)
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        num_beams=BEAM,
        early_stopping=True,
        min_new_tokens=size.forced,
        max_new_tokens=size.forced + 1,
        suppress_tokens=[PAD, BOS],
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )

    def decode(batch: Batch) -> list[list[int]]:
        ids = marian.generate(
            batch.source,
            attention_mask=batch.source_mask.long(),
            generation_config=config,
            logits_processor=LogitsProcessorList([EndAt(size.forced)]),
        )
        return [row[1 : 1 + size.forced] for row in ids.tolist()]

    return decode


def marian_model(size: Size[TransformerConfig], model: Seq2Seq) -> Any:
    """A MarianMTModel that computes what `model`, a post-norm Transformer with one vocabulary for both sides, does."""
    from transformers import MarianConfig, MarianMTModel

    options, hidden = size.model, size.model.feed_forward_options()["hidden"]
    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=options.dim,
        encoder_layers=options.encoder.layers,
        decoder_layers=options.decoder.layers,
        encoder_attention_heads=options.heads,
        decoder_attention_heads=options.heads,
        encoder_ffn_dim=hidden,
        decoder_ffn_dim=hidden,
        activation_function=options.activation,
        max_position_embeddings=options.max_position,
        scale_embedding=True,
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        forced_eos_token_id=None,
    )
    marian = MarianMTModel(config).eval()  # type: ignore[no-untyped-call]
    marian.load_state_dict(marian_weights(model.state_dict(), options.max_position))
    return marian


def marian_weights(weights: dict[str, Tensor], positions: int) -> dict[str, Tensor]:
    """headway's weights under the names that MarianMTModel has for them."""
    tokens = weights["source_embedding.tokens.weight"]
    carried = {
        "final_logits_bias": tokens.new_zeros(1, len(tokens)),
        "lm_head.weight": tokens,
        "model.shared.weight": tokens,
    }
    for side in ("encoder", "decoder"):
        carried[f"model.{side}.embed_tokens.weight"] = tokens
        carried[f"model.{side}.embed_positions.weight"] = sinusoids(positions, tokens.shape[1])
    for name, value in weights.items():
        side, _, rest = name.partition(".")
        if side in ("encoder", "decoder"):
            number, _, part = rest.partition(".")
            module, _, kind = part.rpartition(".")
            names = MARIAN_NAMES[module]
            for theirs, chunk in zip(names, value.chunk(len(names)), strict=True):
                carried[f"model.{side}.layers.{number}.{theirs}.{kind}"] = chunk
    return carried


# For each part of a layer, what its rows are called in Marian, from the first to the last.
MARIAN_NAMES = {
    "mixer.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mixer.out_projection": ("self_attn.out_proj",),
    "mixer_residual.norm": ("self_attn_layer_norm",),
    "cross.query_projection": ("encoder_attn.q_proj",),
    "cross.memory_projection": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out_projection": ("encoder_attn.out_proj",),
    "cross_residual.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.norm": ("final_layer_norm",),
}
