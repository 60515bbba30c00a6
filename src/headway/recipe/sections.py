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
    """The corpora, and filters for their examples.

    `train`, `dev`: a corpus (`headway list formats`), or a list of corpora, which are concatenated. `folder`: the
    base of relative paths. `general`: a second dev set, for abilities that fine-tuning on other data should keep;
    it is evaluated beside dev, and the loss of quality is logged. `lead`: beginnings of the dev sources that are scored
    as baselines. `parses`: the parsers of both sides. `links`: what makes the word alignments of the training corpus.
    `audio`: the features of recordings. `context`: the number of earlier sentences that are read with each sentence of
    a document, `2` or `{source: 2, target: 1}`; a line with a blank source ends a document. The earliest context is
    dropped if the text would exceed `max_length`.
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
    """The checkpoints that are averaged into the final model: the `count` last, or the `count` best on dev.

    `of`: whether the best checkpoints or the last ones are averaged. `count`: their number. `kind`: with `ema`, an
    exponential moving average of the weights is stored in checkpoints, evaluated and used as the final model. `decay`:
    the decay rate d of `ema` (0.999 by default): a <- d' a + (1 - d') w after each update t, d' = min(d, (1 + t) / (10
    + t)).
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
    """Low-rank adaptation (Hu et al. 2022): the weights are frozen, and some linear maps learn a low-rank change.

    `rank`: the rank of the change. `alpha`: the change is scaled by `alpha` / `rank`. `dropout`: the dropout of its
    input. `linears`: patterns of the names of linear maps; layers count from 1 (`decoder.1.*`). The changes are merged
    into the final weights.
    """

    rank: Width = 8
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 16.0
    dropout: Probability = 0.0
    linears: Annotated[tuple[str, ...], Field(min_length=1)] = ("*.*",)


class SubwordSamplingConfig(Section):
    """Words are segmented differently in each epoch, at random. Dev and prediction are not affected.

    `alpha`: for byte-pair encoding, the probability of skipping a merge (Provilkov et al. 2020); for a unigram model,
    the exponent of the probabilities of segmentations (Kudo 2018). Batches are planned with the sampled lengths. A
    sentence that would exceed `data.max_length` is not sampled; if that counts words, the limit is the model's maximum
    length. `sides`: the sides whose words are sampled.
    """

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    sides: Literal["both", "source", "target"] = "both"


class TrainingConfig(Section):
    """The settings of training.

    `from`: a run whose vocabulary and final weights training starts from. Missing sections on task, text, vocabulary
    and model are those of that run.
    `extend_vocabulary`: the maximum number of tokens from the training corpus that are added to each vocabulary of that
    run.
    `subword_sampling`: words are segmented differently in each epoch.
    `lora`: a model that starts from a run or a model learns only low-rank changes.
    `int8_rounding`: training and evaluation round weights and activations to 8 bits, as engines do. With `true`, the
    range of activations is that of each batch, and stored weights are not rounded. With `fixed`, ranges are measured on
    300 training examples, move for half of `updates`, and are stored, as are the rounded weights: the run is what its
    export for an engine computes, unless the precision of prediction is given.
    `updates`, `epochs`, `minutes`: the limits of training; the first one that is reached ends it.
    `batch_tokens`: the size of a batch over all processes, in padded tokens of the longer side (frames for speech).
    `auto` tries 1,024 to 65,536 tokens when a run begins on a GPU, of the longest sentences, and of those whose sides
    are most alike, and uses the largest batch that fits in nine tenths of the memory (half with `capture`), times the
    number of processes. On other devices it is 4,096. `batch_sentences`: the number of examples of a batch, instead.
    `accumulate`: the batches of an update. `clip_norm`: the largest norm of a gradient; larger ones are scaled down.
    `seed`: decides the initial weights and every random draw of training.
    `shapes`: with `few`, batches are padded to at most 32 sizes, the same in all epochs. `capture`: on a GPU, a step is
    recorded as a CUDA graph for each of the sizes of `shapes: few`, and replayed, with learning rates in single
    precision. It needs one process, `adam`, `adamw` or `sgd`, and a Transformer, a decoder-only model without learned
    positions, or LSTMs or GRUs with soft attention or none.
    `log_every`, `checkpoint_every`, `evaluate_every`: the updates between lines of metrics.jsonl, between checkpoints,
    and between evaluations on dev, by default one for each checkpoint. `keep_last`: the number of last checkpoints that
    are kept. Those of the final weights are kept, too. `average`: the checkpoints, or the moving average, of the final
    weights.
    `dev_metrics`: the metrics of the outputs for dev (by default the task's metrics; `[]` for none). `best_by`: `loss`
    or a dev metric; determines the best checkpoints (ties are decided by the loss). `patience`: training ends after
    this number of evaluations without a better one. `mean_over`: the loss is averaged over target tokens or sentences
    (Sutskever et al. 2014, Luong et al. 2015). `most_forgotten`: training ends if `data.general`, measured by
    `best_by`, becomes worse than before the first update by more than this. Later checkpoints are never the best.
    `precision`: with `auto`, the first run of a size on a machine times up to nine pairs of training steps of a similar
    model on made sentences, in float32 and bf16 in turn. bf16 is used if three of four pairs show it to be at least 1.2
    times as fast. The record is in HEADWAY_CACHE/precision, by processor or GPU, instruction set, versions, kind of
    model and size class (powers of two of the weights and of the sentences of a batch).
    `float32`: how GPUs with TF32 (NVIDIA's from compute capability 8) multiply float32: as `tf32` (the default there,
    which reads 10 of the 23 bits of each fraction in matrix products, convolutions and recurrent layers), `exact`, or
    exactly except in cuDNN, as torch does (`cudnn`). On other devices it is always exact.
    `activation_checkpointing`: layers are recomputed in the backward pass, which saves memory and takes more time.
    `compile`: training steps are compiled first, which takes minutes, and then run faster. Results may differ slightly.
    `max_bad_updates`: the number of consecutive updates with a NaN or infinite loss or gradient that ends training.
    `loggers`: experiment trackers that receive the values of metrics.jsonl, by kind or `module:Class`.
    `strategy`: several processes each hold the whole model (`ddp`), or shares of its weights and states (`fsdp`).
    `wait_minutes`: with several processes, how long a process waits for another one.
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
    int8_rounding: bool | Literal["fixed"] = False
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
        if self.int8_rounding == "fixed" and self.updates is None:
            raise ValueError("int8_rounding: fixed needs updates: ranges move for half of them")
        if self.int8_rounding == "fixed" and (self.compile or self.capture):
            raise ValueError("give int8_rounding: fixed, or else compile or capture: ranges move between updates")
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
