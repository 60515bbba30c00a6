"""Runs for Hugging Face's transformers, and for its hub.

A Transformer that Marian supports becomes a `MarianMTModel` with its tokenizer. A tagger that reads the last layer of
its encoder becomes the encoder's class for token classification. All other runs are written as they are, with weights
in safetensors, and loaded by headway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from headway.core.files import write_bytes, write_json
from headway.core.languages import base_language
from headway.core.registry import import_paths
from headway.core.storage import workspace
from headway.export.exporter import Answer, Answering, Exporter, Search, sentencepiece_fault, sentencepiece_of
from headway.export.parity import answering_of
from headway.mixers.attention import Attention
from headway.mixers.positions import Sinusoidal
from headway.mixers.relative import RelativePosition
from headway.models import Tagger
from headway.models.block import Block, Residual
from headway.models.components import GeluFeedForward, LayerNorm, ReluFeedForward, SwishFeedForward
from headway.models.cross_attention import MultiHeadCross
from headway.models.embeddings import Embedding
from headway.models.layer_attention import LastLayer
from headway.models.transformer import Transformer
from headway.predictors.predictor import Run
from headway.processing.pretrained import LabelProcessor, WordProcessor, transformers_quiet
from headway.processing.text.text_processor import TextProcessor
from headway.runs.packing import pack_run, unpack_run
from headway.runs.run import open_run
from headway.tasks.marian import to_marian
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, UNKNOWN

MARIAN = """```python
from transformers import AutoTokenizer, MarianMTModel

tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), MarianMTModel.from_pretrained(FOLDER)
ids = model.generate(**tokenizer(["..."], return_tensors="pt", padding=True, truncation=True))
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```

`generate` ranks hypotheses by log probability over length to an exponent, headway by another formula. The exponent in
`generation_config.json` is the nearest."""
CLASSIFIER = """```python
from transformers import pipeline

print(pipeline("token-classification", FOLDER)("..."))
```

A word has the label of its first piece."""
COPY = """```python
import headway

print(headway.load(FOLDER).predict(["..."]))
```"""
WITH_CODE = COPY.replace("FOLDER", "FOLDER, allow_code=True")  # with installed foreign code
ACTIVATIONS = {ReluFeedForward: "relu", GeluFeedForward: "gelu", SwishFeedForward: "swish"}
POSITIONS = 1024  # the fewest positions written; sinusoids are defined for all
LONGEST = 512  # tokens of an output, as in OPUS-MT
BATCH = 16  # lines per batch


class HuggingFaceExporter(Exporter):
    """A folder for Hugging Face's transformers where it has such a model, else the run itself in safetensors."""

    name = "huggingface"
    extra = "pretrained"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)

    def refusal(self, run: Run) -> str | None:
        return None

    def form(self, run: Run) -> str:
        if isinstance(run.model, Tagger):
            return "AutoModelForTokenClassification" if is_classifier(run) else "only a folder for headway.load"
        fault = marian_refusal(run)
        return "MarianMTModel" if fault is None else f"only a folder for headway.load: {fault}"

    def write(self, run: Run, folder: Path) -> None:
        if is_classifier(run):
            write_classifier(run, folder)
        elif marian_refusal(run) is None:
            write_marian(run, folder)
        else:  # the files of a packed run, without paths of this machine
            assert run.path is not None
            with workspace(folder.parent) as place:
                pack_run(run.path, place / "run.zip")
                unpack_run(place / "run.zip", folder)

    def open(self, folder: Path, run: Run) -> Answering:
        if is_classifier(run):
            return open_classifier(folder, run)
        return open_marian(folder) if marian_refusal(run) is None else answering_of(open_run(folder))

    def usage(self, run: Run) -> str:
        if is_classifier(run):
            return CLASSIFIER
        if marian_refusal(run) is None:
            return MARIAN
        return WITH_CODE if import_paths(run.recipe.model_dump(mode="json")) else COPY

    def card(self, run: Run) -> Mapping[str, Any]:
        library = "transformers" if is_classifier(run) or marian_refusal(run) is None else "headway"
        return {"library_name": library}


def marian_refusal(run: Run) -> str | None:
    """The reason why a run cannot become a MarianMTModel; None if it can."""
    return next(_marian_faults(run), None)


