"""The sections of a recipe besides the model, and the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from headway.errors import UserError
from headway.recipe.audio import AudioConfig
from headway.recipe.base import Metrics, Probability, Section
from headway.recipe.models import MODELS, AnyModel, ModelSection, TransformerConfig
from headway.recipe.objectives import ObjectiveConfig
from headway.recipe.parses import ParsesConfig


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | Path) else value


class CorpusConfig(Section):
    """Where examples come from. Pairs: two line-aligned files, one TSV, one JSONL file or a data set of the hub.

    Plain files may be compressed (.gz, .xz). `columns` names the source and target column of a TSV (numbers from 1, or
    names that stand in its first row), or the two fields of a JSONL file or hub data set (dots reach into nested
    fields: `translation.de`).

    Speech: pairs whose source is the path of a recording, relative to the file it stands in, or one or more folders
    laid out as `librispeech` is.

    Labelled words: a `tsv` with a word a row and a blank line between sentences (`columns`: those of word and label), a
    `conllu` file (`label`: its column), an `m2` file (`annotator`: one by number, or all) or a `source` with corrected
    `references`, from which wrong words are found.

    `trees`: a treebank in Penn brackets or TIGER-XML. The target is the linear form of a tree, with `leaves` of `tags`
    or `xx`; `functions` keeps what labels say of grammatical functions.
    """

    source: Path | None = None
    target: Path | None = None
    tsv: Path | None = None
    jsonl: Path | None = None
    hub: str | None = None
    hub_config: str | None = None
    split: str | None = None
    m2: Path | None = None
    annotator: Annotated[int, Field(ge=0)] | None = None
    conllu: Path | None = None
    label: Literal["upos", "xpos", "lemma", "deprel"] = "upos"
    references: tuple[Path, ...] = ()
    librispeech: Annotated[tuple[Path, ...], BeforeValidator(_listed)] = ()
    trees: Path | None = None
    leaves: Literal["tags", "xx"] = "tags"
    functions: bool = False
    columns: tuple[str, str] | tuple[int, int] | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> CorpusConfig:
        origins = (self.tsv, self.jsonl, self.hub, self.m2, self.conllu, self.librispeech, self.trees)
        files = self.source is not None or self.target is not None or bool(self.references)
        if files + sum(map(bool, origins)) != 1:
            raise ValueError(
                "a corpus is either {source, target}, {tsv}, {jsonl}, {hub}, {m2}, {conllu}, {trees}, {references} or"
                " {librispeech}"
            )
        if files and (self.source is None or (self.target is None) != bool(self.references)):
            raise ValueError("a corpus of several files needs a source, and a target or references")
        if self.annotator is not None and not self.m2:
            raise ValueError("annotator belongs to m2")
        if (self.leaves != "tags" or self.functions) and not self.trees:
            raise ValueError("leaves and functions belong to trees")
        if self.tsv and any(isinstance(column, int) and column < 1 for column in self.columns or ()):
            raise ValueError("columns of a TSV are two numbers, counted from 1, or two names of its first row")
        if (self.jsonl or self.hub) and not (self.columns and all(isinstance(name, str) for name in self.columns)):
            raise ValueError("a jsonl or hub corpus needs columns: [source field, target field]")
        return self

    def origin(self) -> str:
        """Which kind of origin this is, by the key that tells, such as target (of two files), tsv or trees."""
        keys = ("target", "tsv", "jsonl", "hub", "m2", "conllu", "references", "trees", "librispeech")
        return next(key for key in keys if getattr(self, key))


class DataConfig(Section):
    """The corpora and which of their pairs are kept.

    `count`: whether `max_length` and `max_ratio` are about vocabulary `pieces`, without the end mark, or about the
    `words` of the segmented text, before the vocabulary cuts them.
    """

    train: CorpusConfig
    dev: CorpusConfig | None = None
    folder: Path | None = None
    count: Literal["pieces", "words"] = "pieces"
    max_length: PositiveInt = 100
    max_ratio: Annotated[float, Field(gt=1)] | None = None
    drop_duplicates: bool = False
    parses: ParsesConfig = ParsesConfig()
    audio: AudioConfig = AudioConfig()


class SideConfig(Section):
    """How the text of one side is prepared before the vocabulary cuts it into pieces."""

    language: str = "en"
    normalise: tuple[Literal["nfkc", "punctuation", "lower"], ...] = ()
    segment: Literal["none", "whitespace", "moses"] = "none"


class TextConfig(Section):
    """Preparation of both sides."""

    source: SideConfig = SideConfig()
    target: SideConfig = SideConfig()


class PiecesConfig(Section):
    """The pieces of text: their kind and number (with the four special symbols).

    `bpe`, `unigram` and `char` are SentencePiece models; `word` keeps the most frequent segmented tokens; `whitespace`
    keeps every token that whitespace separates and gives it back unchanged. `size` does not bind `char`/`whitespace`.
    """

    kind: Literal["bpe", "unigram", "char", "word", "whitespace"] = "bpe"
    size: Annotated[int, Field(gt=4)] = 8000
    min_frequency: PositiveInt = 1
    character_coverage: Annotated[float, Field(gt=0, le=1)] = 1.0


class VocabularyConfig(PiecesConfig):
    """The vocabulary of either side, or one that both share. `target`: what the target's is, where it is of its own."""

    shared: bool = False
    target: PiecesConfig | None = None

    @model_validator(mode="after")
    def _one_or_two(self) -> VocabularyConfig:
        if self.shared and self.target:
            raise ValueError("a shared vocabulary has no target of its own")
        return self


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
    side (of speech: frames) and is global: over all processes; with `batch_sentences`, a batch is so many examples
    instead. `dev_metrics`: what dev is decoded for (by default the task's metrics; `[]` for none). `best_by`: `loss` or
    a dev metric; says which checkpoints are the best and, with `patience`, ends training once that many evaluations
    brought no better one.
    `max_bad_updates`: how many NaN or infinite losses in a row are skipped.
    """

    updates: PositiveInt | None = None
    epochs: PositiveInt | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    batch_tokens: PositiveInt = 4096
    batch_sentences: PositiveInt | None = None
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


AnyKind = TypeVar("AnyKind", bound=ModelSection)


class Recipe(Section):
    """Everything that one experiment is made of."""

    task: str = "translation"
    data: DataConfig
    text: TextConfig = TextConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    model: AnyModel = TransformerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()

    def model_as(self, kind: type[AnyKind]) -> AnyKind:
        """The model section, for a task that can use only such. Raises UserError where it is of another kind."""
        if not isinstance(self.model, kind):
            raise UserError(
                f"the task {self.task} cannot use this kind of model",
                where="model.kind",
                received=self.model.kind,
                allowed=[name for name, each in MODELS.items() if issubclass(each, kind)],
            )
        return self.model
