"""Models of Hugging Face's hub, or of folders with the same structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter
from torch import Tensor

from headway.core.config import Section
from headway.core.documents import read_json, shaped
from headway.core.errors import UserError, option
from headway.core.languages import is_one_language
from headway.core.log import warn
from headway.core.storage import cache_folder, fingerprint, hashes_of, kept_folder, software
from headway.importing.architectures import carried, check_weights, model_section, refusal
from headway.importing.hub_tokenizers import TOKENIZERS, read_tokenizer, sides_of
from headway.importing.importer import Imported, Importer, Weights
from headway.importing.importing import import_run
from headway.processing.hub_models import hub_folder, read_hub_config, read_weights, weight_files
from headway.processing.marian_files import PREFIX, marian_section, marian_vocabulary, read_config, read_tokenizers
from headway.processing.pretrained import loading
from headway.tasks.marian import marian_weights
from headway.tensors.batch import BOS, EOS

WHERE = "hf"
MOST_ROWS = 10_000_000  # the most rows of embeddings, whose ids are listed before weights are read


class Searched(BaseModel):
    """Settings of a model that headway reads from its files; the library checks the others."""

    model_config = ConfigDict(strict=True)

    architectures: list[str] | None = None
    vocab_size: Annotated[PositiveInt, Field(le=MOST_ROWS)] | None = None
    max_length: PositiveInt | None = None
    max_new_tokens: PositiveInt | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    num_beams: PositiveInt | None = None
    no_repeat_ngram_size: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    bad_words_ids: list[list[int]] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None


SEARCHED = TypeAdapter(Searched)
# Settings of `generate` that headway's search lacks, with the values that have no effect.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "do_sample": (False,), "repetition_penalty": (1,), "encoder_repetition_penalty": (1,), "guidance_scale": (1,),
    "num_beam_groups": (1,), "diversity_penalty": (0,), "penalty_alpha": (0,), "early_stopping": (False, True),
    "encoder_no_repeat_ngram_size": (0,), "exponential_decay_length_penalty": (), "sequence_bias": (),
    "force_words_ids": (), "stop_strings": (),
}  # fmt: skip


class HuggingFaceOptions(Section):
    """The options of an import: languages of a model that has several, by their codes.

    By default the source is in the language of the tokenizer's settings, and the target in that of the model's.
    """

    source_language: str | None = None
    target_language: str | None = None


class HuggingFaceImporter(Importer):
    """Marian (OPUS-MT), T5, BART, mBART, M2M-100 and NLLB models."""

    Config: ClassVar = HuggingFaceOptions
    name = "hf"
    places = "NAME_OR_FOLDER"
    extra = "pretrained"
    packages: ClassVar[tuple[str, ...]] = ("transformers", "huggingface_hub")
    config: HuggingFaceOptions

    def read(self, places: Sequence[str]) -> Imported:
        if len(places) > 1:
            what = "one model is imported at a time"
            raise UserError(what, where=option("places"), received=" ".join(places), allowed=self.places)
        folder = hub_folder(places[0], WHERE)
        raw = read_hub_config(folder)
        kind, generation = raw.get("model_type"), folder / "generation_config.json"
        if kind not in ("marian", *TOKENIZERS):
            what, where = "headway has no such architecture", f"{folder / 'config.json'}: model_type"
            raise UserError(what, where=where, received=kind, allowed=["marian", *TOKENIZERS])
        search = read_json(generation) if generation.is_file() else raw
        given = {key: (raw | search).get(key) for key in Searched.model_fields}
        shaped(given, SEARCHED, str(folder))
        check_weights(raw)
        if kind == "marian" and self.config.model_fields_set:
            what, allowed = (
                "a Marian model is told a language by each line",
                "lines that begin with >>fra<<, or the like",
            )
            raise UserError(what, where=next(iter(self.config.model_fields_set)), allowed=allowed)
        imported = _marian(folder, search) if kind == "marian" else _other(folder, search, self.config)
        imported.sections["decoding"] = _decoding(search)
        return imported._replace(files=_files(folder))


def kept_import(place: str, language: str | None) -> Path:
    """The cached run of a model `hf:NAME_OR_FOLDER`, which is imported on first use, once for each language.

    Raises:
        UserError: as `import_run`.
        RunError: the cache cannot be written.
    """
    name = place.removeprefix(PREFIX)
    folder, keys = hub_folder(name, "RUN"), [] if language is None else [f"target_language={language}"]
    key = fingerprint([software(), keys, hashes_of(_files(folder))])
    run = Path(Path(name).resolve().name)  # the card shows this name

    def make(built: Path) -> None:
        import_run([WHERE, str(folder)], built / run, keys)

    return kept_folder(cache_folder() / "imports" / key, make, lambda kept: kept / run)


def _files(folder: Path) -> list[Path]:
    names = ("*.json", "*.spm", "*.model", "merges.txt")
    files = [path for name in names for path in sorted(folder.glob(name)) if not path.name.endswith("index.json")]
    return [*files, *weight_files(folder, WHERE)]


def _decoding(search: Mapping[str, Any]) -> dict[str, Any]:
    """The decoding section for the generation settings, as far as headway supports them.

    The library's length limits include the decoder's start token, and a forced end mark.
    """
    unlike = [
        f"{key}: {search[key]}"
        for key, values in WITHOUT_EFFECT.items()
        if search.get(key) is not None and search[key] not in values
    ]
    if unlike:
        warn(f"search goes without what the settings of this model ask for ({', '.join(unlike)})")
    longest, exponent = search.get("max_length"), search.get("length_penalty")
    if search.get("max_new_tokens"):
        longest = search["max_new_tokens"] + 1
    uncounted = 1 if search.get("forced_eos_token_id") is None else 2
    return {
        "beam": search.get("num_beams") or 1,
        "length_penalty": 1.0 if exponent is None else exponent,
        "length_penalty_kind": "power",
        "stop": "full" if search.get("early_stopping") is True else "worst",
        "max_length": max(1, longest - uncounted) if longest else None,
        "min_length": max((search.get("min_length") or 1) - 1, search.get("min_new_tokens") or 0),
        "no_repeat_ngram": search.get("no_repeat_ngram_size") or 0,
    }


def _check_written(search: Mapping[str, Any], rows: Sequence[int]) -> None:
    """Raise UserError if generation ends differently from headway's search, or forbids tokens that it allows.

    Args:
        search: the generation settings of the model's files.
        rows: the model's embedding row of each id of the target vocabulary.
    """
    if (ends := search.get("eos_token_id")) not in (None, rows[EOS], [rows[EOS]]):
        raise refusal("eos_token_id", ends, str(rows[EOS]))
    for key in ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens"):
        words = [word if isinstance(word, list) else [word] for word in search.get(key) or ()]
        if written := [word for word in words if {*rows[EOS:]}.issuperset(word)]:
            raise refusal(key, written[0], "padding, and other tokens that headway never writes")


def _marian(folder: Path, search: Mapping[str, Any]) -> Imported:
    config, tokenizers = read_config(folder), read_tokenizers(folder)
    _check_written(search, tokenizers.target_rows)
    for key, row in (("forced_bos_token_id", None), ("decoder_start_token_id", tokenizers.target_rows[BOS])):
        if (received := search.get(key, row)) not in (None, row):
            raise refusal(key, received, str(row))
    sections = {"model": marian_section(config), "vocabulary": marian_vocabulary(config), "text": _languages(folder)}
    return Imported(sections, (tokenizers.source, tokenizers.target), partial(marian_weights, folder), ())


def _languages(folder: Path) -> dict[str, dict[str, str]]:
    """The `text` section of a recipe, with the languages that the settings of a Marian tokenizer name."""
    file = folder / "tokenizer_config.json"
    settings = read_json(file) if file.is_file() else {}
    codes = {side: settings.get(f"{side}_lang") for side in ("source", "target")}
    return {side: {"language": code} for side, code in codes.items() if isinstance(code, str) and is_one_language(code)}


def _other(folder: Path, search: Mapping[str, Any], options: HuggingFaceOptions) -> Imported:
    with loading("the configuration", str(folder), WHERE) as transformers:
        config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    section = model_section(config)
    tokenizer = read_tokenizer(folder, config.model_type, WHERE)
    sides = sides_of(tokenizer, config, search, (options.source_language, options.target_language))
    source, target = sides
    _check_written(search, target.rows)
    if source.rows != target.rows and section["tied"] == "all":
        section["tied"] = "target"
    languages = {name: {"language": side.language} for name, side in sides._asdict().items() if side.language}

    def weights(names: Mapping[str, Tensor]) -> Weights:
        try:
            return carried(config, read_weights(folder, WHERE), names, (source.rows, target.rows), str(folder))
        except (IndexError, RuntimeError) as error:
            what = f"the weights are not of the shape that config.json says ({str(error).splitlines()[0]})"
            raise UserError(what, where=str(folder)) from error

    vocabulary = {"kind": source.vocabulary.family, "shared": source.rows == target.rows}
    sections = {"model": section, "vocabulary": vocabulary, "text": languages}
    return Imported(sections, (source.vocabulary, target.vocabulary), weights, ())