def _marian_faults(run: Run) -> Iterator[str]:
    model = run.model
    if type(model) is not Transformer or type(model.source_embedding) is not Embedding:
        yield "MarianMTModel is an encoder and decoder of text, a Transformer"
        return
    for embedding in (model.source_embedding, model.target_embedding):
        if embedding.norm is not None:
            yield "MarianMTModel has no norm of embeddings (embedding_norm)"
        if type(embedding.position) is not Sinusoidal or embedding.position.arrangement != "interleaved":
            yield "MarianMTModel has sinusoidal positions with the frequencies of arrangement interleaved"
    if model.target_embedding.zero_first:
        yield "MarianMTModel begins with the embedding of a token (first_input: bos)"
    for stack in (model.encoder, model.decoder):
        yield from _stack_faults([block for block in stack if isinstance(block, Block)], model.projection.in_features)
    truncation = run.recipe.data.truncation()
    if truncation is not None and truncation.unit == "words":
        yield "a tokenizer of transformers cuts sources by tokens, not by words (data.truncate_source, data.count)"
    for processor, name in ((run.source, "source"), (run.target, "target")):
        if (fault := sentencepiece_fault(processor)) is not None:
            yield f"{fault} (text.{name}, vocabulary)"


def _stack_faults(blocks: Sequence[Block], dim: int) -> Iterator[str]:
    shapes = set[tuple[Any, ...]]()
    for block in blocks:
        attentions = [block.mixer] if block.cross is None else [block.mixer, block.cross]
        for attention in attentions:
            if type(attention) not in (Attention, MultiHeadCross):
                yield f"MarianMTModel has multi-head attention alone, this model has {type(attention).__name__}"
                return
            assert isinstance(attention, Attention | MultiHeadCross)
            sizes = {attention.heads * attention.key_dim, attention.heads * attention.value_dim}
            if sizes != {dim} or attention.out_projection.bias is None:
                yield "MarianMTModel has heads of size dim / heads, and projections with biases"
            if isinstance(attention, Attention) and attention.shares_values:
                yield "MarianMTModel has no values of the first layer in others (value_residual)"
            if isinstance(attention, Attention) and not attention.plain:
                yield "MarianMTModel has no key_value_heads, query_key_norm, forget or canon in attention"
            if isinstance(attention, Attention) and type(attention.position) is not RelativePosition:
                yield "MarianMTModel has no positions within attention"
        if block.mixer_canon or block.feed_forward_canon or block.feed_forward_inner_canon:
            yield "MarianMTModel has no Canon layers"
        if type(block.mixer_residual) is not Residual:
            yield "MarianMTModel has plain residuals (residual: plain)"
        norm = block.mixer_residual.norm
        if not (block.mixer_residual.post and type(norm) is LayerNorm and norm.eps == 1e-5):
            needed = "norm: post, and norm_kind: layer with eps 1e-5"
            yield f"MarianMTModel has {needed}; this model has norm: {'post' if block.mixer_residual.post else 'pre'}"
        if type(block.feed_forward) not in ACTIVATIONS:
            yield f"MarianMTModel has a feed-forward network with {', '.join(ACTIVATIONS.values())}"
            return
        assert isinstance(block.feed_forward, ReluFeedForward)
        inner = block.feed_forward.inner
        if inner.bias is None:
            yield "MarianMTModel has a feed-forward network with biases"
        heads = {attention.heads for attention in attentions}
        if len(heads) > 1:
            yield "MarianMTModel has as many heads in cross-attention as in self-attention"
        shapes.add((attentions[0].heads, type(block.feed_forward), inner.out_features))
    if len(shapes) > 1:
        yield "MarianMTModel has layers that are all of one shape"


