"""Marian models in the format of Hugging Face: configuration and tokenizer, from a folder or the hub.

Files: config.json, source.spm, target.spm, vocab.json (and target_vocab.json), model.safetensors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, TypeAdapter, model_validator

from headway.core.documents import LARGEST_JSON, read_bytes, read_json, shaped
from headway.core.errors import UserError
from headway.core.files import write_json
from headway.processing.hub_models import hub_folder, read_hub_config
from headway.processing.text.framed_vocabulary import imported_alone
from headway.processing.text.subwords import SPACE, SubwordVocabulary
from headway.processing.text.vocabulary import TokensConfig, TokenSpan, Vocabulary
from headway.tensors.batch import BOS, EOS, PAD, SPECIALS, UNKNOWN

PIECES = "pieces.json"  # the table of a vocabulary, stored in a run
PREFIX = "hf:"
WHERE = "model.from"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
SAMPLES = ("a", "Hello, world!", "1 2 3 (4)", "ÄÖÜ ß é ñ", "Привет", "日本語")


class MarianShape(BaseModel):
    """The configurations of Marian models, such as OPUS-MT models, that headway's Transformer can reproduce."""

    model_config = ConfigDict(strict=True)

    model_type: Literal["marian"]
    vocab_size: PositiveInt
    d_model: PositiveInt
    encoder_ffn_dim: PositiveInt
    decoder_ffn_dim: PositiveInt
    encoder_attention_heads: PositiveInt
    decoder_attention_heads: PositiveInt
    encoder_layers: PositiveInt
    decoder_layers: PositiveInt
    decoder_vocab_size: PositiveInt | None = None
    max_position_embeddings: PositiveInt | None = None
    activation_function: Literal["relu", "gelu", "swish", "silu"] = "relu"
    scale_embedding: bool = False
    normalize_embedding: Literal[False] = False
    normalize_before: Literal[False] = False
    add_final_layer_norm: Literal[False] = False
    static_position_embeddings: Literal[True] = True

    @model_validator(mode="after")
    def _sides_are_alike(self) -> Self:
        if (self.encoder_ffn_dim, self.encoder_attention_heads) != (self.decoder_ffn_dim, self.decoder_attention_heads):
            raise ValueError("encoder and decoder need the same ffn_dim and attention_heads")
        return self


