"""Runs for Marian: model.npz, with vocabularies that tokenize text as the run does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.core.config import merge
from headway.core.documents import dump_yaml
from headway.core.files import json_line, write_text
from headway.export.exporter import Answering, Exporter, cleaning, is_plain, text_processors
from headway.export.parity import answering_of
from headway.models.transformer import Transformer, TransformerConfig
from headway.predictors.predictor import Run
from headway.processing.marian_npz import vocabulary_files, write_npz, write_vocabularies
from headway.processing.processor import Processors
from headway.processing.text.subwords import SubwordVocabulary
from headway.processing.text.text_processor import TextProcessor
from headway.processing.text.vocabulary import WordVocabulary
from headway.recipe import parse_recipe
from headway.runs.run_folder import load_weights, model_weights
from headway.tasks import build_task
from headway.tasks.marian_transformer import COMMON, arrays_of, kept_ids, options_of, read_marian

MODEL, DECODER = "model.npz", "decoder.yml"
NEEDED = {**COMMON, "bias": True, "query_key_norm": False, "value_residual": False, "front_end": None}
ACTIVATIONS = ("relu", "gelu", "swish")
USAGE = """```
marian-decoder -c FOLDER/decoder.yml < input > output
```

`decoder.yml` names the model and its vocabularies. Where a vocabulary is a `.spm`, Marian cuts and joins text itself.
Where it is a `.yml`, Marian reads and writes tokens between spaces; if a `.spm` lies beside it, `spm_encode` makes
them, and `spm_decode` joins them. Marian's `gelu` is headway's in versions after v1.12.0."""


class MarianExporter(Exporter):
    """A folder for Marian."""

    name = "marian"

    def refusal(self, run: Run) -> str | None:
        needs = ", ".join(dict.fromkeys(marian_needs(run)))
        return f"it is no model such as the preset student; it needs {needs}" if needs else None

    def form(self, run: Run) -> str:
        return f"{MODEL} with its vocabularies"

    def write(self, run: Run, folder: Path) -> None:
        assert isinstance(run.recipe.model, TransformerConfig)
        model, decoding = run.recipe.model, run.recipe.decoding
        weights = {name: tensor.detach().cpu().float() for name, tensor in model_weights(run.model).items()}
        source, target = text_processors(run)
        first = cleaning(source)
        vocabularies = [first, first if source.vocabulary is target.vocabulary else cleaning(target)]
        folder.mkdir()
        orders = write_vocabularies(folder, list(zip(vocabularies, kept_ids(weights), strict=True)))
        activation = str(model.feed_forward_options()["kind"])
        options = options_of(weights, model.heads, activation, list(map(len, orders)))
        write_npz(folder / MODEL, arrays_of(weights, orders), options)
        files = {file.stem: file.name for file in vocabulary_files(folder)}  # a table has priority over the other file
        names = [files.get("vocab", files.get(side)) for side in ("source", "target")]
        decoder = {"relative-paths": True, "models": [MODEL], "vocabs": names, "beam-size": decoding.beam}
        write_text(folder / DECODER, dump_yaml(decoder))

    def open(self, folder: Path, run: Run) -> Answering:
        marian = read_marian(folder / MODEL, vocabulary_files(folder))
        recipe = parse_recipe(merge(run.recipe.model_dump(mode="json"), marian.sections))
        configs = recipe.text.source, recipe.text.target
        both = Processors(*map(TextProcessor, configs, marian.vocabularies))
        model = build_task(recipe.task).model(recipe, both, initial=False)
        load_weights(model, marian.weights(model_weights(model)), str(folder / MODEL))
        return answering_of(Run(recipe, *both, model.eval()))

    def usage(self, run: Run) -> str:
        return USAGE


def marian_needs(run: Run) -> Iterator[str]:
    """The changes to its recipe that a run would need, as `key: value`."""
    section = run.recipe.model
    if type(run.model) is not Transformer or not isinstance(section, TransformerConfig):
        yield "model.kind: transformer"
        return
    values, head = section.model_dump(mode="json"), section.dim // section.heads
    yield from (f"model.{key}: {json_line(wanted)}" for key, wanted in NEEDED.items() if values[key] != wanted)
    for key in ("head_dim", "key_dim", "value_dim"):
        if values[key] not in (None, head):
            yield f"model.{key}: {head}"
    inner = section.feed_forward_options()
    if inner["kind"] not in ACTIVATIONS or not inner.get("bias", True):
        yield f"model.feed_forward with biases, of kind {', '.join(ACTIVATIONS)}"
    for name, stack in (("encoder", section.encoder), ("decoder", section.decoder)):
        mixers = [{"kind": "attention"}, {"kind": "ssru"}][: 1 if name == "encoder" else 2]
        if not any(all(mixer == allowed for mixer in stack.mixers()) for allowed in mixers):
            kinds = " or ".join(mixer["kind"] for mixer in mixers)
            yield f"model.{name}.mixer: {kinds}, in all layers, without options"
        if stack.canon is not None or stack.residual.depth is not None:
            yield f"model.{name} without canon, and with plain residuals"
    if section.decoder.cross != {"kind": "multi_head"}:
        yield "model.decoder.cross: multi_head, without options"
    for name, processor in (("source", run.source), ("target", run.target)):
        if not isinstance(processor, TextProcessor):
            yield f"text as its {name}"
            continue
        if not isinstance(processor.vocabulary, SubwordVocabulary | WordVocabulary):
            yield "vocabulary.kind: bpe, unigram, char, word or whitespace"
        if not is_plain(processor.config):
            yield f"text.{name} without normalise and segment"
