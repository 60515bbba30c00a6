"""Tokenizers of Hugging Face's encoder-decoders, with headway's ids and the codes at the ends of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.documents import read_json
from headway.core.errors import UserError
from headway.core.languages import is_language
from headway.importing.architectures import refusal
from headway.processing.marian_files import M2mVocabulary
from headway.processing.pretrained import loading
from headway.processing.text.framed_vocabulary import FramedVocabulary, TokenizersVocabulary, code_of, named
from headway.processing.text.vocabulary import Vocabulary
from headway.tensors.batch import SPECIALS

# The supported tokenizer classes by model type. Some classes have two names in the library.
TOKENIZERS = {
    "t5": ("T5Tokenizer",),
    "bart": ("BartTokenizer", "RobertaTokenizer"),
    "mbart": ("MBartTokenizer", "MBart50Tokenizer"),
    "m2m_100": ("M2M100Tokenizer", "NllbTokenizer"),
}
CODE = re.compile(r"[a-z]{2,3}_[A-Z]\w+")  # a language code, such as de_DE or eng_Latn
# The library's replacements if a tokenizer's settings clean up spaces.
CLEANED = [(f" {mark}", mark) for mark in ".?!,"] + [(" ' ", "'")] + [
    (f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")
]  # fmt: skip


class Sides(NamedTuple):
    source: Side
    target: Side


class Side(NamedTuple):
    """The vocabulary of one side, the model's embedding row of each id, and the language of the text."""

    vocabulary: Vocabulary
    rows: list[int]
    language: str | None


def read_tokenizer(folder: Path, kind: str, where: str) -> Any:
    """Load the tokenizer of a folder, of a class for such a model, without executing its code. Raises UserError."""
    with loading("the tokenizer", str(folder), where) as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    name = type(tokenizer).__name__.removesuffix("Fast")
    if name not in TOKENIZERS[kind] or tokenizer.init_kwargs.get("auto_map"):
        what = f"a model of type {kind} has a tokenizer of another class here"
        raise UserError(what, where=f"{folder}/tokenizer_config.json", received=name, allowed=TOKENIZERS[kind])
    names = list(tokenizer.vocab_files_names.values())
    if not any((folder / file).is_file() for file in names):  # the library would make one without pieces
        raise UserError("this model has no tokenizer", where=where, received=str(folder), allowed=f"one of {names}")
    if (added := folder / "added_tokens.json").is_file():  # the library renumbers these, or leaves them out
        for token, row in read_json(added, dict).items():
            if (read := tokenizer.convert_tokens_to_ids(token)) != row:
                what = f"the token {token!r} has the number {row} here, and {read} in the tokenizer that is read"
                raise UserError(what, where=str(added), allowed="tokens that follow the vocabulary without a gap")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if tokenizer.clean_up_tokenization_spaces and backend and type(backend.model).__name__ != "BPE":
        from tokenizers import decoders

        cleaned = [decoders.Replace(*pair) for pair in CLEANED]
        backend.decoder = decoders.Sequence([backend.decoder, decoders.Fuse(), *cleaned])
    return tokenizer


