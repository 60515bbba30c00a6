"""Marian models of Hugging Face compute the same in headway, cut text alike, and are trained on and shipped again."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MarianMTModel

import headway
from headway.core.errors import UserError
from headway.processing.marian_files import read_tokenizers
from headway.recipe import load_recipe
from headway.tasks import build_task
from headway.tensors.batch import collate
from tests.conftest import Command
from tests.tasks.marian import SOURCES, TARGETS, tokenizer_of, write_marian

SETTINGS = [
    pytest.param({}, id="shared"),
    pytest.param({"separate": True}, id="separate"),
    pytest.param({"activation_function": "relu", "d_model": 6, "encoder_layers": 1}, id="relu"),
    pytest.param({"activation_function": "gelu", "scale_embedding": False}, id="gelu, unscaled"),
]


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    rows = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    return {"kind": "tsv", "path": str(tmp_path / "train.tsv")}


def recipe(folder: Path, data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A recipe that begins from a Marian model and hardly trains."""
    return {
        "data": {"train": data, "dev": data, "max_length": 30},
        "text": {"source": {"language": "en"}, "target": {"language": "fr"}},
        "model": {"from": f"hf:{folder}"},
        "optimizer": {"learning_rate": 1e-9, "schedule": "constant"},
        "training": {"updates": 1, "checkpoint_every": 1, "dev_metrics": []},
        **changes,
    }


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits_are_equal(tmp_path: Path, data: dict[str, Any], setting: dict[str, Any]) -> None:
    folder = write_marian(tmp_path / "opus", **setting)
    tokenizers = read_tokenizers(folder)
    checked = load_recipe(recipe(folder, data))
    task = build_task("translation")
    task.check(checked)
    from headway.processing.processor import Processors
    from headway.tasks.marian import marian_processors

    ours = task.model(checked, Processors(*marian_processors(checked))).eval()
    theirs = MarianMTModel.from_pretrained(str(folder)).eval()
    sources = [np.array(tokenizers.source.encode(line)) for line in SOURCES]
    targets = [np.array(tokenizers.target.encode(line)) for line in TARGETS]
    batch = collate(sources, targets)
    rows = [torch.tensor(rows) for rows in (tokenizers.source_rows, tokenizers.target_rows)]
    with torch.inference_mode():
        logits = ours(batch).logits
        expected = theirs(
            input_ids=rows[0][batch.source], attention_mask=batch.source_mask.long(),
            decoder_input_ids=rows[1][batch.target_input],
        ).logits[..., rows[1]]  # fmt: skip
    real = batch.target_mask
    torch.testing.assert_close(logits[real][:, 2:], expected[real][:, 2:], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[real][:, 0], expected[real][:, 0], rtol=0, atol=1e-5)
    log_probabilities = expected[real][:, [0, *range(2, expected.shape[-1])]].log_softmax(-1)
    torch.testing.assert_close(
        logits[real].log_softmax(-1)[:, [0, *range(2, logits.shape[-1])]], log_probabilities, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("separate", [False, True])
def test_text_is_cut_and_joined_alike(tmp_path: Path, separate: bool) -> None:
    folder = write_marian(tmp_path / "opus", separate=separate)
    ours, theirs = read_tokenizers(folder), tokenizer_of(folder, separate=separate)
    odd = [">>fra<< the dog", ">>xyz<<the dog", "  ｆｕｌｌ  width ", "☃ snow", "", ">>half a code", "a</s>b"]
    lines = [*SOURCES, *TARGETS, *odd]
    for line in lines:
        ids = theirs(line)["input_ids"][:-1] if "</s>" not in line else None
        own = ours.source.encode(line)
        if ids is not None:
            assert [ours.source_rows[id] for id in own] == ids
            target = theirs(text_target=line)["input_ids"][:-1]
            assert [ours.target_rows[id] for id in ours.target.encode(line)] == target
        assert ours.source.encode_lines([line]) == [own]
        spans = ours.source.encode_with_spans(line)
        assert [span.id for span in spans] == own
        assert all(0 <= span.start <= span.end <= len(line) for span in spans)
    for line in TARGETS:
        ids = ours.target.encode(line)
        rows = [ours.target_rows[id] for id in ids]
        assert ours.target.decode(ids) == theirs.decode(rows, skip_special_tokens=True)


def test_a_run_begins_from_it_and_is_shipped_again(run_headway: Command, tmp_path: Path, data: dict[str, Any]) -> None:
    folder = write_marian(tmp_path / "opus")
    run = headway.train(recipe(folder, data), tmp_path / "run")
    assert run is not None
    stored = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))
    assert stored["from"] == {"model": f"hf:{folder}"}
    shutil.rmtree(tmp_path / "opus")  # a run holds all that it needs
    ours = headway.load(tmp_path / "run", device="cpu")
    outputs = [each.text for each in ours.predict(SOURCES, max_length=8)]
    arguments = ["--output", tmp_path / "again", "--beam", "1"]
    code, out, err = run_headway("export", "huggingface", tmp_path / "run", *arguments)
    assert (code, "5 of 5 best outputs" in out) == (0, True), out + err
    again = headway.train(recipe(tmp_path / "again", data), tmp_path / "second")
    assert again is not None
    theirs = headway.load(tmp_path / "second", device="cpu").predict(SOURCES, max_length=8)
    assert [each.text for each in theirs] == outputs


