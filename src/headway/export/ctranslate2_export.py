"""Runs for CTranslate2, an engine in C++ for CPUs and GPUs, which decodes without torch.

A folder is equal to the output of CTranslate2's own converters: the weights, the vocabularies, and the names of special
tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headway.core.errors import UserError, option
from headway.core.files import write_text
from headway.core.log import progress
from headway.core.processes import batched
from headway.core.storage import keep_folder
from headway.export.export_options import CTranslate2Options
from headway.export.exporter import (
    Answer,
    Answering,
    Exporter,
    Search,
    sentencepiece_fault,
    text_processors,
    tokens_of,
    write_tokenizers,
)
from headway.export.exporting import prepare_export
from headway.export.parity import predictor_of
from headway.formats.lines import line_place
from headway.formats.pairs import open_source
from headway.mixers.attention import Attention
from headway.mixers.positions import Learned, NoPosition
from headway.mixers.relative import RelativePosition, Rotary
from headway.models.block import Block, Residual
from headway.models.components import (
    GeluFeedForward,
    LayerNorm,
    ReluFeedForward,
    RmsNorm,
    SwigluFeedForward,
    SwishFeedForward,
)
from headway.models.cross_attention import MultiHeadCross
from headway.models.embeddings import Embedding
from headway.models.transformer import Transformer
from headway.predictors.backend import Backend, SearchRequest
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.predictor import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import build_aligner
from headway.processing.text.text_processor import TextProcessor
from headway.runs.engines import Engine
from headway.search.decoding_options import UNPENALIZED, Ranking
from headway.search.limits import Hypothesis, Limits
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, UNKNOWN

TYPES = {"float32": None, "bf16": "bfloat16", "int8": "int8"}
BATCH = 32
ALIGNED = 20_000  # the most training pairs that are aligned for a vocabulary map
FREQUENT = 100  # the number of frequent target tokens that every map includes

USAGE = """```python
import ctranslate2
from sentencepiece import SentencePieceProcessor

source, target = (SentencePieceProcessor(model_file=f"FOLDER/{name}.spm") for name in ("source", "target"))
translator = ctranslate2.Translator("FOLDER")
(result,) = translator.translate_batch([source.encode("...", out_type=str)], beam_size=4)
print(target.decode(result.hypotheses[0]))
```"""
WITHOUT_SENTENCEPIECE = """`ctranslate2.Translator("FOLDER").translate_batch` takes tokens. They are made and read by
`headway.processing.text.text_processor.load_processors("FOLDER/vocabulary")`."""
VOCABULARY_MAP = "vmap.txt"  # CTranslate2's file name
Tokens = list[str]
Module = TypeVar("Module", bound=nn.Module)
POSITIONS = 4096  # position vectors to write if any length is possible; outputs are at most this long
ACTIVATIONS: dict[type[nn.Module], str] = {
    ReluFeedForward: "RELU", GeluFeedForward: "GELU", SwishFeedForward: "SWISH", SwigluFeedForward: "SWISH"
}  # fmt: skip


class CTranslate2Exporter(Exporter):
    """A folder for `ctranslate2.Translator`, with the run's tokenizers beside the model."""

    Config: ClassVar = CTranslate2Options
    name = "ctranslate2"
    packages: ClassVar[tuple[str, ...]] = ("ctranslate2",)
    config: CTranslate2Options

    @property
    def exact(self) -> bool:
        return self.config.quantization == "float32" and self.config.vocabulary_map is None

    def refusal(self, run: Run) -> str | None:
        for processor in (run.source, run.target):
            if not isinstance(processor, TextProcessor):
                return "CTranslate2 translates text"
            tokens = processor.tokens(range(processor.size))
            if len(set(tokens)) < len(tokens):
                return "CTranslate2 knows tokens by their names, and two tokens of this vocabulary have one name"
        return ctranslate2_refusal(run.model)

    def write(self, run: Run, folder: Path) -> None:
        self.write_model(run, folder)
        write_tokenizers(run, folder)
        if self.config.vocabulary_map is not None:
            write_text(folder / VOCABULARY_MAP, vocabulary_map(run, self.config.vocabulary_map))

    def write_model(self, run: Run, folder: Path) -> None:
        """Write the files that the library reads, without tokenizers, into a new folder."""
        source, target = text_processors(run)
        quantization = TYPES[self.config.quantization]
        ctranslate2_folder(run.model, tokens_of(source), tokens_of(target), folder, quantization=quantization)

    def open(self, folder: Path, run: Run) -> Answering:
        source, target = text_processors(run)
        return answering_by_ctranslate2(folder, source, target, run)

    def usage(self, run: Run) -> str:
        plain = all(sentencepiece_fault(processor) is None for processor in (run.source, run.target))
        mapped = "\n\nWith `use_vmap=True` the vocabulary map is used." if self.config.vocabulary_map else ""
        return (USAGE if plain else WITHOUT_SENTENCEPIECE) + mapped

    def form(self, run: Run) -> str:
        return "a folder for ctranslate2.Translator"