class MarianVocabulary(SubwordVocabulary):
    """Pieces of a SentencePiece model, with ids from a table that both sides may share.

    Like Hugging Face's MarianTokenizer, it reads a language code such as `>>fra<<` at the beginning of a line as one
    token, and a piece that is not in the table as the unknown token.

    Args:
        model: the SentencePiece model of this side.
        pieces: the piece of each id, beginning with the special tokens.

    Raises:
        ValueError: a piece has two ids, or the special tokens differ.
    """

    family = "marian"
    extensible = False

    def __init__(self, model: bytes, pieces: Sequence[str]) -> None:
        super().__init__(model)
        self._pieces, self._ids = tuple(pieces), {piece: id for id, piece in enumerate(pieces)}
        if self._pieces[: len(SPECIALS)] != SPECIALS or len(self._ids) < len(self._pieces):
            raise ValueError("a table of pieces begins with the special tokens, and has each piece once")

    def __reduce__(self) -> tuple[type[MarianVocabulary], tuple[bytes, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.serialised, self._pieces)

    @classmethod
    def train(cls, config: TokensConfig, lines: Iterable[str], where: str, side: str) -> SubwordVocabulary:
        raise imported_alone(config, where)

    def shares_ids_with(self, other: Vocabulary) -> bool:
        return isinstance(other, MarianVocabulary) and self._pieces == other._pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, segmented: str) -> list[int]:
        code, text = self._language_code(segmented)
        pieces: list[str] = [*code, *self._processor.encode(text, out_type=str)]
        return [self._id(piece) for piece in pieces]

    def encode_lines(self, segmented: Sequence[str]) -> list[list[int]]:
        parts = [self._language_code(line) for line in segmented]
        encoded: list[list[str]] = self._processor.encode([text for _, text in parts], out_type=str)
        return [
            [self._id(piece) for piece in (*code, *pieces)] for (code, _), pieces in zip(parts, encoded, strict=True)
        ]

    def _language_code(self, text: str) -> tuple[list[str], str]:
        """Split a line into the language code that it begins with, if any, and the rest."""
        end = text.find("<<") if text.startswith(">>") else -1
        return ([], text) if end < 0 else ([text[: end + 2]], text[end + 2 :])

    def _id(self, piece: str) -> int:
        """The id of a piece; UNKNOWN if the text spells out the name of a special token."""
        id = self._ids.get(piece, UNKNOWN)
        return id if id > EOS else UNKNOWN

    def encode_with_spans(self, segmented: str) -> list[TokenSpan]:
        code, text = self._language_code(segmented)
        start = sum(map(len, code))
        spans = [TokenSpan(self._id(piece), piece, 0, start) for piece in code]
        encoded = self._processor.encode(text, out_type="offset_mapping")
        for piece, (begin, end) in zip(encoded["pieces"], encoded["offsets"], strict=True):
            id = self._id(piece)
            spans.append(TokenSpan(id, text[begin:end] if id == UNKNOWN else piece, start + begin, start + end))
        return spans

    def decode(self, ids: Sequence[int]) -> str:
        text, known = "", list[str]()
        for id in map(int, ids):
            if id == UNKNOWN:
                text, known = f"{text}{self._text(known)} {SPECIALS[UNKNOWN]} ", []
            elif id > EOS:
                known.append(self._pieces[id])
        return (text + self._text(known)).strip()

    def _text(self, pieces: list[str]) -> str:
        text: str = self._processor.decode_pieces(pieces)
        return text.replace(SPACE, " ")

    def token(self, id: int) -> str:
        return self._pieces[id]

    def _write(self, folder: Path) -> None:
        super()._write(folder)
        write_json(folder / PIECES, list(self._pieces))

    @classmethod
    def load(cls, folder: Path) -> MarianVocabulary:
        model = SubwordVocabulary.load(folder).serialised
        pieces = shaped(read_json(folder / PIECES, list), TypeAdapter(list[str]), str(folder / PIECES))
        try:
            return cls(model, pieces)
        except ValueError as error:
            raise UserError(f"the vocabulary's table cannot be read ({error})", where=str(folder / PIECES)) from error


class M2mVocabulary(MarianVocabulary):
    """The SentencePiece pieces of M2M-100, whose language codes are not part of the text."""

    family = "m2m"

    def _language_code(self, text: str) -> tuple[list[str], str]:
        return [], text


class MarianTokenizers(NamedTuple):
    """The vocabularies of both sides, and for each of their ids its row in the model's embedding."""

    source: MarianVocabulary
    target: MarianVocabulary
    source_rows: list[int]
    target_rows: list[int]


def marian_folder(place: str) -> Path:
    """The folder of a model named `hf:FOLDER` or, on the hub, `hf:OWNER/NAME`.

    Raises:
        UserError: the prefix is missing, or there is no such model.
        RunError: the hub does not answer.
    """
    name = place.removeprefix(PREFIX)
    if name == place:
        raise UserError("this names no model", where=WHERE, received=place, allowed="hf:FOLDER or hf:OWNER/NAME")
    return hub_folder(name, WHERE)


def read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration of a Marian model. Raises UserError unless it fits `MarianShape`."""
    config, what = read_hub_config(folder), "this configuration of a Marian model"
    shaped(config, TypeAdapter(MarianShape), f"{WHERE}: {folder / 'config.json'}", what)
    return config


def marian_section(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `model` section of a recipe for a Marian model."""
    activation = config.get("activation_function", "relu")
    return {
        "kind": "transformer",
        "dim": config["d_model"],
        "feed_forward": config["encoder_ffn_dim"],
        "heads": config["encoder_attention_heads"],
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "activation": "swish" if activation == "silu" else activation,
        "max_position": config.get("max_position_embeddings", 512),
        "tied": "none" if not config.get("tie_word_embeddings", True) else "all" if _shared(config) else "target",
        "output_bias": True,
        "scale_embeddings": config.get("scale_embedding", False),
        "encoder": {"layers": config["encoder_layers"]},
        "decoder": {"layers": config["decoder_layers"]},
    }


