"""`bench.py decode`: beam search beside CTranslate2 and generate() of Hugging Face, with the same weights.

Shapes: B batch, S source, V vocabulary.
"""

import statistics
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rounds import (
    CPU,
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
    measured_on,
)
from torch import Tensor
from torch.nn import functional as F

from headway.core.device import keep_freed_memory, pick_device
from headway.core.errors import UserError
from headway.export.ctranslate2_export import ctranslate2_folder
from headway.models import Memory, Seq2Seq, State, TransformerConfig, build_model
from headway.processing.pretrained import transformers_quiet
from headway.search.beam import Searchable, beam_search
from headway.search.limits import NEVER, Hypothesis, Limits
from headway.search.recorded_model import RecordedModel, few, recorder
from headway.tasks.marian import to_marian
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, Batch, collate
from headway.tensors.linear import prepare, trial

BATCHES = 4  # different batches; the outputs of all of them are compared
SENTENCES = 4  # at least so many are decoded in a round
SHARPNESS = (
    4.0  # random weights give flat distributions, in which rounding would decide; these are as peaked as trained ones
)
COMPUTE_TYPES = {"float32": "float32", "bf16": "bfloat16", "int8": "int8"}  # as CTranslate2 names precisions
HUGGING_FACE = "Hugging Face float32"

Outputs = list[list[int]]


@dataclass(frozen=True)
class DecodeSetting:
    """Beam search to measure: sentences decoded at once, hypotheses of each, and tokens of every output, forced."""

    batch: int
    beam: int
    length: int

    def __str__(self) -> str:
        return f"{self.batch}, {self.beam}, {self.length}"


@dataclass(frozen=True)
class DecodeContender:
    """A contender's model.

    Attributes:
        outputs: the best output of each sentence of a batch, ids without the marks at either end, to be compared.
            CTranslate2 gives the probability of what may not come next to the other tokens, and looks at no end mark;
            so do all here.
        play: the work of a round, the step that the end mark takes included.
    """

    outputs: Callable[[Batch], Outputs]
    play: Callable[[Batch], object]


Build = Callable[[Size[TransformerConfig], Seq2Seq, DecodeSetting], DecodeContender]


def run_bench_decode(
    sizes: Sequence[str],
    batch_sizes: Sequence[int],
    rounds: int,
    output: Path | None = None,
    *,
    beams: Sequence[int] = (4,),
    lengths: Sequence[int] | None = None,
    precisions: Sequence[str] | None = None,
    device: torch.device = CPU,
    play: Callable[[str, str, Sequence[Contender], int], list[Measurement]] | None = None,
) -> BenchReport:
    """Measure beam search, with outputs of a fixed length, at each of `sizes` and each setting.

    headway in a precision is compared with CTranslate2 in the same precision, all others with CTranslate2 in float32;
    where CTranslate2 is not installed, with Hugging Face. On a GPU headway takes part a second time, with recorded
    steps.

    Args:
        sizes: names in `SIZES`.
        batch_sizes: sentences decoded at once.
        rounds: turns of each contender.
        output: where to write the report as JSON.
        beams: hypotheses of a sentence.
        lengths: tokens of an output; by default those of the size.
        precisions: float32, bf16, int8; by default all that this machine and the contenders have.
        device: where; CTranslate2 takes part on CPUs and CUDA devices, and int8 of headway on CPUs.
        play: lets contenders play at a size and a setting; by default they compete.

    Raises:
        UserError: an unknown size or precision, an output that cannot be written, or nothing to compare with.
        RunError: a contender failed.
    """
    check_choices("size", sizes, SIZES)
    check_choices("precision", precisions or (), COMPUTE_TYPES)
    check_output(output)
    builds, missing = _contenders(precisions, device)
    measurements: list[Measurement] = []
    notes = ["beam search, the encoder included; all outputs have the same number of tokens and an end mark", *missing]
    for size in sizes:
        for setting in _settings(batch_sizes, beams, lengths or [SIZES[size].forced]):
            contenders = [
                Contender(name, setup, (size, setting, build, str(device)), baseline)
                for name, baseline, build in builds
            ]
            played = (play or compete)(size, str(setting), contenders, rounds)
            notes += _compare(played)
            measurements += played
    report = BenchReport(
        f"decoding{measured_on(device)}, output tokens a second", "batch, beam, tokens", measurements, {}, notes
    )
    return report.write(output)


def _settings(batch_sizes: Sequence[int], beams: Sequence[int], lengths: Sequence[int]) -> Iterator[DecodeSetting]:
    for batch in batch_sizes:
        for beam in beams:
            for length in lengths:
                yield DecodeSetting(batch, beam, length)


