"""The sections of a recipe except the model, and the whole recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PlainValidator, SerializeAsAny, model_validator
from pydantic_core import PydanticCustomError

from headway.core.config import Components, Count, Metrics, Probability, Section, Seed, Width
from headway.core.errors import UserError
from headway.core.registry import config_of
from headway.corpora.documents import AnyContext, ContextConfig
from headway.corpora.filters import Filters
from headway.corpora.lead import LeadConfig
from headway.formats.corpus_config import AnyCorpus, CorpusField
from headway.losses import ObjectiveConfig
from headway.models import MODELS, ModelSection, TransformerConfig, model_section
from headway.optimizers.optimizers import OptimizerConfig
from headway.parses.links import AnyLinks
from headway.parses.parse_store import ParsesConfig
from headway.processing.audio.features import AudioConfig
from headway.processing.text.text_processor import TextConfig
from headway.processing.text.vocabulary import AnyVocabulary, VocabularyConfig
from headway.search.decoding_options import SearchOptions

USUAL_TOKENS = 4096  # of a batch


class DataConfig(Filters):
    """The corpora, and which of their examples are kept.

    `train` and `dev`: a corpus (`headway list formats`), or a list of several, one after the other. `folder`: where
    their relative paths begin. `general`: a second dev set, of what a model can do before it goes on with other data;
    it is evaluated beside dev, and what is forgotten is said. `lead`: beginnings of the dev sources that are scored as
    if they were outputs, beside the model's. `parses` names the parsers of both sides, `links` what aligns words;
    `audio` says how recordings become frames. `context`: how many sentences before each in its document are read with
    it, `2` or `{source: 2, target: 1}`; a line whose source is blank ends a document. What gets longer than
    `max_length` loses the earliest of them.
    """

    train: CorpusField
    dev: CorpusField | None = None
    general: CorpusField | None = None
    folder: Path | None = None
    lead: tuple[LeadConfig, ...] = ()
    parses: ParsesConfig = ParsesConfig()
    links: AnyLinks | None = None
    audio: AudioConfig = AudioConfig()
    context: AnyContext = ContextConfig()

    def corpora(self) -> dict[str, AnyCorpus]:
        """The training set and, if set, the dev set and the general dev set, by recipe key."""
        others = {"data.dev": self.dev, "data.general": self.general}
        return {"data.train": self.train} | {name: corpus for name, corpus in others.items() if corpus is not None}

    def lenient(self) -> DataConfig:
        """A copy that skips examples which cannot be read."""
        return self.model_copy(update={"broken": "skip", "audio": self.audio.model_copy(update={"broken": "skip"})})


class AverageConfig(Section):
    """The checkpoints that the final model is the mean of: the `count` last, or the `count` best on dev.

    `kind`: `ema` lets checkpoints, their evaluation and the final model have an exponential moving average of the
    weights, `decay` being what an update leaves of it (0.999 by default), and less in the first updates.
    """

    of: Literal["last", "best"] = "best"
    count: Count = 1
    kind: Literal["checkpoints", "ema"] = "checkpoints"
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _decay_of_ema(self) -> AverageConfig:
        if self.decay is not None and self.kind != "ema":
            raise ValueError("decay is of kind ema, a moving average of weights")
        return self


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al. 2022): weights stay as they are, and some linear maps learn a small change.

    `rank` of the change, which is scaled by `alpha` / `rank`; `dropout` of what it reads. `linears`: patterns of the
    names of linear maps, whose layers count from 1 (`decoder.1.*`). The final weights have the changes merged
    into them.
    """

    rank: Width = 8
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 16.0
    dropout: Probability = 0.0
    linears: Annotated[tuple[str, ...], Field(min_length=1)] = ("*.*",)


class SubwordSamplingConfig(Section):
    """Words are cut into other pieces in each epoch, drawn at random; dev and prediction are not touched.

    `alpha`: of a byte-pair encoding the probability with which a merge is left out (Provilkov et al. 2020), of a
    unigram model the power of the probabilities of segmentations (Kudo 2018). Batches are planned by the lengths of
    what is drawn. A sentence that would get longer than `data.max_length` keeps its pieces; where that counts words,
    one that would get longer than the model reads.
    """

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    sides: Literal["both", "source", "target"] = "both"


