"""The recipe: the validated tree of settings that one experiment is made of.

A recipe is read from YAML, changed by `key.path=value` overrides, checked as a whole before any work starts and
written, resolved, into the run folder. A key that does not exist is an error that names the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from headway.errors import UserError, nearest

Probability = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the recipe: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CorpusConfig(Section):
    """Where parallel examples come from: two line-aligned files, one TSV, one JSONL file or a data set of the hub.

    Plain files may be compressed (.gz, .xz). `columns` names the source and target column of a TSV (numbers from 1), or
    the two fields of a JSONL file or hub data set (dots reach into nested fields: `translation.de`).
    """

    source: Path | None = None
    target: Path | None = None
    tsv: Path | None = None
    jsonl: Path | None = None
    hub: str | None = None
    hub_config: str | None = None
    split: str | None = None
    columns: tuple[str, str] | tuple[int, int] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> CorpusConfig:
        origins = [self.source is not None or self.target is not None, bool(self.tsv), bool(self.jsonl), bool(self.hub)]
        if sum(origins) != 1:
            raise ValueError("a corpus is either {source, target}, {tsv}, {jsonl} or {hub}")
        if origins[0] and (self.source is None or self.target is None):
            raise ValueError("a corpus of two files needs both source and target")
        if self.tsv and self.columns and not all(isinstance(column, int) and column > 0 for column in self.columns):
            raise ValueError("columns of a TSV are two numbers, counted from 1")
        if (self.jsonl or self.hub) and not (self.columns and all(isinstance(name, str) for name in self.columns)):
            raise ValueError("a jsonl or hub corpus needs columns: [source field, target field]")
        return self


class DataConfig(Section):
    """The corpora and which of their pairs are kept. Lengths are in vocabulary pieces, without the end mark."""

    train: CorpusConfig
    dev: CorpusConfig | None = None
    folder: Path | None = None
    max_length: PositiveInt = 100
    max_ratio: Annotated[float, Field(gt=1)] | None = None
    drop_duplicates: bool = False


class SideConfig(Section):
    """How the text of one side is prepared before the vocabulary cuts it into pieces."""

    language: str = "en"
    normalise: tuple[Literal["nfkc", "punctuation", "lower"], ...] = ()
    segment: Literal["none", "whitespace", "moses"] = "none"


class TextConfig(Section):
    """Preparation of both sides."""

    source: SideConfig = SideConfig()
    target: SideConfig = SideConfig()


class VocabularyConfig(Section):
    """The vocabulary: its kind, its size (with the four special symbols) and whether both sides share it.

    `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens; `whitespace`
    keeps every token that whitespace separates and gives it back unchanged. `size` does not bind `char`/`whitespace`.
    """

    kind: Literal["bpe", "unigram", "char", "word", "whitespace"] = "bpe"
    size: Annotated[int, Field(gt=4)] = 8000
    shared: bool = False
    min_frequency: PositiveInt = 1
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0


def _named(value: Any, key: str) -> Any:
    """A bare name stands for a component without options: `attention` for `{kind: attention}`."""
    if isinstance(value, str):
        return {key: value}
    if isinstance(value, list | tuple):
        return [_named(each, key) for each in value]
    return value


Mixer = Annotated[dict[str, Any] | list[dict[str, Any]], BeforeValidator(lambda value: _named(value, "kind"))]


Metrics = Annotated[tuple[dict[str, Any], ...], BeforeValidator(lambda value: _named(value, "name"))]


class StackConfig(Section):
    """One side of a Transformer: its layers, and how information moves in them (one mixer, or a list, one a layer)."""

    layers: PositiveInt = 6
    mixer: Mixer = Field(default={"kind": "attention"}, validate_default=True)

    @model_validator(mode="after")
    def _one_mixer_a_layer(self) -> StackConfig:
        if isinstance(self.mixer, list) and len(self.mixer) != self.layers:
            raise ValueError(f"mixer is a list of {len(self.mixer)} for {self.layers} layers; give one per layer")
        return self

    def mixers(self) -> list[dict[str, Any]]:
        """The mixer options of each layer, lowest first."""
        return list(self.mixer) if isinstance(self.mixer, list) else [self.mixer] * self.layers


class TransformerConfig(Section):
    """The Transformer of Vaswani et al. (2017). `head_dim` frees the size of a head from dim / heads (table 3, row B).

    A model may be written as a preset's name, or as `{preset: NAME, ...}` with changes to it.

    `tied`: `all` shares source, target and output embeddings, `target` the last two, `none` nothing; by default `all`
    where the vocabulary is shared and `target` elsewhere.
    """

    kind: Literal["transformer"] = "transformer"
    dim: PositiveInt = 512
    feed_forward: PositiveInt = 2048
    heads: PositiveInt = 8
    head_dim: PositiveInt | None = None
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    activation: Literal["relu", "gelu"] = "relu"
    norm: Literal["post", "pre"] = "post"
    position: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    max_position: PositiveInt = 1024
    tied: Literal["all", "target", "none"] | None = None
    encoder: StackConfig = StackConfig()
    decoder: StackConfig = StackConfig()

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, value: Any) -> Any:
        value = _named(value, "preset")
        if not (isinstance(value, dict) and "preset" in value):
            return value
        changes = {key: each for key, each in value.items() if key != "preset"}
        preset = value["preset"]
        if not (isinstance(preset, str) and preset in PRESETS):
            raise ValueError(f"unknown preset {preset!r}; allowed: {', '.join(PRESETS)}")
        return merge(PRESETS[preset], changes)

    @model_validator(mode="after")
    def _heads_fit(self) -> TransformerConfig:
        if self.head_dim is None and self.dim % self.heads:
            raise ValueError(
                f"heads ({self.heads}) do not divide dim ({self.dim}); set head_dim or another number of heads"
            )
        return self


# Vaswani et al. (2017), table 3 (base, big); small and tiny are the sizes used for corpora of tens of thousands of
# pairs.
PRESETS: dict[str, dict[str, Any]] = {
    "transformer-base": {},
    "transformer-big": {"dim": 1024, "feed_forward": 4096, "heads": 16, "dropout": 0.3},
    "transformer-small": {
        "dim": 256, "feed_forward": 1024, "heads": 4, "encoder": {"layers": 3}, "decoder": {"layers": 3},
    },
    "transformer-tiny": {
        "dim": 128, "feed_forward": 256, "heads": 4, "dropout": 0.3, "encoder": {"layers": 4}, "decoder": {"layers": 4},
    },
}  # fmt: skip


class ObjectiveConfig(Section):
    """What training minimises: cross-entropy with label smoothing (Szegedy et al. 2016)."""

    label_smoothing: Probability = 0.1


class OptimizerConfig(Section):
    """The optimizer and the learning rate over the updates.

    `inverse_sqrt`: linear warm-up to `learning_rate`, then proportional to update ** -0.5. `noam`: dim ** -0.5 *
    min(update ** -0.5, update * warmup ** -1.5), times `learning_rate`. `linear`: warm-up, then down to zero at the
    last update. `constant`: warm-up, then `learning_rate`.
    """

    kind: Literal["adam", "adamw"] = "adam"
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0)] = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["inverse_sqrt", "noam", "linear", "constant"] = "inverse_sqrt"
    warmup: Annotated[int, Field(ge=0)] = 4000


class AverageConfig(Section):
    """Which checkpoints the final model is the mean of: the `count` last, or the `count` best on dev."""

    of: Literal["last", "best"] = "best"
    count: PositiveInt = 1


class TrainingConfig(Section):
    """The training loop.

    `updates`, `epochs`, `minutes`: the end, whichever comes first. `batch_tokens` counts padded tokens of the longer
    side and is global: over all processes. `dev_metrics`: what dev is decoded for (by default the task's metrics; `[]`
    for none). `best_by`: `loss` or a dev metric; says which checkpoints are the best and, with `patience`, ends
    training once that many evaluations brought no better one. `max_bad_updates`: how many NaN or infinite losses in a
    row are skipped.
    """

    updates: PositiveInt | None = None
    epochs: PositiveInt | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    batch_tokens: PositiveInt = 4096
    accumulate: PositiveInt = 1
    clip_norm: Annotated[float, Field(gt=0)] | None = 1.0
    precision: Literal["float32", "bf16"] = "float32"
    seed: Annotated[int, Field(ge=0)] = 1
    log_every: PositiveInt = 50
    checkpoint_every: PositiveInt = 1000
    evaluate_every: PositiveInt | None = None
    dev_metrics: Metrics | None = None
    best_by: str | None = None
    patience: PositiveInt | None = None
    keep_last: PositiveInt = 3
    average: AverageConfig = AverageConfig()
    max_bad_updates: PositiveInt = 3
    strategy: Literal["ddp", "fsdp"] = "ddp"
    tensorboard: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> TrainingConfig:
        if self.updates is None and self.epochs is None and self.minutes is None:
            raise ValueError("give updates, epochs or minutes: training needs an end")
        if self.evaluate_every and self.evaluate_every % self.checkpoint_every:
            raise ValueError("evaluate_every must be a multiple of checkpoint_every")
        return self


class DecodingConfig(Section):
    """Search. Scores are log probabilities over ((5 + length) / 6) ** length_penalty (Wu et al. 2016, equation 14).

    The longest output is `max_length` pieces where given, else `max_length_ratio` * source + `max_length_offset`.
    """

    beam: PositiveInt = 4
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    min_length: Annotated[int, Field(ge=0)] = 0
    max_length: PositiveInt | None = None
    max_length_ratio: Annotated[float, Field(ge=0)] = 1.0
    max_length_offset: Annotated[int, Field(ge=0)] = 50
    batch_tokens: PositiveInt = 4096


class Recipe(Section):
    """Everything that one experiment is made of."""

    task: str = "translation"
    data: DataConfig
    text: TextConfig = TextConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: TransformerConfig = TransformerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()


def merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, section by section."""
    result = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if nested else value
    return result


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, apply `key.path=value` overrides (values are YAML) and check all of it.

    Relative paths of data are looked for in `data.folder` where given, else in the current folder, else beside the
    recipe.

    Raises:
        UserError: a file that cannot be read, is no YAML mapping, or holds unknown keys or values that are not allowed.
    """
    tree = read_tree(path)
    for override in overrides:
        apply_override(tree, override)
    return resolve_paths(parse_recipe(tree), path.parent)


def read_tree(path: Path) -> dict[str, Any]:
    """The raw tree of a recipe file. Raises UserError for a file that cannot be read or is no YAML mapping."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the recipe ({error})", where=str(path)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "syntax error"
        raise UserError(f"this is not YAML ({problem})", where=f"{path}{line}") from error
    if not isinstance(tree, dict):
        raise UserError("a recipe is a mapping of keys to values", where=str(path), received=type(tree).__name__)
    return tree


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set one `key.path=value` in the raw tree."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise UserError("an override is key.path=value", where=override)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError("the value of this override is not YAML", where=override) from error
    *parents, last = key.split(".")
    section = tree
    for parent in parents:
        below = section.get(parent)
        if below is None:
            below = section[parent] = {}
        elif isinstance(below, str):  # a bare name, such as a preset or a mixer
            below = section[parent] = {"preset" if parent == "model" else "kind": below}
        if not isinstance(below, dict):
            raise UserError(f"{parent} holds a value, not keys", where=override, received=below)
        section = below
    section[last] = value


def parse_recipe(tree: dict[str, Any]) -> Recipe:
    """Check a raw tree. Raises UserError that lists every mistake, with the recipe key of each."""
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise UserError(explain(error)) from error


def explain(error: ValidationError) -> str:
    """Every mistake on a line of its own, with its recipe key."""
    return "\n".join(_explain(each) for each in error.errors())


def _explain(error: Any) -> str:
    path = [str(part) for part in error["loc"]]
    where = ".".join(path) or "recipe"
    if error["type"] == "extra_forbidden":
        names = list(_fields_at(path[:-1]))
        return str(UserError(f"unknown key{nearest(path[-1], names)}", where=where, allowed=names))
    if error["type"] == "missing":
        return f"{where}: this key is needed"
    message = error["msg"].removeprefix("Value error, ")
    received = "" if isinstance(error["input"], dict | BaseModel) else f"; received {error['input']!r}"
    return f"{where}: {message[0].lower()}{message[1:]}{received}"


def _fields_at(path: Sequence[str]) -> Iterable[str]:
    section: type[BaseModel] = Recipe
    for name in path:
        annotation = section.model_fields[name].annotation
        candidates = [annotation, *get_args(annotation)]
        section = next(each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel))
    return section.model_fields


def resolve_paths(recipe: Recipe, beside: Path) -> Recipe:
    """The recipe with absolute paths, so that its copy in the run folder works from anywhere."""

    def resolve(path: Path) -> Path:
        places = [recipe.data.folder] if recipe.data.folder else [Path(), beside]
        found = next((place / path for place in places if (place / path).exists()), places[0] / path)
        return found.absolute()

    def corpus(config: CorpusConfig) -> CorpusConfig:
        paths = {name: getattr(config, name) for name in ("source", "target", "tsv", "jsonl")}
        return config.model_copy(update={name: resolve(path) for name, path in paths.items() if path is not None})

    data = recipe.data
    resolved = {"train": corpus(data.train), "dev": data.dev and corpus(data.dev), "folder": None}
    return recipe.model_copy(update={"data": data.model_copy(update=resolved)})


def dump_recipe(recipe: Recipe) -> str:
    """The recipe as YAML, every key written out."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def changed_keys(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    """The keys in which two recipes differ, with both values."""
    old, new = (_flatten(recipe.model_dump(mode="json")) for recipe in (before, after))
    return {key: (old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)}


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