def _shared(config: Mapping[str, Any]) -> bool:
    return bool(config.get("share_encoder_decoder_embeddings", True))


def marian_vocabulary(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `vocabulary` section of a recipe for a Marian model."""
    return {"kind": "marian", "shared": _shared(config)}


def read_tokenizers(folder: Path) -> MarianTokenizers:
    """Read the tokenizers of a Marian model.

    The ids begin with headway's special tokens. If the model has no BOS token but starts decoding with padding, BOS
    gets a copy of the embedding of the padding token.

    Raises:
        UserError: files are missing or damaged, or decoding does not restore the encoded text.
    """
    config = read_config(folder)
    tables = [folder / "vocab.json"] * 2
    if not _shared(config):
        tables[1] = folder / "target_vocab.json"
    sizes = (config["vocab_size"], config.get("decoder_vocab_size") or config["vocab_size"])
    sides = []
    for name, table, size in zip(("source", "target"), tables, sizes, strict=True):
        pieces, rows = _ordered(_table(table, size), config, table)
        try:
            model = read_bytes(folder / f"{name}.spm", LARGEST_JSON, "SentencePiece model")
            sides.append((MarianVocabulary(model, pieces), rows))
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(
                f"this SentencePiece model cannot be read ({error})", where=str(folder / f"{name}.spm")
            ) from error
        check_round_trip(sides[-1][0], folder / f"{name}.spm")
    (source, source_rows), (target, target_rows) = sides
    return MarianTokenizers(source, target, source_rows, target_rows)


def _table(file: Path, size: int) -> list[str]:
    """The piece of each row. Raises UserError unless rows and pieces correspond one to one."""
    table = shaped(read_json(file, what="table of pieces"), TypeAdapter(dict[str, int]), str(file))
    pieces = {row: piece for piece, row in table.items()}
    if len(table) != size or pieces.keys() != set(range(size)):
        what = "the tokenizer does not round-trip: each row of the model needs a piece, and each piece a row"
        raise UserError(what, where=str(file), received=f"{len(table)} pieces", allowed=f"0 to {size - 1}")
    return [pieces[row] for row in range(size)]


def _ordered(pieces: list[str], config: Mapping[str, Any], file: Path) -> tuple[list[str], list[int]]:
    """The pieces in headway's order, and the row of each."""
    start, end, padding = (config.get(f"{name}_token_id") for name in ("decoder_start", "eos", "pad"))
    unknown = next((row for row, piece in enumerate(pieces) if piece == SPECIALS[UNKNOWN]), None)
    special = {PAD: padding, BOS: start, EOS: end, UNKNOWN: unknown}
    for id, row in special.items():
        if not isinstance(row, int) or not 0 <= row < len(pieces):
            raise UserError(f"this model has no row for {SPECIALS[id]}", where=str(file), received=row)
    first = [row for _, row in sorted(special.items()) if row is not None]
    rest = [row for row in range(len(pieces)) if row not in first]
    return [*SPECIALS, *(pieces[row] for row in rest)], [*first, *rest]


def check_round_trip(vocabulary: MarianVocabulary, file: Path) -> None:
    """Raise UserError if a text, encoded and decoded, is tokenized differently from before."""
    for sample in SAMPLES:
        ids = vocabulary.encode(sample)
        again = vocabulary.encode(vocabulary.decode(ids))
        if UNKNOWN not in ids and ids != again:
            what = "the tokenizer does not round-trip"
            raise UserError(what, where=str(file), received=f"{sample!r} becomes {vocabulary.decode(ids)!r}")
    pieces = (vocabulary.token(id) for id in range(len(SPECIALS), len(vocabulary)))
    if not any(vocabulary.knows(piece) for piece in pieces):
        what = "the tokenizer does not round-trip: the table has no piece of this SentencePiece model"
        raise UserError(what, where=str(file))