def _contenders(
    precisions: Sequence[str] | None, device: torch.device
) -> tuple[list[tuple[str, str, Build]], list[str]]:
    """The contenders, each with the name of that which it is compared with, and a note on each that is missing.

    Raises:
        UserError: neither CTranslate2 nor transformers is installed.
    """
    ours = [name for name in COMPUTE_TYPES if _has(name, device) and (not precisions or name in precisions)]
    theirs, missing = list[str](), list[str]()
    if find_spec("ctranslate2") is None:
        missing.append("CTranslate2 is left out, since it is not installed: pip install 'headway[export]'")
    else:
        offered = _offered(device)
        theirs = [name for name, kind in COMPUTE_TYPES.items() if kind in offered and (not precisions or name in ours)]
        if not offered:
            missing.append(f"CTranslate2 is left out, since it has nothing for {device.type} here")
    hugging_face = find_spec("transformers") is not None
    if not hugging_face:
        missing.append("Hugging Face is left out, since it is not installed: pip install 'headway[pretrained]'")
    if not (theirs or hugging_face):
        what = "bench decode measures beside CTranslate2 and Hugging Face transformers, which are not installed"
        raise UserError(what, allowed="pip install 'headway[export,pretrained]'")
    names = {name: f"CTranslate2 {name}" for name in theirs}
    ground = names.get("float32") or next(iter(names.values()), HUGGING_FACE)
    builds: list[tuple[str, str, Build]] = [
        (f"headway {name}{', recorded' * again}", names.get(name, ground), partial(headway_decoder, name, again))
        for name in ours
        for again in ([False, True] if _records(device) else [False])
    ]
    builds += [(named, ground, partial(ctranslate2_decoder, name)) for name, named in names.items()]
    return builds + [(HUGGING_FACE, ground, marian_decoder)] * hugging_face, missing


def _offered(device: torch.device) -> Collection[str]:
    """The precisions that CTranslate2 has on a device, by its own names."""
    import ctranslate2

    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not ctranslate2.get_cuda_device_count()):
        return ()
    offered: set[str] = ctranslate2.get_supported_compute_types(device.type)
    return offered


def _records(device: torch.device) -> bool:
    """Whether steps can be recorded."""
    return device.type == "cuda"


def _has(precision: str, device: torch.device) -> bool:
    """Whether a precision takes part: on a CPU, where a large product is at least as quick as one in float32."""
    if device.type != "cpu":
        return precision != "int8"
    found, ground = trial(precision, 2048, 512), trial("float32", 2048, 512)
    return found is not None and ground is not None and found.seconds <= ground.seconds


def _compare(played: Sequence[Measurement]) -> list[str]:
    """The facts of contenders at one setting, and a note on the quickest of headway and of CTranslate2."""
    first, notes = played[0], list[str]()
    outputs = {measurement.contender: measurement.facts.pop("outputs") for measurement in played}
    for measurement in played:
        pairs = list(zip(outputs[measurement.contender], outputs[first.contender], strict=True))
        equal = sum(one == other for one, other in pairs)
        baseline = next(other for other in played if other.contender == measurement.baseline)
        pace = zip(measurement.cpu_seconds, baseline.cpu_seconds, strict=True)
        measurement.facts = {
            "equal_outputs": equal / len(pairs),
            "by_processor_time": statistics.median(theirs / ours for ours, theirs in pace),
        }
    fastest = [_fastest(played, name) for name in ("headway", "CTranslate2")]
    if fastest[0] and fastest[1]:
        ratios = fastest[0].ratios(fastest[1])
        notes.append(
            f"{first.size}, {first.setting}: the fastest of each, {fastest[0].contender} beside "
            f"{fastest[1].contender}: {statistics.median(ratios):.2f} times ({min(ratios):.2f} - {max(ratios):.2f})"
        )
    return notes


def _fastest(played: Sequence[Measurement], name: str) -> Measurement | None:
    chosen = [measurement for measurement in played if measurement.contender.startswith(name)]
    return max(chosen, key=lambda measurement: statistics.median(measurement.speeds), default=None)