def write_marian(run: Run, folder: Path) -> None:
    """Write the model and the tokenizer of a run without `marian_refusal`."""
    folder.mkdir()
    with transformers_quiet() as transformers:
        model = transformers.MarianMTModel(_config(run, transformers)).eval()
        weights, shared = run.model.state_dict(), _shared(run.model)
        state = to_marian({name: tensor.cpu().float() for name, tensor in weights.items()}, shared=shared)
        positions = {f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert set(missing) <= positions
        assert not unexpected
        model.tie_weights()
        model.generation_config = _generation_config(run, transformers)
        model.save_pretrained(str(folder))
        _write_tokenizer(run, folder, transformers, separate=not shared)


def _shared(model: Any) -> bool:
    return model.source_embedding.tokens.weight is model.target_embedding.tokens.weight


def _config(run: Run, transformers: Any) -> Any:
    model: Any = run.model
    block, reading = model.encoder[0], model.decoder[0]
    return transformers.MarianConfig(
        vocab_size=model.source_embedding.tokens.num_embeddings,
        decoder_vocab_size=model.target_embedding.tokens.num_embeddings,
        share_encoder_decoder_embeddings=_shared(model),
        tie_word_embeddings=model.projection.weight is model.target_embedding.tokens.weight,
        d_model=model.projection.in_features,
        encoder_layers=len(model.encoder),
        decoder_layers=len(model.decoder),
        encoder_attention_heads=block.mixer.heads,
        decoder_attention_heads=reading.mixer.heads,
        encoder_ffn_dim=block.feed_forward.inner.out_features,
        decoder_ffn_dim=reading.feed_forward.inner.out_features,
        activation_function=ACTIVATIONS[type(block.feed_forward)],
        max_position_embeddings=max(POSITIONS, model.max_position),
        dropout=model.source_embedding.dropout.probability,
        attention_dropout=block.mixer.dropout,
        scale_embedding=model.source_embedding.scale != 1,
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        forced_eos_token_id=None,
    )


def _generation_config(run: Run, transformers: Any) -> Any:
    """The run's search options in the form of `generate`, as far as it has them.

    Its scores are log probabilities divided by length ** exponent. ((5 + length) / 6) ** alpha grows like the exponent
    alpha * length / (length + 5), which is evaluated at 20 tokens. Its lengths include the decoder's start token. It
    has no maximum length that depends on the source's.
    """
    search = run.recipe.decoding
    longest = LONGEST if search.max_length is None else min(LONGEST, search.max_length + 1)
    exponent = search.length_penalty * (1.0 if search.length_penalty_kind == "power" else 0.8)
    return transformers.GenerationConfig(
        num_beams=search.beam,
        early_stopping=search.stop == "full" if search.beam > 1 else None,
        length_penalty=exponent if search.beam > 1 else None,
        min_length=search.min_length + 1 if search.min_length else 0,
        max_length=longest,
        no_repeat_ngram_size=search.no_repeat_ngram,
        suppress_tokens=[PAD, BOS],
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )


def _write_tokenizer(run: Run, folder: Path, transformers: Any, *, separate: bool) -> None:
    assert isinstance(run.model, Transformer)
    truncation, longest = run.recipe.data.truncation(), run.model.longest_source()
    names = ("vocab.json", "target_vocab.json")
    for processor, name, side in zip((run.source, run.target), names, ("source", "target"), strict=True):
        assert isinstance(processor, TextProcessor)
        write_bytes(folder / f"{side}.spm", sentencepiece_of(processor))
        if separate or side == "source":
            pieces = processor.tokens(range(processor.size))
            write_json(folder / name, {piece: id for id, piece in enumerate(pieces)})
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"),
        str(folder / "target.spm"),
        str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if separate else None,
        separate_vocabs=separate,
        source_lang=base_language(run.recipe.text.source.language),
        target_lang=base_language(run.recipe.text.target.language),
        unk_token=SPECIALS[UNKNOWN],
        eos_token=SPECIALS[EOS],
        pad_token=SPECIALS[PAD],
        model_max_length=1 + (longest if truncation is None else min(longest, truncation.length)),
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # `<pad>` in a text is ordinary text
    )
    tokenizer.save_pretrained(str(folder))
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))  # remove paths of this machine; file names are enough
    here = {key for key, value in settings.items() if isinstance(value, str) and str(folder) in value}
    write_json(file, {key: value for key, value in settings.items() if key not in here})


def open_marian(folder: Path) -> Answering:
    """A function that decodes with `generate`, from the folder's model and tokenizer."""
    with transformers_quiet() as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        model = transformers.MarianMTModel.from_pretrained(str(folder)).eval()

    def read(lines: list[str]) -> Any:
        return tokenizer(lines, return_tensors="pt", padding=True, truncation=True)

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        batches = (lines[start : start + BATCH] for start in range(0, len(lines), BATCH))
        return [found for some in batches for found in _generate(model, tokenizer, read(list(some)), search)]

    return answer