class TestMistakes:
    @pytest.fixture
    def opus(self, tmp_path: Path) -> Path:
        return write_marian(tmp_path / "opus")

    def refused(self, message: str, tmp_path: Path, recipe: dict[str, Any]) -> None:
        with pytest.raises(UserError, match=message):
            headway.train(recipe, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def change(self, folder: Path, **changes: Any) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")

    def test_another_family(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        self.change(opus, model_type="t5")
        message = "this configuration of a Marian model is damaged .model_type: Input should be 'marian'"
        self.refused(message, tmp_path, recipe(opus, data))

    def test_a_setting_that_headway_lacks(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        self.change(opus, normalize_before=True)
        self.refused("config.json: .*normalize_before: Input should be False", tmp_path, recipe(opus, data))

    @pytest.mark.parametrize(
        ("key", "value"), [("encoder_ffn_dim", None), ("vocab_size", "a"), ("d_model", 0), ("decoder_vocab_size", [1])]
    )
    def test_a_size_that_is_none(self, tmp_path: Path, data: dict[str, Any], opus: Path, key: str, value: Any) -> None:
        self.change(opus, **{key: value})
        self.refused(f"config.json: .*{key}: Input should be", tmp_path, recipe(opus, data))

    @pytest.mark.parametrize("name", ["config.json", "vocab.json"])
    def test_a_file_that_holds_a_list(self, tmp_path: Path, data: dict[str, Any], opus: Path, name: str) -> None:
        (opus / name).write_text("[1]", encoding="utf-8")
        self.refused(f"{name}: .* is damaged: it should hold", tmp_path, recipe(opus, data))

    def test_no_model(self, tmp_path: Path, data: dict[str, Any]) -> None:
        (tmp_path / "empty").mkdir()
        self.refused(
            "config.json: cannot read the configuration of a Hugging Face model",
            tmp_path,
            recipe(tmp_path / "empty", data),
        )

    def test_no_place(self, tmp_path: Path, data: dict[str, Any]) -> None:
        tree = recipe(tmp_path, data, model={"from": "nowhere"})
        self.refused("this names no model; received 'nowhere'; allowed: hf:", tmp_path, tree)

    def test_a_name_that_no_folder_can_have(self, tmp_path: Path, data: dict[str, Any]) -> None:
        tree = recipe(tmp_path, data, model={"from": f"hf:{'a' * 300}"})
        self.refused("this is no folder, and no name of a repository on the hub", tmp_path, tree)

    def test_weights_of_another_shape(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        weights = load_file(opus / "model.safetensors")
        weights["model.encoder.layers.0.fc1.weight"] = torch.zeros(13, 8)
        save_file(weights, opus / "model.safetensors", metadata={"format": "pt"})
        self.refused(r"not of the shape that config.json says \(encoder.0.feed_forward", tmp_path, recipe(opus, data))

    def test_weights_that_are_missing(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        weights = load_file(opus / "model.safetensors")
        del weights["model.encoder.layers.0.fc1.weight"]
        save_file(weights, opus / "model.safetensors", metadata={"format": "pt"})
        self.refused("lacks the weight model.encoder.layers.0.fc1.weight", tmp_path, recipe(opus, data))

    def test_no_weights(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        (opus / "model.safetensors").unlink()
        self.refused("this model has no weights.*model.safetensors or pytorch_model.bin", tmp_path, recipe(opus, data))

    def test_a_tokenizer_that_does_not_round_trip(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        table = json.loads((opus / "vocab.json").read_text(encoding="utf-8"))
        table["another"] = table["▁"]
        (opus / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
        self.refused("the tokenizer does not round-trip", tmp_path, recipe(opus, data))

    def test_a_vocabulary_beside_it(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        tree = recipe(opus, data, vocabulary={"kind": "bpe", "size": 50})
        self.refused("vocabulary: the vocabulary comes with the model", tmp_path, tree)

    def test_text_that_is_prepared_otherwise(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        tree = recipe(opus, data, text={"source": {"segment": "whitespace"}})
        self.refused("text.source: the model's own tokenizer prepares the text", tmp_path, tree)

    def test_another_shape_in_the_recipe(self, tmp_path: Path, data: dict[str, Any], opus: Path) -> None:
        tree = recipe(opus, data, model={"from": f"hf:{opus}", "dim": 16})
        self.refused("not of the shape that config.json says", tmp_path, tree)

    def test_the_kind_alone(self, tmp_path: Path, data: dict[str, Any]) -> None:
        tree = recipe(tmp_path, data, vocabulary={"kind": "marian"}, model={"dim": 8, "heads": 2})
        with pytest.raises(UserError, match=r"vocabulary.kind: a vocabulary of this kind comes with its model"):
            headway.train(tree, tmp_path / "run")