def answering_by_ctranslate2(folder: Path, source: TextProcessor, target: TextProcessor, run: Run) -> Answering:
    """A function that decodes lines with a CTranslate2 folder."""
    engine = CTranslate2Search(folder, tokens_of(source), tokens_of(target))

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        found: list[list[Hypothesis]] = []
        for some in batched((source.encode(line, run.recipe.data.truncation()).values for line in lines), BATCH):
            limits = Limits(0, [search.longest] * len(some))
            found += engine.search(some, limits, beam=search.beam, ranking=UNPENALIZED, count=search.beam)
        return [
            [Answer(tuple(target.tokens(each.ids)), each.score, target.decode(each.ids), each.ids) for each in outputs]
            for outputs in found
        ]

    return answer


def vocabulary_map(run: Run, count: int) -> str:
    """The `count` target tokens that are most often aligned with each source token, in CTranslate2's format.

    Training pairs are aligned by the run's attention: each target token with the source token of the largest weight.
    The first line has the most frequent target tokens, for all sources.

    Raises:
        UserError: the model has no attention to its source.
    """
    predictor = predictor_of(run)
    assert isinstance(predictor, SequencePredictor)
    source, target = text_processors(run)
    layer = build_aligner(predictor).layer
    links: dict[int, Counter[int]] = {}
    frequencies: Counter[int] = Counter()
    for read, written, weights in _attended(run, predictor, layer):
        frequencies.update(written)
        for position, looked in enumerate(weights[: len(written), : len(read)].argmax(1) if read else []):
            links.setdefault(read[looked], Counter())[written[position]] += 1
    always = [*range(len(SPECIALS)), *(id for id, _ in frequencies.most_common(FREQUENT) if id >= len(SPECIALS))]
    rows = ["\t" + " ".join(target.tokens(always))]
    for id, aligned in sorted(links.items()):
        best = target.tokens([each for each, _ in aligned.most_common(count)])
        rows.append(f"{source.tokens([id])[0]}\t{' '.join(best)}")
    return "".join(f"{row}\n" for row in rows)


def _attended(run: Run, predictor: SequencePredictor, layer: str) -> Iterator[tuple[list[int], list[int], Any]]:
    """Source ids, target ids and attention (T, S) of the training pairs that the model can read."""
    corpus = open_source(run.recipe.data.train, "data.train", run.recipe.data.broken)
    texts = ((pair.source, pair.target) for pair in corpus)
    pairs = islice((each for each in texts if all(map(str.strip, each)) and predictor.can_read(*each)), ALIGNED)
    with progress("aligning training pairs", ALIGNED, "pairs") as line:
        done = 0
        for some in batched(pairs, predictor.window((layer,))):
            sources, targets = ([*texts] for texts in zip(*some, strict=True))
            with accounted(InputAccount()):
                forced = predictor.force(sources, targets, capture=(layer,))
            for (read, written), prediction in zip(some, forced, strict=True):
                weights = np.asarray(prediction.attention[layer]).mean(0)
                yield list(predictor.read(read).values), list(run.target.encode(written).values), weights
            done += len(some)
            line.update(done)