@torch.inference_mode()
def _generate(model: Any, tokenizer: Any, inputs: Any, search: Search) -> list[list[Answer]]:
    """The outputs of `generate` with their log probabilities."""
    # Like headway's own search, continue while an active hypothesis can still become the best.
    beams = {"early_stopping": False, "length_penalty": 0.0} if search.beam > 1 else {}
    ids = model.generate(
        **inputs, num_beams=search.beam, num_return_sequences=search.beam, max_new_tokens=search.longest,
        max_length=None, no_repeat_ngram_size=0, **beams,
    )  # fmt: skip
    ids = torch.nn.functional.pad(ids, (0, 1), value=EOS)  # for outputs cut at the maximum length
    sources, mask = (inputs[name].repeat_interleave(search.beam, 0) for name in ("input_ids", "attention_mask"))
    logits = model(input_ids=sources, attention_mask=mask, decoder_input_ids=ids[:, :-1]).logits
    chosen = logits.float().log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    real = (ids[:, 1:] == EOS).cumsum(1) - (ids[:, 1:] == EOS).long() == 0
    answers = []
    for row, score in zip(ids.tolist(), (chosen * real).sum(1).tolist(), strict=True):
        kept = [id for id in row[1:] if id not in (PAD, EOS)]
        text = tokenizer.decode(row, skip_special_tokens=True)
        answers.append(Answer(tuple(tokenizer.convert_ids_to_tokens(kept)), score, text, tuple(kept)))
    return [answers[start : start + search.beam] for start in range(0, len(answers), search.beam)]


def is_classifier(run: Run) -> bool:
    """Whether a run labels words by a linear map of its encoder's last layer, like the library's own classes."""
    if not isinstance(run.model, Tagger) or not isinstance(run.model.mix, LastLayer):
        return False
    config: Any = run.model.encoder.config
    with transformers_quiet() as transformers, torch.device("meta"):
        classes = transformers.AutoModelForTokenClassification
        return type(config) in classes._model_mapping and _is_linear(classes.from_config(config))


def _is_linear(classifier: Any) -> bool:
    """Whether a class consists of its encoder and a linear map named `classifier`. Some have more, or other names."""
    encoder = f"{classifier.base_model_prefix}."
    own = {name for name in classifier.state_dict() if not name.startswith(encoder)}
    return own == {"classifier.weight", "classifier.bias"}


def write_classifier(run: Run, folder: Path) -> None:
    """Write a tagger and its tokenizer."""
    assert isinstance(run.model, Tagger)
    assert isinstance(run.source, WordProcessor)
    assert isinstance(run.target, LabelProcessor)
    encoder: Any = run.model.encoder
    with transformers_quiet() as transformers:
        config = type(encoder.config).from_dict(encoder.config.to_dict())
        config.id2label = dict(enumerate(run.target.names))
        config.label2id = {name: id for id, name in enumerate(run.target.names)}
        classifier = transformers.AutoModelForTokenClassification.from_config(config).eval()
        getattr(classifier, classifier.base_model_prefix).load_state_dict(encoder.state_dict())
        classifier.classifier.load_state_dict(run.model.output.state_dict())
        classifier.save_pretrained(str(folder))
    run.source.tokenizer.save_pretrained(str(folder))


def open_classifier(folder: Path, run: Run) -> Answering:
    """A function that labels the words of lines with the library's own class."""
    with transformers_quiet() as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        model = transformers.AutoModelForTokenClassification.from_pretrained(str(folder)).eval()
    assert isinstance(run.source, WordProcessor)
    processor = WordProcessor(tokenizer, str(folder))

    @torch.inference_mode()
    def label(line: str) -> list[Answer]:
        window = processor.encode(line).values
        log_probabilities = model(torch.tensor([window.ids])).logits[0, list(window.first)].log_softmax(-1)
        best = log_probabilities.max(-1)
        labels = tuple(model.config.id2label[id] for id in best.indices.tolist())
        return [Answer(labels, float(best.values.sum()), " ".join(labels))]

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        return list(map(label, lines))

    return answer