def setup(name: str, setting: DecodeSetting, build: Build, device: str = "cpu") -> tuple[Play, dict[str, Any]]:
    """A contender that decodes the same batches of the same model as the others."""
    size, where = SIZES[name], torch.device(device)
    decoder = build(size, random_model(size).to(where), setting)
    batches = [batch.to(where) for batch in source_batches(size, setting.batch)]
    outputs = [output for batch in batches for output in decoder.outputs(batch)]
    for batch in batches:
        decoder.play(batch)  # which records what there is to record
    assert {len(output) for output in outputs} == {setting.length}
    repeats = max(1, SENTENCES // setting.batch)

    def play(number: int) -> int:
        for repeat in range(repeats):
            decoder.play(batches[(number * repeats + repeat) % BATCHES])
        return repeats * setting.batch * setting.length

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


def headway_decoder(
    precision: str, recorded: bool, size: Size[TransformerConfig], model: Seq2Seq, setting: DecodeSetting
) -> DecodeContender:
    """headway's encoder and beam search, with recorded steps or without."""
    where = pick_device(str(next(model.parameters()).device))
    keep_freed_memory()
    prepare(model, precision)
    record = recorder(where) if recorded else None
    plain, text = (each if record is None else RecordedModel(each, record) for each in (model, TextOnly(model)))

    def play(batch: Batch, searched: Searchable = plain) -> list[list[Hypothesis]]:
        limits, width = Limits(setting.length, [setting.length] * len(batch.source)), batch.source.shape[1]
        more = few(width) - width if recorded else 0
        with torch.inference_mode():
            memory = model.encode(F.pad(batch.source, (0, more), value=PAD), F.pad(batch.source_mask, (0, more)))
        return beam_search(searched, memory, limits, beam=setting.beam)

    def outputs(batch: Batch) -> Outputs:
        found = play(batch, text)
        best = [max(hypotheses, key=lambda one: sum(one.log_probabilities[:-1])) for hypotheses in found]
        return [list(hypothesis.ids) for hypothesis in best]

    return DecodeContender(outputs, play)


@dataclass(frozen=True)
class TextOnly:
    """A model that gives the probability of its marks to the other tokens."""

    model: Seq2Seq

    def start(self, memory: Memory, capacity: int) -> State:
        """The state before the first token."""
        return self.model.start(memory, capacity)

    def extend(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log probabilities (R, V) of the next token, and the new state."""
        scores, after = self.model.extend(tokens, state)
        text = scores.clone()
        text[:, : len(NEVER)] = -torch.inf
        text = text.log_softmax(1)
        text[:, EOS] = scores[:, EOS]  # which is forced in the end
        return text, after


def ctranslate2_decoder(
    precision: str, size: Size[TransformerConfig], model: Seq2Seq, setting: DecodeSetting
) -> DecodeContender:
    """CTranslate2 with the weights of `model`. It has no way to force the end, so that its rounds have one token more.

    Tokens are made of ids, and ids of tokens, within the rounds.
    """
    import ctranslate2

    tokens = [*SPECIALS, *map(str, range(len(SPECIALS), size.vocabulary))]
    ids = {token: id for id, token in enumerate(tokens)}
    with tempfile.TemporaryDirectory() as folder:
        device = next(model.parameters()).device
        ctranslate2_folder(model.cpu(), tokens, tokens, Path(folder) / "model")
        translator = ctranslate2.Translator(
            f"{folder}/model",
            device=device.type,
            device_index=device.index or 0,
            compute_type=COMPUTE_TYPES[precision],
            intra_threads=torch.get_num_threads(),
        )

    def decode(batch: Batch, length: int) -> Outputs:
        rows = zip(batch.source.tolist(), batch.source_mask.sum(1).tolist(), strict=True)
        found = translator.translate_batch(
            [[tokens[id] for id in row[: count - 1]] for row, count in rows],
            beam_size=setting.beam, num_hypotheses=setting.beam, length_penalty=0, max_batch_size=0,
            min_decoding_length=length, max_decoding_length=length,
            suppress_sequences=[[SPECIALS[PAD]], [SPECIALS[BOS]]],
        )  # fmt: skip
        return [[ids[token] for token in result.hypotheses[0]] for result in found]

    return DecodeContender(lambda batch: decode(batch, setting.length), lambda batch: decode(batch, setting.length + 1))


def marian_decoder(size: Size[TransformerConfig], model: Seq2Seq, setting: DecodeSetting) -> DecodeContender:
    """MarianMTModel with the weights of `model`, and its generate()."""
    from transformers import GenerationConfig

    marian = marian_model(size, model)
    config = partial(
        GenerationConfig,
        num_beams=setting.beam,
        early_stopping=True,
        min_new_tokens=setting.length,
        max_new_tokens=setting.length + 1,
        suppress_tokens=[PAD, BOS],
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        pad_token_id=PAD,
    )

    def decode(batch: Batch, config: GenerationConfig) -> Outputs:
        ids = marian.generate(batch.source, attention_mask=batch.source_mask.long(), generation_config=config)
        return [row[1 : 1 + setting.length] for row in ids.tolist()]

    compared, timed = config(renormalize_logits=True), config()
    return DecodeContender(lambda batch: decode(batch, compared), lambda batch: decode(batch, timed))


def marian_model(size: Size[TransformerConfig], model: Seq2Seq) -> Any:
    """A MarianMTModel that computes what `model`, a post-norm Transformer with one vocabulary for both sides, does."""
    options, hidden = size.model, size.model.feed_forward_options()["hidden"]
    with transformers_quiet() as transformers:
        config = transformers.MarianConfig(
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
            forced_eos_token_id=EOS,
        )
        marian = transformers.MarianMTModel(config).eval()
    missing, unexpected = marian.load_state_dict(to_marian(model.state_dict(), shared=True), strict=False)
    assert all("embed_positions" in name for name in missing)
    assert not unexpected
    return marian.to(next(model.parameters()).device)