class CTranslate2Search:
    """A loaded model in CTranslate2's format.

    Its beam search differs from headway's only in when it stops. Both return the best of all finished hypotheses. With
    a full beam of finished hypotheses, CTranslate2 stops once the best hypothesis of a step was finished; it applies
    the length penalty afterwards. headway stops once no active hypothesis can be better with the penalty. Tokens of
    both sides are in the order of their ids.
    """

    def __init__(self, folder: Path, source: Sequence[str], target: Sequence[str]) -> None:
        from ctranslate2 import Translator

        self._translator = Translator(str(folder), intra_threads=torch.get_num_threads())
        self._mapped = (folder / VOCABULARY_MAP).is_file()
        self._source, self._target = list(source), list(target)
        self._ids = {token: id for id, token in enumerate(target)}

    def search(
        self, sources: Sequence[Sequence[int]], limits: Limits, *, beam: int, ranking: Ranking, count: int
    ) -> list[list[Hypothesis]]:
        """The `count` best hypotheses of each source (ids without the end mark), best first."""
        outputs: list[list[Hypothesis]] = [[] for _ in sources]
        for rows, part in _alike(limits, len(sources)):
            tokens = [[self._source[id] for id in sources[row]] for row in rows]
            for row, hypotheses in zip(rows, self._some(tokens, part, beam, ranking, count), strict=True):
                outputs[row] = hypotheses
        return outputs

    def _some(
        self, sources: list[Tokens], limits: Limits, beam: int, ranking: Ranking, count: int
    ) -> list[list[Hypothesis]]:
        """`search` for sources whose outputs have the same maximum length, and either all or none have a prefix."""
        prefixes = [[self._target[id] for id in prefix] for prefix in limits.prefix] or None
        found = self._translate(sources, limits, beam, prefixes)
        marks = [SPECIALS[PAD], SPECIALS[BOS]]
        wrong = [row for row, outputs in enumerate(found) if any({*marks} & {*output} for output in outputs)]
        if wrong:  # rare in trained models; suppressing them always would change probabilities
            again = [sources[row] for row in wrong], replace(limits, longest=[limits.longest[row] for row in wrong])
            kept = [prefixes[row] for row in wrong] if prefixes else None
            instead = self._translate(*again, beam, kept, suppress_sequences=[[mark] for mark in marks])
            for row, outputs in zip(wrong, instead, strict=True):
                found[row] = outputs
        repeated = [source for source, outputs in zip(sources, found, strict=True) for _ in outputs]
        scored = iter(
            self.score(repeated, [output for outputs in found for output in outputs], ranking, limits.uncounted)
        )
        ranked = [sorted((next(scored) for _ in outputs), key=lambda each: -each.score) for outputs in found]
        return [hypotheses[:count] for hypotheses in ranked]

    def _translate(
        self, sources: list[Tokens], limits: Limits, beam: int, prefixes: list[Tokens] | None, **options: Any
    ) -> list[list[Tokens]]:
        """The hypotheses of each source. Hypotheses that reach the maximum length are cut there."""
        longest = limits.longest[0]
        if not longest:
            return [[[]] for _ in sources]
        results = self._translator.translate_batch(
            sources, prefixes, beam_size=beam, num_hypotheses=beam, length_penalty=0, max_input_length=0,
            max_decoding_length=longest, min_decoding_length=min(limits.shortest, longest),
            no_repeat_ngram_size=limits.no_repeat, use_vmap=self._mapped, **options,
        )  # fmt: skip
        return [list(map(list, result.hypotheses)) for result in results]

    def score(
        self, sources: list[Tokens], outputs: list[Tokens], ranking: Ranking = UNPENALIZED, uncounted: int = 0
    ) -> list[Hypothesis]:
        """Hypotheses of the outputs, with the log probability of each token and of the end mark."""
        scored = self._translator.score_batch(sources, outputs, max_input_length=0) if sources else []
        hypotheses = []
        for output, result in zip(outputs, scored, strict=True):
            logs, ids = tuple(result.log_probs), tuple(self._ids[token] for token in output)
            assert len(logs) == len(ids) + 1
            hypotheses.append(Hypothesis(ids, logs, sum(logs[uncounted:]) / ranking.penalty(len(logs))))
        return hypotheses


