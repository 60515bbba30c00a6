"""Training steps on artificial batches, for comparing precisions before a run begins."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from headway.core.errors import memory_named
from headway.losses import Objective, ObjectiveConfig
from headway.models import Model, ModelConfig, Seq2Seq, Tagger, TaggerConfig, build_model
from headway.optimizers.optimizers import build_optimizer
from headway.recipe import Recipe
from headway.tasks.encoder_sources import encoder_source
from headway.tensors.batch import SPECIALS, TargetBatch, TokenBatch, collate
from headway.tensors.linear import round_to_int8, use_backend
from headway.tensors.low_rank import adapt
from headway.training.capture import CapturedUpdate
from headway.training.parallel import Parallel
from headway.training.updates import SMALLER_BATCHES, TrainingStep, compute_gradients, make_update

POSITIONS, FRAMES = 32, 512  # of an artificial sentence, and of artificial speech
SHORTER = 4  # the factor by which these are shorter on a CPU
FRAMES_OF_A_TOKEN = 16
FEW, UNBOUNDED = 256, ("byte", "char", "whitespace")  # tokens of a vocabulary whose size depends on the corpus


class Trial:
    """Training steps for a recipe, with a model and artificial batches like its own: forward, loss, backward and
    optimizer.

    Args:
        recipe: the recipe. The constraints of its objective are left out, and the model has other weights.
        device: the device.

    Attributes:
        positions: the length of a sentence, on its longer side.
        sentences: the number of sentences of a whole batch.
    """

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self.recipe, self.device, training = recipe, device, recipe.training
        self.reads_frames = isinstance(recipe.model, ModelConfig) and recipe.model.reads_frames()
        both = recipe.vocabulary
        self.sizes = [FEW if side.kind in UNBOUNDED else side.size for side in (both, both.target or both)]
        self.positions = (FRAMES if self.reads_frames else POSITIONS) // (SHORTER if device.type == "cpu" else 1)
        self.sentences = training.batch_sentences or max(1, training.batch_sizes()["batch_tokens"] // self.positions)

    def model(self) -> Model[Any]:
        """A model like the recipe's, with random weights."""
        section, training, (source, target) = self.recipe.model, self.recipe.training, self.sizes
        if isinstance(section, TaggerConfig):
            section = section.model_copy(update={"cache_bytes": 0})  # its random weights are measured
            encoder = encoder_source(section)
            model: Model[Any] = encoder.tagger(2, encoder.words([]), initial=False)
        else:
            config = self.recipe.model_as(ModelConfig).model_copy(update={"match_parameters": None})
            source = self.recipe.data.audio.bins if self.reads_frames else source
            model = build_model(config, source, target, self.recipe.vocabulary.shared)
        if (lora := training.lora) is not None:
            adapt(model, lora.rank, lora.alpha, lora.dropout, lora.linears)
        if training.int8_rounding:
            round_to_int8(model)
        return model

    def step(self, backend: str) -> Callable[[int, str], None]:
        """A function that makes a step with this number of sentences in this precision, at a learning rate of 0."""
        model, training, clip = self.model(), self.recipe.training, self.recipe.training.clip_norm
        use_backend(model, backend)
        objective = Objective(ObjectiveConfig(label_smoothing=self.recipe.objective.label_smoothing))
        module = TrainingStep(model, objective).to(self.device).train()
        optimizers = cache(lambda kind: build_optimizer(self.recipe.optimizer, module, model.blocks()))

        @cache
        def update(precision: str) -> Callable[[Sequence[TargetBatch]], object]:
            parallel = Parallel(0, 1, self.device, training, precision=precision)
            if training.capture:  # the learning rate is a tensor
                captured = CapturedUpdate(module, optimizers(precision), parallel)
                return lambda batches: captured(batches, None, 0.0)
            return lambda each: make_update(optimizers(""), compute_gradients(module, each, parallel, clip, None), 0.0)

        @cache
        def prepared(sentences: int, precision: str) -> Sequence[TargetBatch]:
            batches = [self.batch(model, sentences)]
            for _ in range(2 if training.capture else 0):
                update(precision)(batches)
            return batches

        def take(sentences: int, precision: str) -> None:
            with memory_named(f"in a batch of {sentences} examples", SMALLER_BATCHES):
                update(precision)(prepared(sentences, precision))

        return take

    def batch(self, model: Model[Any], sentences: int) -> TargetBatch:
        """A batch of equally long sentences, as long as `positions` or the longest that the model reads."""
        if isinstance(model, Tagger):
            places = torch.arange(self.positions).repeat(sentences, 1)
            real = torch.ones_like(places).bool()
            return TokenBatch(
                tokens=places % 2, token_mask=real, first=places, word_mask=real, target_output=places % 2,
                target_mask=real, indices=np.arange(sentences), counts={"target_tokens": places.numel()},
            )  # fmt: skip
        assert isinstance(model, Seq2Seq)
        frames, length = model.trial_source(self.positions), self.positions - 1
        length = max(1, model.longest_pair(length // FRAMES_OF_A_TOKEN if self.reads_frames else length))
        ids = np.arange(sentences * length).reshape(sentences, length)
        targets = list(ids % (min(FEW, *self.sizes) - len(SPECIALS)) + len(SPECIALS))
        return collate([frames] * sentences if self.reads_frames else targets, targets)
