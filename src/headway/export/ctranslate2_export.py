"""Runs for CTranslate2, an engine in C++ for processors and GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from headway.batched import batched
from headway.export.ctranslate2_model import ctranslate2_folder, ctranslate2_refusal
from headway.export.ctranslate2_search import VOCABULARY_MAP, CTranslate2Search
from headway.export.export_options import CTranslate2Options
from headway.export.exporter import Answer, Answering, Exporter, Search
from headway.export.tokenizer_files import sentencepiece_fault, text_processors, tokens_of, write_tokenizers
from headway.files import write_text
from headway.formats.pairs import open_source
from headway.log import progress
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.run import Run
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import build_aligner
from headway.processing.text.text_processor import TextProcessor
from headway.search.limits import Limits
from headway.tasks import build_task
from headway.tensors.batch import SPECIALS

TYPES = {"float32": None, "bf16": "bfloat16", "int8": "int8"}
BATCH = 32
PAIRS = 256  # pairs that are aligned at once
ALIGNED = 20_000  # at most so many training pairs are aligned for a vocabulary map
FREQUENT = 100  # so many of the most frequent target tokens are in every map

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
        """Write what the library itself reads, without tokenizers, into a folder that does not exist yet."""
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
    """The answers of a folder for CTranslate2."""
    engine = CTranslate2Search(folder, tokens_of(source), tokens_of(target))

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        ids = [source.encode(line, run.recipe.data.truncation()).values for line in lines]
        answers = []
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            limits = Limits(0, [search.longest] * len(some))
            for hypotheses in engine.search(some, limits, beam=search.beam, alpha=0.0, count=search.beam):
                answers.append(
                    [
                        Answer(tuple(target.tokens(each.ids)), each.score, target.decode(each.ids), each.ids)
                        for each in hypotheses
                    ]
                )
        return answers

    return answer


def vocabulary_map(run: Run, count: int) -> str:
    """For each source token the `count` target tokens that are most often aligned with it, as CTranslate2 reads them.

    Training pairs are aligned by the run's own attention: a target token with the source token that it looks at most.
    The most frequent target tokens stand on the first line, which holds for every source.

    Raises:
        UserError: a model without attention to its source.
    """
    predictor = build_task(run.recipe.task).predictor([run], next(run.model.parameters()).device)
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
    """Source ids, target ids and attention (T, S) of training pairs that the model can read."""
    corpus = open_source(run.recipe.data.train, "data.train", run.recipe.data.broken)
    texts = ((pair.source, pair.target) for pair in corpus)
    pairs = islice((each for each in texts if all(map(str.strip, each)) and predictor.can_read(*each)), ALIGNED)
    with progress("aligning training pairs", ALIGNED, "pairs") as line:
        done = 0
        for some in batched(pairs, PAIRS):
            sources, targets = ([*texts] for texts in zip(*some, strict=True))
            with accounted(InputAccount()):
                forced = predictor.force(sources, targets, capture=(layer,))
            for (read, written), prediction in zip(some, forced, strict=True):
                weights = np.asarray(prediction.attention[layer]).mean(0)
                yield list(predictor.read(read).values), list(run.target.encode(written).values), weights
            done += len(some)
            line.update(done)