def _alike(limits: Limits, count: int) -> list[tuple[list[int], Limits]]:
    """Groups of rows that CTranslate2 can decode in one call, with their limits.

    A call has one maximum length. If other rows have prefixes, rows without a prefix could not be empty.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for row in range(count):
        groups.setdefault((limits.longest[row], bool(limits.prefix and limits.prefix[row])), []).append(row)
    prefixes = {key: [limits.prefix[row] for row in rows] if key[1] else () for key, rows in groups.items()}
    return [(rows, replace(limits, longest=[key[0]] * len(rows), prefix=prefixes[key])) for key, rows in groups.items()]


class CTranslate2Backend(Backend):
    """Beam search by CTranslate2.

    If it forbids tokens, their probability goes to other tokens, which changes the ranks of hypotheses. Therefore the
    options that forbid tokens are not offered.
    """

    name = "ctranslate2"
    lacks: ClassVar[tuple[str, ...]] = ("sample", "kind", "capture", "no_repeat_ngram", "min_length")

    def __init__(self, search: CTranslate2Search) -> None:
        self._engine = search

    def hypotheses(self, request: SearchRequest) -> list[list[Hypothesis]]:
        search = request.search
        for row in request.rows:
            if (length := len(row.encoded.values)) >= POSITIONS:
                what, received = "this line is longer than what the engine ctranslate2 reads", f"{length} tokens"
                allowed = f"up to {POSITIONS - 1}, or no {option('engine')}"
                raise UserError(what, where=line_place(row.number), received=received, allowed=allowed)
        limits = replace(request.limits, longest=[min(longest, POSITIONS - 1) for longest in request.limits.longest])
        return self._engine.search(
            request.sources, limits,
            beam=search.beam, ranking=search.ranking, count=request.options.nbest,
        )  # fmt: skip


class CTranslate2Engine(Engine):
    """CTranslate2, in float32."""

    name, decodes = "ctranslate2", CTranslate2Backend
    packages = ("ctranslate2",)

    def export(self, run: Run, folder: Path) -> None:
        exporter = CTranslate2Exporter()
        prepare_export(exporter, run)
        exporter.write(run, folder)

    def backend(self, folder: Path, run: Run) -> Backend:
        source, target = text_processors(run)
        return CTranslate2Backend(CTranslate2Search(folder, tokens_of(source), tokens_of(target)))


def ctranslate2_folder(
    model: nn.Module,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    folder: Path,
    *,
    quantization: str | None = None,
) -> None:
    """Write `model` so that `ctranslate2.Translator(folder)` decodes with it.

    CTranslate2 adds the end mark to sources and begins targets with the begin mark.

    Args:
        model: a Transformer whose mixers are attention.
        source_tokens: the source vocabulary in the order of its ids.
        target_tokens: the target vocabulary in the order of its ids.
        folder: a new folder.
        quantization: the type of stored weights by CTranslate2's name (`int8`, ...); None for the model's own.

    Raises:
        UserError: CTranslate2 does not support the model.
    """
    specification = _specification(model)
    specification.register_source_vocabulary(list(source_tokens))
    specification.register_target_vocabulary(list(target_tokens))
    specification.config.bos_token = specification.config.decoder_start_token = SPECIALS[BOS]
    specification.config.eos_token, specification.config.unk_token = SPECIALS[EOS], SPECIALS[UNKNOWN]
    specification.config.add_source_eos = True
    specification.validate()
    specification.optimize(quantization=quantization)
    keep_folder(folder, lambda unfinished: specification.save(str(unfinished)))


def ctranslate2_refusal(model: nn.Module) -> str | None:
    """The reason why CTranslate2 does not support a model; None if it does. The library need not be installed."""
    try:
        _check(model)
    except UserError as error:
        return str(error)
    return None


def _check(model: nn.Module) -> None:
    """Raise UserError if CTranslate2 does not support the model."""
    model = _known("model", model, Transformer)
    for stack, embedding in ((model.encoder, model.source_embedding), (model.decoder, model.target_embedding)):
        first, embedding = stack[0], _known("model", embedding, Embedding)
        assert isinstance(first, Block)
        like = _known("mixer", first.mixer, Attention)
        if isinstance(like.position, Rotary) and type(embedding.position) is not NoPosition:
            raise UserError("CTranslate2 has positions of the embeddings or rotary ones, not both")
        for block in stack:
            assert isinstance(block, Block)
            _check_layer(block, like)


def _check_layer(block: Block, like: Attention) -> None:
    """Raise UserError if CTranslate2 does not support the layer, or its heads differ from those of the first layer."""
    if (canon := block.mixer_canon or block.feed_forward_canon or block.feed_forward_inner_canon) is not None:
        _known("layer", canon)
    _known("residual", block.mixer_residual, Residual)
    _known("norm", block.mixer_residual.norm, LayerNorm, RmsNorm)
    _known("feed-forward network", block.feed_forward, *ACTIVATIONS)
    mixer = _known("mixer", block.mixer, Attention)
    if mixer.shares_values:
        raise UserError("CTranslate2 has no values of the first layer in others", received="value_residual: true")
    if not mixer.plain:
        raise UserError(
            "CTranslate2 has no key_value_heads, query_key_norm, forget or canon in attention", received=str(mixer)
        )
    _check_heads(mixer, like)
    if _rotation(mixer.position) != _rotation(like.position):
        raise UserError("CTranslate2 wants the same positions in every layer", received=type(mixer.position).__name__)
    if block.cross is not None:
        _check_heads(_known("cross-attention", block.cross, MultiHeadCross), like)


def _specification(model: nn.Module) -> Any:
    """The weights of a model in CTranslate2's structure. Raises UserError if the model is not supported."""
    from ctranslate2.specs import TransformerSpec

    _check(model)
    model = _known("model", model, Transformer)
    source_embedding = _known("model", model.source_embedding, Embedding)
    encoder = _stack(model.encoder, model.encoder_norm, source_embedding, decoder=False)
    decoder = _stack(model.decoder, model.decoder_norm, model.target_embedding, decoder=True)
    _fill_linear(decoder.projection, model.projection)
    decoder.start_from_zero_embedding = model.target_embedding.zero_first
    specification = TransformerSpec(encoder, decoder)
    first = model.encoder[0]
    assert isinstance(first, Block)
    specification.config.layer_norm_epsilon = first.mixer_residual.norm.eps
    return specification


