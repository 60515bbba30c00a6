"""From sentences to labels, with a run's tagger: every word gets one.

Shapes: N words of a sentence, V labels, J heads over layers, L layers, K heads, P pieces.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headway.corpora.word_corpus import collate_windows
from headway.device import keep_freed_memory, pick_device
from headway.errors import UserError
from headway.files import write_json
from headway.models.tagger import Tagger, TaggerConfig
from headway.predictors.captured_attention import ALL, Attention, Capture
from headway.processing.pretrained import Window, WordPieces
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder, load_weights, trained_weights
from headway.tasks.pretrained_encoder import build_tagger

LABELS = "labels.json"
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Labelling:
    """What a tagger reads and writes: the encoder's tokenizer, and the labels in the order of their ids."""

    pieces: WordPieces
    labels: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Write both into `folder`."""
        self.pieces.save(folder)
        write_json(folder / LABELS, list(self.labels))

    @classmethod
    def load(cls, folder: Path) -> "Labelling":
        """What `save` wrote. Raises UserError where it is missing or damaged."""
        try:
            labels = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the labels ({error})", where=str(folder / LABELS)) from error
        return cls(WordPieces.load(str(folder)), tuple(labels))


@dataclass(frozen=True)
class LabelledWords:
    """What a tagger makes of a sentence.

    Attributes:
        words: the N words.
        probabilities: (N, V).
        labels: one a word.
        looks: what was looked at, window by window, where it was asked for.
    """

    words: tuple[str, ...]
    probabilities: Floats
    labels: tuple[str, ...]
    looks: "tuple[Look, ...]" = ()


@dataclass(frozen=True)
class Look:
    """What the encoder looked at in one window of a sentence.

    Attributes:
        words: those of the window.
        window: which they are, and their pieces.
        tokens: the P pieces.
        self_attention: (L, K, P, P), lowest layer first.
        layer_weights: (N, J, L), of the window's words; None for a model that does not attend to layers.
    """

    words: tuple[str, ...]
    window: Window
    tokens: list[str]
    self_attention: Floats
    layer_weights: Floats | None

    @property
    def captured(self) -> dict[str, Attention]:
        """`encoder.self` (L, K, P, P) over pieces and, for a model that attends to layers, `layers` (1, J, N, L)."""
        layers = tuple(range(len(self.self_attention)))
        found = {"encoder.self": Attention(layers, self.self_attention, self.tokens, self.tokens)}
        if self.layer_weights is not None:
            names = [f"layer {layer}" for layer in range(self.layer_weights.shape[2])]
            found["layers"] = Attention((0,), self.layer_weights.transpose(1, 0, 2)[None], list(self.words), names)
        return found

    def to_bertviz(self) -> dict[str, Any]:
        """What bertviz shows: `bertviz.head_view(**look.to_bertviz())`."""
        return {"attention": [torch.from_numpy(each)[None] for each in self.self_attention], "tokens": self.tokens}


@dataclass(frozen=True)
class LoadedTagger:
    """A trained tagger with what it reads and writes."""

    recipe: Recipe
    labelling: Labelling
    model: Tagger = field(repr=False)


def load_tagger(path: Path, device: torch.device, average: int | None = None) -> LoadedTagger:
    """Load a run's tagger; nothing but the run folder is read.

    Raises:
        UserError: no run of a tagger, no weights yet, or weights that are damaged.
    """
    keep_freed_memory()
    folder = RunFolder(path)
    recipe = folder.read_recipe()
    if not folder.vocabulary.is_dir():
        raise UserError("this run has no tokenizer yet: training has not begun", where=str(path))
    labelling = Labelling.load(folder.vocabulary)
    config = recipe.model_as(TaggerConfig)
    model = build_tagger(config, len(labelling.labels), folder.vocabulary, initial=False)
    load_weights(model, trained_weights(folder, average), str(folder.weights))
    return LoadedTagger(recipe, labelling, model.to(device).eval())


class TokenPredictor:
    """One tagger, or several whose probabilities are averaged.

    Args:
        runs: the loaded runs.
        device: where their models are.
        positive: the label that a threshold is about; None where the most probable label is taken.

    Raises:
        UserError: runs with different labels.
    """

    def __init__(self, runs: Sequence[LoadedTagger], device: torch.device, positive: str | None = None) -> None:
        self.runs, self.device, self.positive = runs, device, positive
        self.recipe, self.labels = runs[0].recipe, runs[0].labelling.labels
        for number, run in enumerate(runs[1:], start=2):
            if run.labelling.labels != self.labels:
                raise UserError("runs that label together need the same labels", where=f"run {number}",
                                received=", ".join(run.labelling.labels), allowed=self.labels)  # fmt: skip

    def predict(
        self,
        sentences: str | Sequence[str | Sequence[str]],
        *,
        threshold: float | None = None,
        batch_tokens: int | None = None,
        capture: Capture = (),
    ) -> list[LabelledWords]:
        """Label sentences; results come in their order, and every word has a label.

        Args:
            sentences: words, or text whose words white space separates; one text is one sentence.
            threshold: the probability from which a word has the `positive` label; by default it has the most probable.
            batch_tokens: pieces that are read at once; by default the recipe's `decoding.batch_tokens`.
            capture: `all` for what the first run's model looks at, or nothing.

        Raises:
            UserError: a threshold where no label is sought, or one that is no probability; another `capture`.
        """
        self._check_threshold(threshold)
        if capture and capture != ALL:
            raise UserError("a tagger captures all or nothing", where="capture", received=capture, allowed=ALL)
        sentences = [sentences] if isinstance(sentences, str) else sentences
        words = [tuple(each.split() if isinstance(each, str) else each) for each in sentences]
        budget = batch_tokens or self.recipe.decoding.batch_tokens
        totals = [np.zeros((len(each), len(self.labels)), dtype=np.float32) for each in words]
        for run in self.runs:
            windows = self._windows(run, words)
            for chosen in _batches([len(window.ids) for window in windows], budget):
                batch = [windows[place] for place in chosen]
                for window, found in zip(batch, self._probabilities(run, batch), strict=True):
                    totals[window.sentence][window.start : window.start + len(found)] = (
                        found / len(self.runs) + (totals[window.sentence][window.start : window.start + len(found)])
                    )
        return [
            LabelledWords(
                each, probabilities, self._labels(probabilities, threshold), tuple(self.look(each)) if capture else ()
            )
            for each, probabilities in zip(words, totals, strict=True)
        ]

    @torch.inference_mode()
    def look(self, words: Sequence[str]) -> list[Look]:
        """What the first run's model looks at in a sentence, window by window."""
        run, looks = self.runs[0], []
        for window in self._windows(run, [tuple(words)]):
            batch = collate_windows([window], run.labelling.pieces.padding).to(self.device)
            attention = {
                name: each[0].float().cpu().numpy() for name, each in run.model(batch, capture=("*",))[1].items()
            }
            layers = [name for name in attention if name.startswith("encoder.")]
            weights = attention.get("layers")
            looks.append(
                Look(
                    tuple(words[window.start : window.start + len(window.first)]),
                    window,
                    run.labelling.pieces.tokens(window.ids),
                    np.stack([attention[name] for name in layers]),
                    None if weights is None else weights.transpose(1, 0, 2),
                )
            )
        return looks

    def _windows(self, run: LoadedTagger, words: Sequence[Sequence[str]]) -> list[Window]:
        longest = run.recipe.data.max_length
        pieces = run.labelling.pieces
        return [window for number, each in enumerate(words) for window in pieces.windows(each, longest, number)]

    @torch.inference_mode()
    def _probabilities(self, run: LoadedTagger, windows: Sequence[Window]) -> Iterator[Floats]:
        """(words, V) of each window."""
        batch = collate_windows(windows, run.labelling.pieces.padding).to(self.device)
        found = run.model(batch).logits.float().softmax(-1).cpu().numpy()
        for row, window in zip(found, windows, strict=True):
            yield row[: len(window.first)]

    def _check_threshold(self, threshold: float | None) -> None:
        if threshold is None:
            return
        if self.positive is None:
            raise UserError("this task seeks no label that a threshold could be about", where="--threshold")
        if not 0 <= threshold <= 1:
            raise UserError("a threshold is a probability", where="--threshold", received=threshold)

    def _labels(self, probabilities: Floats, threshold: float | None) -> tuple[str, ...]:
        if threshold is None or self.positive is None:
            return tuple(self.labels[best] for best in probabilities.argmax(1))
        sought = self.labels.index(self.positive)
        others = probabilities.copy()
        others[:, sought] = -1
        found = probabilities[:, sought] >= threshold
        return tuple(self.labels[sought if hit else best] for hit, best in zip(found, others.argmax(1), strict=True))


def _batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Places of windows of like length, longest first, with at most `budget` padded pieces together."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def load_token_predictor(
    runs: Sequence[Path], device: str = "auto", average: int | None = None, positive: str | None = None
) -> TokenPredictor:
    """Load the taggers of these runs. Raises UserError as `load_tagger` and `TokenPredictor` do."""
    where = pick_device(device)
    return TokenPredictor([load_tagger(run, where, average) for run in runs], where, positive)
