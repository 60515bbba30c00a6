"""Taggers as the class for token classification of their encoder, such as `BertForTokenClassification`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headway.export.exporter import Answer, Answering, Search
from headway.models import Tagger
from headway.models.layer_attention import LastLayer
from headway.predictors.run import Run
from headway.processing.pretrained import LabelProcessor, WordProcessor, transformers_quiet


def is_classifier(run: Run) -> bool:
    """Whether a run labels words by a linear map of its encoder's last layer, as the library's own classes do."""
    if not isinstance(run.model, Tagger) or not isinstance(run.model.mix, LastLayer):
        return False
    config: Any = run.model.encoder.config
    with transformers_quiet() as transformers, torch.device("meta"):
        classes = transformers.AutoModelForTokenClassification
        return type(config) in classes._model_mapping and _is_linear(classes.from_config(config))


def _is_linear(classifier: Any) -> bool:
    """Whether a class is its encoder and a linear map called `classifier`; some have more, or call it otherwise."""
    encoder = f"{classifier.base_model_prefix}."
    own = {name for name in classifier.state_dict() if not name.startswith(encoder)}
    return own == {"classifier.weight", "classifier.bias"}


def write_classifier(run: Run, folder: Path) -> None:
    """Write a tagger and its tokenizer."""
    assert isinstance(run.model, Tagger)
    assert isinstance(run.source, WordProcessor)
    assert isinstance(run.target, LabelProcessor)
    encoder: Any = run.model.encoder
    with transformers_quiet() as transformers:
        config = type(encoder.config).from_dict(encoder.config.to_dict())
        config.id2label = dict(enumerate(run.target.names))
        config.label2id = {name: id for id, name in enumerate(run.target.names)}
        classifier = transformers.AutoModelForTokenClassification.from_config(config).eval()
        getattr(classifier, classifier.base_model_prefix).load_state_dict(encoder.state_dict())
        classifier.classifier.load_state_dict(run.model.output.state_dict())
        classifier.save_pretrained(str(folder))
    run.source.tokenizer.save_pretrained(str(folder))


def open_classifier(folder: Path, run: Run) -> Answering:
    """The labels that the library's own class gives the words of a line."""
    with transformers_quiet() as transformers:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        model = transformers.AutoModelForTokenClassification.from_pretrained(str(folder)).eval()
    assert isinstance(run.source, WordProcessor)
    processor = WordProcessor(tokenizer, str(folder))

    @torch.inference_mode()
    def label(line: str) -> list[Answer]:
        window = processor.encode(line).values
        log_probabilities = model(torch.tensor([window.ids])).logits[0, list(window.first)].log_softmax(-1)
        best = log_probabilities.max(-1)
        labels = tuple(model.config.id2label[id] for id in best.indices.tolist())
        return [Answer(labels, float(best.values.sum()), " ".join(labels))]

    def answer(lines: Sequence[str], search: Search) -> list[list[Answer]]:
        return list(map(label, lines))

    return answer