def _stack(blocks: nn.ModuleList, norm: nn.Module, embedding: Embedding, *, decoder: bool) -> Any:
    """The specification of the encoder or the decoder."""
    from ctranslate2.specs import common_spec, transformer_spec

    first = blocks[0]
    assert isinstance(first, Block)
    mixer, feed_forward = _known("mixer", first.mixer, Attention), first.feed_forward
    kind = transformer_spec.TransformerDecoderSpec if decoder else transformer_spec.TransformerEncoderSpec
    stack = kind(
        len(blocks),
        mixer.heads,
        pre_norm=not first.mixer_residual.post,
        activation=getattr(common_spec.Activation, ACTIVATIONS[type(feed_forward)]),
        ffn_glu=isinstance(feed_forward, SwigluFeedForward),
        rms_norm=isinstance(first.mixer_residual.norm, RmsNorm),
        num_heads_kv=mixer.heads,
        head_dim=mixer.key_dim,
        layernorm_embedding=embedding.norm is not None,
        **_rotation(mixer.position),
    )
    if embedding.norm is not None:
        _fill_norm(stack.layernorm_embedding, embedding.norm)
    (stack.embeddings if decoder else stack.embeddings[0]).weight = _array(embedding.tokens.weight)
    stack.scale_embeddings = embedding.scale != 1
    if not isinstance(mixer.position, Rotary):
        # The vectors that are added to the embeddings; zeros without position embeddings.
        length = len(embedding.position.table) if isinstance(embedding.position, Learned) else POSITIONS
        vectors = embedding.position.between(0, length).expand(length, embedding.tokens.embedding_dim)
        stack.position_encodings.encodings = _array(vectors)
    if not first.mixer_residual.post:
        _fill_norm(stack.layer_norm, norm)
    for layer, block in zip(stack.layer, blocks, strict=True):
        assert isinstance(block, Block)
        _fill_layer(layer, block)
    return stack


