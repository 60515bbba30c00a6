"""SentencePiece vocabularies: byte-pair encoding, unigram language model, characters.

White space follows SentencePiece: runs of U+0020 become one space, and leading and trailing ones are removed; tabs,
full-width and other spaces are ordinary characters. U+2581, with which SentencePiece writes a space, is read as a
space. Characters that did not occur in training are UNKNOWN, and so are U+0000, U+001F and U+2585, which SentencePiece
reserves; adjacent unknown characters form one token. With `byte_fallback`, unknown characters are spelled in bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import sentencepiece

from headway.core.errors import RunError, UserError
from headway.core.files import write_bytes
from headway.processing.text.vocabulary import OF_PIECES, TokensConfig, TokenSpan, Vocabulary, check_unused
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, UNKNOWN

FILE = "spm.model"
SPACE = "\u2581"
# The maximum that the trainer accepts, in bytes; by default it silently skips lines longer than 4192 bytes.
LONGEST_LINE = 2**30
ALL_CHARACTERS = 0x110000
MANY = 100  # lines for which the library's batch call is faster, although it starts a thread (half a millisecond)
KINDS = {1: "unigram", 2: "bpe", 4: "char"}  # by SentencePiece's model type


class SubwordVocabulary(Vocabulary):
    """Pieces of words, or characters, of a SentencePiece model, which is pickled as its protocol buffer."""

    family = "subwords"
    extensible = True

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model, num_threads=1)
        self._tokens = dict[int, str]()  # a cache of `token`

    @property
    def serialised(self) -> bytes:
        return self._model

    def with_rules(self, rules: Mapping[str, str]) -> SubwordVocabulary:
        """The vocabulary with normalisation rules, unless the SentencePiece model already has its own."""
        from sentencepiece import sentencepiece_model_pb2

        messages: Any = sentencepiece_model_pb2
        model = messages.ModelProto.FromString(self._model)
        if model.normalizer_spec.precompiled_charsmap:
            return self
        sentencepiece.set_min_log_level(3)
        made = sentencepiece.SentencePieceNormalizer(norm_map=list(rules.items())).serialized_normalizer_spec()
        model.normalizer_spec.precompiled_charsmap = messages.NormalizerSpec.FromString(made).precompiled_charsmap
        changed = copy(self)
        SubwordVocabulary.__init__(changed, model.SerializeToString())
        return changed

    def __reduce__(self) -> tuple[type[SubwordVocabulary], tuple[bytes]]:
        return SubwordVocabulary, (self._model,)

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> SubwordVocabulary:
        """Train on all lines, which SentencePiece holds in memory. The same lines give the same model.

        Raises:
            UserError: `size` does not fit the text.
        """
        check_unused(config, where, "min_frequency", *(OF_PIECES[1:] if config.kind == "char" else ()))
        return cls(_trained(config, _trainable(lines), where, side))

    @property
    def no_text(self) -> frozenset[int]:
        return super().no_text | {self._processor.piece_to_id(SPACE)}

    def extended(self, lines: Iterable[str], count: int, where: str, side: str) -> SubwordVocabulary:
        """Add new characters first, then new pieces of a model of the same kind and size, trained on the new text.

        With byte-pair encoding, merges of old pieces have priority over new ones. With a unigram model, new pieces keep
        the scores of the model of the new text.
        """
        from sentencepiece import sentencepiece_model_pb2

        messages: Any = sentencepiece_model_pb2
        model = messages.ModelProto.FromString(self._model)
        kind = KINDS[model.trainer_spec.model_type]
        text, known = list(_trainable(lines)), {piece.piece for piece in model.pieces}
        config = TokensConfig(kind=kind, size=len(self))
        try:
            trained = _trained(config, text, where, side)
        except UserError as error:  # take the nearest size that the lines allow
            bound = re.search(r"at (?:most|least) (\d+)", str(error))
            if bound is None:
                raise
            trained = _trained(config.model_copy(update={"size": int(bound[1])}), text, where, side)
        new = messages.ModelProto.FromString(trained)
        pieces = [piece for piece in new.pieces[len(SPECIALS) :] if piece.piece not in known]
        pieces.sort(key=lambda piece: len(piece.piece) > 1)
        least = min(piece.score for piece in model.pieces)
        for rank, piece in enumerate(pieces[:count], start=1):
            score = piece.score if kind == "unigram" else least - rank
            model.pieces.add(piece=piece.piece, score=score)
        model.trainer_spec.vocab_size = len(model.pieces)
        return type(self)(model.SerializeToString())

    def __len__(self) -> int:
        return len(self._processor)

    def encode(self, segmented: str) -> list[int]:
        ids: list[int] = self._processor.encode(segmented.replace(SPACE, " "))
        return ids

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        if len(segmented) < MANY:
            return [*map(self.encode, segmented)]
        ids: list[list[int]] = self._processor.encode([line.replace(SPACE, " ") for line in segmented])
        return ids

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        """As in `Vocabulary`; the spaces that a token's mark represents belong to its span.

        All bytes of a character have the span of the character.
        """
        text = segmented.replace(SPACE, " ")
        surfaces: list[str] = self._processor.encode(text, out_type=str)
        spans, end, left = list[TokenSpan](), 0, 0  # the number of bytes left of the last character
        for id, surface in zip(self.encode(segmented), surfaces, strict=True):
            if self._processor.is_byte(id):
                left, end = (left - 1, end) if left else (len(text[end].encode()) - 1, end + 1)
                spans.append(TokenSpan(id, surface, end - 1, end))
                continue
            start = end
            for character in surface:
                if character == SPACE:
                    while text.startswith(" ", end):
                        end += 1
                else:
                    assert text[end] == character
                    end += 1
            spans.append(TokenSpan(id, surface, start, end))
        return spans

    def special_ids(self) -> dict[int, int]:
        """The ids of the special tokens in the SentencePiece model itself, or -1 for missing ones."""
        model = self._processor
        return {PAD: model.pad_id(), BOS: model.bos_id(), EOS: model.eos_id(), UNKNOWN: model.unk_id()}

    def knows(self, piece: str) -> bool:
        return not self._processor.is_unknown(self._processor.piece_to_id(piece))

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._processor.decode([int(id) for id in ids if id > EOS])
        return text

    def token(self, id: int) -> str:
        token = self._tokens.get(id)
        if token is None:
            token = self._tokens[id] = self._processor.id_to_piece(id)
        return token

    def starts_word(self, id: int) -> bool:
        return self.token(id).startswith(SPACE)

    def _write(self, folder: Path) -> None:
        write_bytes(folder / FILE, self._model)

    @classmethod
    def load(cls, folder: Path) -> SubwordVocabulary:
        path = folder / FILE
        try:
            model = path.read_bytes()
            if not model:
                raise ValueError("an empty file")
            return cls(model)
        except (OSError, RuntimeError, ValueError) as error:
            raise UserError("the vocabulary's file is missing or no SentencePiece model", where=str(path)) from error


def scored_pieces(vocabulary: SubwordVocabulary) -> tuple[str, dict[str, float]]:
    """The kind of a SentencePiece model, and the scores of its pieces, without special tokens."""
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto.FromString(vocabulary.serialised)
    normal = messages.ModelProto.SentencePiece.NORMAL
    pieces = {piece.piece: piece.score for piece in model.pieces if piece.type == normal}
    return KINDS.get(model.trainer_spec.model_type, "word"), pieces


def _trained(config: TokensConfig, lines: Iterable[str], where: str, side: str) -> bytes:
    """Train a SentencePiece model. Raises UserError if the vocabulary size does not fit the lines."""
    size = ALL_CHARACTERS if config.kind == "char" else config.size  # only a limit for char
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model,
            model_type=config.kind, vocab_size=size, character_coverage=config.character_coverage,
            normalization_rule_name="identity", max_sentence_length=LONGEST_LINE,
            byte_fallback=config.byte_fallback, split_digits=config.split_digits,
            pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNKNOWN, pad_piece=SPECIALS[PAD], bos_piece=SPECIALS[BOS],
            eos_piece=SPECIALS[EOS], unk_piece=SPECIALS[UNKNOWN], unk_surface=SPECIALS[UNKNOWN],
            num_threads=1, minloglevel=3,
        )  # fmt: skip
    except RuntimeError as error:
        raise _training_error(str(error), config, where, side) from error
    return model.getvalue()


def _trainable(lines: Iterable[str]) -> Iterator[str]:
    """Replace what the trainer would drop: U+2585 (with the whole line), and the names of special tokens and bytes."""
    special = re.compile("<(?=(?:" + "|".join(re.escape(name[1:]) for name in SPECIALS) + "|0x[0-9A-F]{2}>))")
    for line in lines:
        yield special.sub("< ", line.replace("\u2585", " "))


def _training_error(message: str, config: TokensConfig, where: str, side: str) -> UserError | RunError:
    if bound := re.search(r"too high \(\d+\).*<= (\d+)", message):
        return UserError(
            f"the {side} has too few different tokens", where=f"{where}.size", received=config.size,
            allowed=f"at most {bound[1]}",
        )  # fmt: skip
    if bound := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"the {side} has more different characters than that", where=f"{where}.size", received=config.size,
            allowed=f"at least {bound[1]}, or a smaller {where}.character_coverage",
        )  # fmt: skip
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return UserError(f"the {side} is empty: nothing to train a vocabulary on", where=where)
    return RunError(f"{where}: SentencePiece could not train on the {side}: {message}")
