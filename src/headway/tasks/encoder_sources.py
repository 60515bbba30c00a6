"""The encoders of taggers: pretrained ones of Hugging Face, and recurrent layers over the words of a corpus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from headway.models import Tagger, TaggerConfig
from headway.models.tagger import RecurrentWordsConfig
from headway.processing.pretrained import WordProcessor, encoder_location, transformers_quiet
from headway.tasks.pretrained_encoder import build_tagger, encoder_config, longest_read

PADDING, UNKNOWN = "<pad>", "<unk>"


class EncoderSource(ABC):
    """The encoder that the `model` section of a tagger names: its sizes, its tokenizer, and its files in a run."""

    @abstractmethod
    def hidden_size(self) -> int:
        """D. Raises UserError if the encoder cannot be loaded."""

    @abstractmethod
    def longest(self) -> int | None:
        """The maximum length of a sentence in tokens. None if it is unlimited."""

    @abstractmethod
    def words(self, train: Iterable[Sequence[str]]) -> WordProcessor:
        """The tokenizer, for the sentences of the training corpus."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what the encoder is rebuilt from, beside the tokenizer."""

    @abstractmethod
    def tagger(self, labels: int, words: WordProcessor, *, initial: bool) -> Tagger:
        """The tagger over the encoder, as `build_tagger`."""


class PretrainedSource(EncoderSource):
    """An encoder of Hugging Face."""

    def __init__(self, config: TaggerConfig) -> None:
        self.model = config

    @cached_property
    def location(self) -> str:
        assert isinstance(self.model.encoder, str)
        return encoder_location(self.model.encoder)

    @cached_property
    def config(self) -> Any:
        return encoder_config(self.location)

    def hidden_size(self) -> int:
        size: int = self.config.hidden_size
        return size

    def longest(self) -> int | None:
        return longest_read(self.config)

    def words(self, train: Iterable[Sequence[str]]) -> WordProcessor:
        return WordProcessor.load(self.location)

    def save(self, folder: Path) -> None:
        self.config.save_pretrained(str(folder))

    def tagger(self, labels: int, words: WordProcessor, *, initial: bool) -> Tagger:
        return build_tagger(self.model, labels, Path(words.location), initial=initial)


class RecurrentSource(EncoderSource):
    """Recurrent layers over words: a word is a token, and rare words are the unknown token."""

    def __init__(self, config: TaggerConfig, encoder: RecurrentWordsConfig) -> None:
        self.model, self.encoder = config, encoder

    def hidden_size(self) -> int:
        return self.encoder.output

    def longest(self) -> None:
        return None

    def words(self, train: Iterable[Sequence[str]]) -> WordProcessor:
        counts = Counter(word.lower() if self.encoder.lowercase else word for words in train for word in words)
        frequent = sorted(word for word, count in counts.items() if count >= self.encoder.min_count)
        names = dict.fromkeys([PADDING, UNKNOWN, *frequent])
        with transformers_quiet("model.encoder") as transformers:
            import tokenizers

            ids = {name: number for number, name in enumerate(names)}
            whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=UNKNOWN))
            if self.encoder.lowercase:
                whole.normalizer = tokenizers.normalizers.Lowercase()
            tokenizer = transformers.PreTrainedTokenizerFast(
                tokenizer_object=whole, pad_token=PADDING, unk_token=UNKNOWN
            )
        return WordProcessor(tokenizer, "")

    def save(self, folder: Path) -> None:
        """The tokenizer has all that is needed."""

    def tagger(self, labels: int, words: WordProcessor, *, initial: bool) -> Tagger:
        from headway.models.recurrent.recurrent_words import RecurrentTagger, RecurrentWords

        return RecurrentTagger(self.model, RecurrentWords(self.encoder, words.size, self.model.dropout), labels)


def encoder_source(config: TaggerConfig) -> EncoderSource:
    encoder = config.encoder
    return PretrainedSource(config) if isinstance(encoder, str) else RecurrentSource(config, encoder)
