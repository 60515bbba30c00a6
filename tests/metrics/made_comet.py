"""Small random checkpoints of COMET in the published arrangement, with a real tokenizer."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from safetensors.torch import save_file
from torch import Tensor

from tests.importing.made_models import unigram

SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 42, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1,
}  # fmt: skip
REGRESSION: dict[str, Any] = {
    "class_identifier": "regression_metric", "encoder_model": "XLM-RoBERTa", "pretrained_model": "xlm-roberta-large",
    "pool": "avg", "layer": "mix", "layer_transformation": "sparsemax", "layer_norm": False, "dropout": 0.1,
    "hidden_sizes": [12, 8], "activations": "Tanh", "final_activation": None, "optimizer": "AdamW", "loss": "mse",
}  # fmt: skip
UNIFIED: dict[str, Any] = REGRESSION | {
    "class_identifier": "unified_metric", "pretrained_model": "microsoft/infoxlm-large", "sent_layer": "mix",
    "layer_transformation": "sparsemax_patch", "layer_norm": True, "input_segments": ["mt", "src"], "word_layer": 2,
    "word_level_training": False,
}  # fmt: skip
REFERENCELESS = REGRESSION | {"class_identifier": "referenceless_regression_metric", "hidden_sizes": [8]}
CASES: dict[str, dict[str, Any]] = {
    "regression": REGRESSION,
    "softmax": REGRESSION | {"layer_transformation": "softmax", "layer_norm": True, "final_activation": "Sigmoid"},
    "max": REGRESSION | {"pool": "max", "layer": 2, "activations": "Sigmoid"},
    "cls": REGRESSION | {"pool": "cls", "layer": 1},
    "default": REGRESSION | {"pool": "default"},
    "xl": REGRESSION | {"encoder_model": "XLM-RoBERTa-XL"},
    "referenceless": REFERENCELESS,
    "unified": UNIFIED,
    "unified-sparse": UNIFIED | {"layer_transformation": "sparsemax", "layer_norm": False, "sent_layer": "mix"},
    "unified-layer": UNIFIED | {"sent_layer": 3, "input_segments": ["mt", "ref"]},
    "unified-all": UNIFIED | {"input_segments": ["mt", "src", "ref"], "word_level_training": True},
}
WIDTHS = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}

SOURCES = [
    "le chat voit un chien",
    "un chien voit l'oiseau",
    "des oiseaux !",
    "Où est le chat ?",
    "des oiseaux !",
    "  ",
]
HYPOTHESES = ["the cat sees a dog", "a dog <pad> the bird", "birds, cats", "Where is " * 20, "the birds!", ""]
REFERENCES = ["a cat sees a dog", "a dog sees the bird", "birds !", "Where is the cat?", "birds !", "x"]


def encoder_of(config: dict[str, Any], vocabulary: int) -> Any:
    """An encoder with random weights."""
    kind = "XLMRobertaXL" if config["encoder_model"].endswith("XL") else "XLMRoberta"
    made = getattr(transformers, f"{kind}Config")(vocab_size=vocabulary, **SIZES)
    torch.manual_seed(1)
    encoder = getattr(transformers, f"{kind}Model")(made, add_pooling_layer=False)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter) + (parameter if parameter.dim() == 1 else 0))
    return encoder.eval()


def weights_of(config: dict[str, Any], encoder: Any) -> dict[str, Tensor]:
    """Weights by their published names; some say nothing of segments."""
    weights = {f"encoder.model.{name}": tensor for name, tensor in encoder.state_dict().items()}
    if config.get("sent_layer", config["layer"]) == "mix":
        scalars = torch.tensor([0.7, -0.4, 1.1, 0.5])  # of which sparsemax makes two or three weights
        weights |= {f"layerwise_attention.scalar_parameters.{n}": scalars[n : n + 1].clone() for n in range(4)}
        weights |= {
            "layerwise_attention.gamma": torch.tensor([1.3]),
            "layerwise_attention.dropout_mask": torch.zeros(4),
        }
        weights |= {"layerwise_attention.dropout_fill": torch.full((4,), -1e20)}
    sizes = [WIDTHS[config["class_identifier"]] * SIZES["hidden_size"], *config["hidden_sizes"], 1]
    for number, (width, following) in enumerate(pairwise(sizes)):
        weights[f"estimator.ff.{3 * number}.weight"] = 0.4 * torch.randn(following, width)
        weights[f"estimator.ff.{3 * number}.bias"] = 0.4 * torch.randn(following)
    if config.get("word_level_training"):
        weights |= {"hidden2tag.weight": torch.randn(3, SIZES["hidden_size"]), "hidden2tag.bias": torch.randn(3)}
    return weights


def write_checkpoint(folder: Path, case: str, *, pickled: bool = False, **changes: Any) -> Path:
    """A folder with hyperparameters, weights, and the configuration and tokenizer of the encoder."""
    config = CASES[case] | changes
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*unigram(["<s>", "<pad>", "</s>", "<unk>"]), ("<mask>", 0.0)]
    tokenizer = transformers.XLMRobertaTokenizer(vocab=vocabulary)
    encoder = encoder_of(config, len(tokenizer))
    tokenizer.save_pretrained(str(folder))
    encoder.config.save_pretrained(str(folder))
    (folder / "hparams.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    weights = weights_of(config, encoder)
    if pickled:
        (folder / "checkpoints").mkdir()
        known = {"state_dict": weights, "hyper_parameters": config, "pytorch-lightning_version": "2.0.0", "epoch": 1}
        torch.save(known, folder / "checkpoints" / "model.ckpt")
    else:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
