"""Replace unknown words of outputs by the source words that they attend to (Luong et al. 2015, section 4.1).

Shapes: K heads; S source tokens and T target tokens, both with the end-of-sentence token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import UserError, option
from headway.formats.lines import read_lines
from headway.predictors.captured_attention import alignment_layer
from headway.processing.processor import Processor
from headway.processing.text.text_processor import TextProcessor
from headway.processing.text.vocabulary import WordVocabulary
from headway.tensors.batch import SPECIALS, UNKNOWN


@dataclass(frozen=True)
class UnknownWords:
    """Replaces unknown words of an output by translations or copies of source words.

    Attributes:
        layer: the name of the attention that is the alignment.
        dictionary: translations of source words; other words are copied.
    """

    layer: str
    source: TextProcessor
    dictionary: Mapping[str, str]

    def __call__(
        self, line: str, source: Sequence[int], target: Sequence[int], weights: NDArray[np.floating[Any]]
    ) -> list[str]:
        """The replacements of the unknown tokens of a target, in order. A token that attends to no word stays `<unk>`.

        Args:
            line: the text of the source.
            source: the ids of the source, which may be truncated.
            target: the ids of the output.
            weights: the attention (K, T, S). The end-of-sentence token and the first tags of the source are not copied.
        """
        tokens = self.source.encode_with_spans(line)[: len(source)]
        prepared = self.source.prepare(line).split()
        tags = len(self.source.vocabulary.split_tags(line)[0].split())
        mean = weights.mean(0)[:, tags : len(tokens)]
        words = []
        for attention in (mean[row] for row, id in enumerate(target) if id == UNKNOWN):
            word = SPECIALS[UNKNOWN]
            if attention.any():  # trailing white space may be a token
                word = prepared[min(tokens[tags + attention.argmax()].word, len(prepared) - 1)]
            words.append(self.dictionary.get(word, word))
        return words


def copying_layer(names: Sequence[str], vocabulary: type, where: str, received: str = "copy") -> str:
    """The name of the attention that aligns unknown tokens, from all names of a model and its target vocabulary's
    class.

    Raises:
        UserError: the model has no cross-attention, or its unknown tokens are not words.
    """
    if not issubclass(vocabulary, WordVocabulary):
        what = "the unknown tokens of this vocabulary are parts of words, which nothing can be copied for"
        allowed = "keep, or a target vocabulary of kind word or whitespace"
        raise UserError(what, where=where, received=received, allowed=allowed)
    if (layer := alignment_layer(names)) is None:
        what = "this model has no attention to the source, which says what to copy"
        raise UserError(what, where=where, received="copy", allowed="keep")
    return layer


def unknown_words(
    names: Sequence[str], source: Processor, target: TextProcessor, dictionary: Path | None
) -> UnknownWords:
    """Build the replacement of unknown words for a model with these attention names and processors.

    Raises:
        UserError: the model reads no words or cannot copy (see `copying_layer`), or the dictionary cannot be read.
    """
    where = option("unknown_words")
    layer = copying_layer(names, type(target.vocabulary.untagged), where)
    if not isinstance(source, TextProcessor):
        raise UserError("this model reads no words that could be copied", where=where)
    return UnknownWords(layer, source, {} if dictionary is None else read_dictionary(dictionary))


def read_dictionary(path: Path) -> dict[str, str]:
    """Read translations of words: one pair a line, separated by a tab. Raises UserError with the file and the line."""
    words: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        source, tab, target = line.partition("\t")
        if not (tab and source.strip() and target.strip()) or "\t" in target:
            what, allowed = "this is no entry of a dictionary", "a source word, a tab and a target word"
            raise UserError(what, where=f"{path}:{number}", received=line, allowed=allowed)
        if source in words:
            raise UserError("this word has an entry above", where=f"{path}:{number}", received=source)
        words[source] = target
    return words