def _fill_layer(layer: Any, block: Block) -> None:
    """Fill a layer with the weights of a block."""
    mixer = _known("mixer", block.mixer, Attention)
    _fill_linear(layer.self_attention.linear[0], mixer.in_projection)
    _fill_linear(layer.self_attention.linear[1], mixer.out_projection)
    _fill_norm(layer.self_attention.layer_norm, block.mixer_residual.norm)
    if block.cross is not None:
        cross = _known("cross-attention", block.cross, MultiHeadCross)
        projections = cross.query_projection, cross.memory_projection, cross.out_projection
        for linear, projection in zip(layer.attention.linear, projections, strict=True):
            _fill_linear(linear, projection)
        _fill_norm(layer.attention.layer_norm, block.cross_residual.norm)
    network = block.feed_forward
    assert isinstance(network, ReluFeedForward | SwigluFeedForward)
    _fill_linear(layer.ffn.linear_0, network.gate if isinstance(network, SwigluFeedForward) else network.inner)
    if isinstance(network, SwigluFeedForward):
        _fill_linear(layer.ffn.linear_0_noact, network.inner)
    _fill_linear(layer.ffn.linear_1, network.outer)
    _fill_norm(layer.ffn.layer_norm, block.feed_forward_residual.norm)


def _check_heads(attention: Attention | MultiHeadCross, like: Attention) -> None:
    """Raise UserError if the heads differ from those of the first layer, or their keys and values differ in size."""
    if (attention.heads, attention.key_dim, attention.value_dim) != (like.heads, like.key_dim, like.key_dim):
        what = "CTranslate2 wants as many heads in every layer, with keys and values of one size"
        raise UserError(what, received=str(attention))


def _fill_linear(layer: Any, linear: nn.Linear) -> None:
    layer.weight = _array(linear.weight)
    if linear.bias is not None:
        layer.bias = _array(linear.bias)


def _fill_norm(layer: Any, module: nn.Module) -> None:
    norm: Any = _known("norm", module, LayerNorm, RmsNorm)
    layer.gamma = _array(norm.weight)
    if isinstance(norm, LayerNorm):
        layer.beta = _array(norm.bias)


def _rotation(position: nn.Module) -> dict[str, Any]:
    """The arguments for the positions of an attention layer."""
    _known("position", position, Rotary, RelativePosition)
    if not isinstance(position, Rotary):
        return {}
    return {"rotary_dim": position.rotated, "rotary_interleave": False, "rotary_base": position.base}


def _array(weight: Tensor) -> NDArray[np.float32]:
    """A copy of a weight, because CTranslate2 modifies arrays that it quantises."""
    copied = weight.detach().to("cpu", torch.float32).clone(memory_format=torch.contiguous_format)
    return copied.numpy()


def _known(what: str, module: nn.Module, *types: type[Module]) -> Module:
    """Return the module if its class is one of `types`. Raises UserError for others, including subclasses."""
    if type(module) not in types:
        raise UserError(f"CTranslate2 has no such {what}", received=type(module).__name__)
    return cast("Module", module)