class TrainingConfig(Section):
    """The training loop.

    `from`: a run whose vocabulary and final weights training begins with; sections on task, text, vocabulary and model
    that are left out are that run's.
    `extend_vocabulary`: the vocabularies of that run get up to so many further tokens each, from the training corpus.
    `subword_sampling`: other pieces of the same words in each epoch.
    `lora`: what begins from a run or a model learns low-rank changes alone.
    `int8_rounding`: training and its evaluation compute with weights and activations that are rounded to 8 bits, as
    engines round them. The weights that are kept are not rounded.
    `updates`, `epochs`, `minutes`: the end, whichever comes first. `batch_tokens` counts padded tokens of the longer
    side (of speech: frames) and is global: over all processes; `auto` finds the most that fit in the memory
    of a GPU, and is 4,096 elsewhere. With `batch_sentences`, a batch is so many examples instead.
    `shapes`: with `few`, batches are padded to at most 32 sizes, the same in all epochs. `capture`: on a GPU, a step is
    recorded for each of these, and from then on replayed.
    `dev_metrics`: what dev is decoded for (by default the task's metrics; `[]` for none). `best_by`: `loss` or a dev
    metric; says which checkpoints are the best (of equal scores those with the lower loss) and, with `patience`,
    ends training once that many evaluations brought no better one. `mean_over`: gradients are those of the mean loss a
    target token, or a sentence (Sutskever et al. 2014, Luong et al. 2015). `most_forgotten`: training ends where
    `data.general` is worse by more than that, in the same measure, than before the first update; checkpoints after that
    are none of the best.
    `precision`: `auto` takes bf16 where steps of such a model are measured to be quicker in it, else float32.
    `float32`: how GPUs with TF32 multiply float32: as `tf32` (the default there), `exact`, or exactly but in cuDNN, as
    torch itself does (`cudnn`). Everywhere else it is exact.
    `activation_checkpointing`: layers are computed a second time on the way back, for less memory and more time.
    `compile`: training steps are compiled first, which takes minutes and makes later ones quicker; the numbers are
    those of the compiler.
    `max_bad_updates`: how many NaN or infinite losses in a row are skipped.
    `loggers`: programs that get the numbers of metrics.jsonl too, by kind or `module:Class`.
    `wait_minutes`: of several processes, how long one waits for another that works before it gives up.
    """

    updates: Count | None = None
    epochs: Count | None = None
    minutes: Annotated[float, Field(gt=0, le=1e7)] | None = None
    batch_tokens: Count | Literal["auto"] = USUAL_TOKENS
    batch_sentences: Count | None = None
    shapes: Literal["any", "few"] = "any"
    capture: bool = False
    accumulate: Count = 1
    mean_over: Literal["tokens", "sentences"] = "tokens"
    clip_norm: Annotated[float, Field(gt=0, le=1e38)] | None = 1.0
    precision: Literal["auto", "float32", "bf16"] = "auto"
    float32: Literal["auto", "exact", "cudnn", "tf32"] = "auto"
    seed: Seed = 1
    log_every: Count = 50
    checkpoint_every: Count = 1000
    evaluate_every: Count | None = None
    dev_metrics: Metrics | None = None
    best_by: str | None = None
    patience: Count | None = None
    most_forgotten: Annotated[float, Field(ge=0, le=1e6)] | None = None
    keep_last: Count = 3
    average: AverageConfig = AverageConfig()
    max_bad_updates: Count = 3
    strategy: Literal["ddp", "fsdp"] = "ddp"
    wait_minutes: Annotated[float, Field(gt=0, le=1e6)] = 60.0
    loggers: Components = ()
    compile: bool = False
    activation_checkpointing: bool = False
    from_: Path | None = Field(default=None, alias="from")
    extend_vocabulary: Count | None = None
    lora: LoraConfig | None = None
    int8_rounding: bool = False
    subword_sampling: SubwordSamplingConfig | None = None

    @model_validator(mode="after")
    def _coherent(self) -> TrainingConfig:
        if self.updates is None and self.epochs is None and self.minutes is None:
            raise ValueError("give updates, epochs or minutes: training needs an end")
        if self.evaluate_every and self.evaluate_every % self.checkpoint_every:
            raise ValueError("evaluate_every must be a multiple of checkpoint_every")
        if self.extend_vocabulary and self.from_ is None:
            raise ValueError("extend_vocabulary is of the run of training.from, which is not given")
        if self.extend_vocabulary and self.lora is not None:
            raise ValueError("give lora or extend_vocabulary: low-rank changes learn no new tokens")
        if self.int8_rounding and self.lora is not None:
            raise ValueError("give lora or int8_rounding: an engine rounds weights with their changes, not without")
        if self.compile and self.activation_checkpointing:
            raise ValueError("give compile or activation_checkpointing: the compiler decides what it computes again")
        if self.capture and self.shapes == "any":
            raise ValueError("capture needs shapes: few, since each shape is recorded once")
        if self.capture and (self.compile or self.activation_checkpointing):
            raise ValueError("give capture, or else compile or activation_checkpointing, which run code of their own")
        return self

    @property
    def evaluation_interval(self) -> int:
        """The number of updates between evaluations."""
        return self.evaluate_every or self.checkpoint_every

    def batch_sizes(self) -> dict[str, Any]:
        """The batch sizes, as keywords of `TrainingCorpus.plan`. An unresolved `auto` counts as the usual size."""
        tokens = USUAL_TOKENS if self.batch_tokens == "auto" else self.batch_tokens
        return {"batch_tokens": tokens, "batch_sentences": self.batch_sentences}


def _model(value: Any) -> ModelSection:
    try:
        return model_section(value)
    except UserError as error:
        raise PydanticCustomError("explained", "{text}", {"text": str(error)}) from error


AnyModel = Annotated[SerializeAsAny[ModelSection], PlainValidator(_model)]
AnyKind = TypeVar("AnyKind", bound=ModelSection)


class Recipe(Section):
    """Everything that one experiment is made of."""

    task: str = "translation"
    data: DataConfig
    text: TextConfig = TextConfig()
    vocabulary: AnyVocabulary = VocabularyConfig()
    model: AnyModel = TransformerConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig
    decoding: SearchOptions = SearchOptions()

    def model_as(self, kind: type[AnyKind]) -> AnyKind:
        """The model section, for a task that needs this kind of model. Raises UserError if it is of another kind."""
        if not isinstance(self.model, kind):
            raise UserError(
                f"the task {self.task} cannot use this kind of model",
                where="model.kind",
                received=self.model.kind,
                allowed=[name for name in MODELS if issubclass(config_of(MODELS.get(name)), kind)],
            )
        return self.model