def sides_of(tokenizer: Any, config: Any, search: Mapping[str, Any], languages: tuple[str | None, str | None]) -> Sides:
    """The vocabularies of source and target.

    headway's special tokens come first, then pieces, then codes. The begin mark is a copy of the decoder's first token.

    Args:
        tokenizer: of one of the classes `TOKENIZERS`.
        config: the model's configuration.
        search: the generation settings of the model's files.
        languages: of source and target, if the user has chosen them.

    Raises:
        UserError: the model does not have a language, or a language has to be chosen.
    """
    framed, bare = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    at = next((index for index in range(len(framed)) if framed[index : index + len(bare)] == bare), 0)
    before, after = framed[:at], framed[at + len(bare) :]
    if not after:
        raise UserError("this tokenizer does not end a text", where="tokenizer.json", received=framed)
    codes = _codes(tokenizer)
    most = config.vocab_size if hasattr(tokenizer, "backend_tokenizer") else len(tokenizer.encoder)
    known = {*tokenizer.all_special_tokens, *codes}
    if beyond := [piece for piece, row in tokenizer.get_vocab().items() if row >= most and piece not in known]:
        what = "the tokenizer has pieces that the model, or the table of its vocabulary, does not have"
        raise UserError(what, where="config.json: vocab_size", received=beyond[0], allowed=f"{most} pieces")
    tags = list(codes.values()) or before
    usual = next((row for row in framed if row in codes.values()), None)
    begin, forced = (
        search.get("decoder_start_token_id", config.decoder_start_token_id),
        search.get("forced_bos_token_id"),
    )
    if forced is not None and languages[1] is None and forced not in ({*codes.values()} - {begin} or before):
        raise refusal("forced_bos_token_id", forced, "null, or what the tokenizer begins a text with")
    wanted = next((row for row in (forced, begin) if row in codes.values()), None)
    chosen = (_chosen(codes, languages[0], usual, "source"), _chosen(codes, languages[1], wanted, "target"))
    sides = list[Side]()
    texts, made = dict[tuple[int, ...], Vocabulary](), dict[Any, Vocabulary]()  # both sides share equal objects
    for side, code in zip(("source", "target"), chosen, strict=True):
        opening, closing = (
            [code if code is not None and row == usual else row for row in part] for part in (before, after)
        )
        *inner, end = closing
        start, own = begin, tags
        if inner and side == "target":  # the code ends a source, and an output begins with it or, forced, after a mark
            start, opening = (end, opening) if begin is None or begin in codes.values() else (begin, [end])
            end, inner = inner[0], []
        elif inner:
            start, own = end, [*tags, *inner]  # sources have no begin mark
        special = [config.pad_token_id, start, end, tokenizer.unk_token_id]
        if bad := [row for row in (*special, *own) if not isinstance(row, int) or not 0 <= row < config.vocab_size]:
            what = "this model has no row for a special token, or for a code of its tokenizer"
            raise UserError(what, where="config.json", received=bad[0], allowed=f"0 to {config.vocab_size - 1}")
        reserved = {*special, *own}
        rows = (*special, *(row for row in range(config.vocab_size) if row not in reserved))
        vocabulary = texts[rows] = texts.get(rows) or _text(tokenizer, rows)
        if own:
            names = [list(map(named, tokenizer.convert_ids_to_tokens(part), part)) for part in (own, opening, inner)]
            key = str([rows, names])
            free = not codes and forced is None
            vocabulary = made[key] = made.get(key) or FramedVocabulary(vocabulary, names[0], names[1], names[2], free)
        sides.append(Side(vocabulary, [*rows, *own], _language(tokenizer, code)))
    return Sides(*sides)


def _codes(tokenizer: Any) -> dict[str, int]:
    """The rows of the language codes, by code; empty if the model has no languages."""
    if hasattr(tokenizer, "lang_token_to_id"):  # M2M-100
        return dict(tokenizer.lang_token_to_id)
    codes = [token for token in tokenizer.all_special_tokens if CODE.fullmatch(token)]
    return dict(zip(codes, tokenizer.convert_tokens_to_ids(codes), strict=True))


def _chosen(codes: Mapping[str, int], language: str | None, usual: int | None, side: str) -> int | None:
    """The row of a language's code. Raises UserError if there is none, or if it has to be chosen."""
    if language is not None:
        return codes[code_of(language, codes, f"{side}_language")]
    if codes and usual is None:
        what = "this model needs to know the language"
        raise UserError(what, where=f"{side}_language", allowed=list(codes))
    return usual


def _text(tokenizer: Any, rows: Sequence[int]) -> Vocabulary:
    """The vocabulary of text without codes, whose ids have these rows."""
    if hasattr(tokenizer, "backend_tokenizer"):
        return TokenizersVocabulary(tokenizer.backend_tokenizer.to_str(), rows)
    names = {row: piece for piece, row in tokenizer.encoder.items()}
    pieces = [named(names.get(row), row) for row in rows[len(SPECIALS) :]]
    return M2mVocabulary(tokenizer.sp_model.serialized_model_proto(), [*SPECIALS, *pieces])


def _language(tokenizer: Any, code: int | None) -> str | None:
    """headway's code for the language of a code's row; None if it has no such language."""
    name = "" if code is None else str(tokenizer.convert_ids_to_tokens(code)).strip("_").partition("_")[0]
    return name if name and is_language(name) else None
