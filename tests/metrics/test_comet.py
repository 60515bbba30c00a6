"""COMET is computed as published: against plain loops over one segment at a time, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

import headway
from headway.core.errors import UserError
from headway.metrics import build_metric, check_kind
from headway.tasks import build_task
from tests.metrics.made_comet import CASES, HYPOTHESES, REFERENCES, SOURCES, write_checkpoint
from tests.processing.local_hub import local_hub

LONGEST = 40  # positions of the encoder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each case."""
    made = tmp_path_factory.mktemp("comet")
    return {case: write_checkpoint(made / case, case) for case in CASES}


class Oracle:
    """The published computation in float64, a segment at a time, with loops over layers, tokens and sizes."""

    def __init__(self, folder: Path) -> None:
        self.config = yaml.safe_load((folder / "hparams.yaml").read_text(encoding="utf-8"))
        self.weights = {name: value.double() for name, value in load_file(folder / "model.safetensors").items()}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
        config = transformers.AutoConfig.from_pretrained(str(folder))
        self.encoder = transformers.AutoModel.from_config(config, add_pooling_layer=False).double().eval()
        start = "encoder.model."
        own = {name.removeprefix(start): value for name, value in self.weights.items() if name.startswith(start)}
        self.encoder.load_state_dict(own)

    def score(self, output: str, source: str, reference: str) -> float:
        if self.config["class_identifier"] == "unified_metric":
            return self.unified({"mt": output, "src": source, "ref": reference})
        mt, src, ref = (self.pooled(self.ids(text)) for text in (output, source, reference))
        features = []
        if self.config["class_identifier"] == "regression_metric":
            for size in (mt, ref, mt * ref, abs(mt - ref), mt * src, abs(mt - src)):
                features += size.tolist()
        else:
            for size in (mt, src, mt * src, abs(mt - src)):
                features += size.tolist()
        return self.estimated(features)

    def unified(self, texts: dict[str, str]) -> float:
        segments = self.config["input_segments"]
        inputs = [["mt", name] for name in ("src", "ref") if name in segments]
        if len(segments) == 3:
            inputs.append(["mt", "src", "ref"])
        total = 0.0
        for names in inputs:
            row = [0]
            for number, name in enumerate(names):
                row += [2] * (2 if number else 0)
                row += [id for id in self.ids(texts[name]) if id != 1][1:-1]
            total += self.estimated(self.pooled([*row, 2][:LONGEST]).tolist())
        return total / len(inputs)

    def ids(self, text: str) -> list[int]:
        ids = self.tokenizer(text)["input_ids"]
        return ids if len(ids) <= LONGEST - 2 else [*ids[: LONGEST - 3], 2]

    def pooled(self, ids: list[int]) -> Tensor:
        layers = [
            layer[0].detach()
            for layer in self.encoder(torch.tensor([ids]), output_hidden_states=True).hidden_states
        ]  # fmt: skip
        unified = self.config["class_identifier"] == "unified_metric"
        chosen = self.config["sent_layer" if unified else "layer"]
        vectors = self.mixed(layers) if chosen == "mix" else layers[chosen]
        if unified or self.config["pool"] == "cls":
            return vectors[0]
        if self.config["pool"] == "default":
            return layers[-1][0]
        real = [vector for id, vector in zip(ids, vectors, strict=True) if id != 1]
        if self.config["pool"] == "max":
            return torch.stack([torch.tensor([max(column) for column in zip(*map(Tensor.tolist, real), strict=True)])])[
                0
            ]
        total = torch.zeros_like(vectors[0])
        for vector in real:
            total = total + vector
        return total / len(ids)

    def mixed(self, layers: list[Tensor]) -> Tensor:
        scalars = [self.weights[f"layerwise_attention.scalar_parameters.{n}"].item() for n in range(len(layers))]
        weights = simplex(scalars) if self.config["layer_transformation"] == "sparsemax" else softmax(scalars)
        total = torch.zeros_like(layers[0])
        for weight, layer in zip(weights, layers, strict=True):
            numbers = [number for vector in layer.tolist() for number in vector]
            mean = sum(numbers) / len(numbers)
            variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
            total = total + weight * (
                (layer - mean) / (variance + 1e-12) ** 0.5 if self.config["layer_norm"] else layer
            )
        return self.weights["layerwise_attention.gamma"].item() * total

    def estimated(self, features: list[float]) -> float:
        functions = {"Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), None: lambda x: x}
        for number in range(count := len(self.config["hidden_sizes"]) + 1):
            weight, bias = (self.weights[f"estimator.ff.{3 * number}.{part}"].tolist() for part in ("weight", "bias"))
            kind = self.config["final_activation" if number == count - 1 else "activations"]
            features = [
                float(functions[kind](sum(w * x for w, x in zip(row, features, strict=True)) + b))
                for row, b in zip(weight, bias, strict=True)
            ]
        return features[0]


def softmax(scores: list[float]) -> list[float]:
    total = sum(np.exp(score) for score in scores)
    return [float(np.exp(score) / total) for score in scores]


def simplex(scores: list[float]) -> list[float]:
    """The nearest point of the simplex: the threshold at which what is above it sums to 1, by bisection."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(score - middle, 0) for score in scores) > 1:
            low = middle
        else:
            high = middle
    return [max(score - low, 0) for score in scores]


@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_the_published_computation(case: str, folders: dict[str, Path]) -> None:
    metric, oracle = build_metric("comet", model=str(folders[case]), device="cpu", batch_size=2), Oracle(folders[case])
    statistics = metric.counted(HYPOTHESES, [REFERENCES], SOURCES)
    expected = [oracle.score(*texts) for texts in zip(HYPOTHESES, SOURCES, REFERENCES, strict=True)]
    assert statistics[:, 0] == pytest.approx(expected, abs=1e-5)
    assert np.ptp(expected) > 0.01
    assert metric.scored(statistics).value == pytest.approx(100 * np.mean(expected), abs=1e-3)
    assert metric.segment_scores(statistics) == pytest.approx(100 * np.array(expected), abs=1e-3)


def test_sparsemax_drops_layers_that_softmax_keeps() -> None:
    scores = [0.7, -0.4, 1.1, 0.5]
    assert [weight > 0 for weight in simplex(scores)] == [True, False, True, True]
    assert sum(simplex(scores)) == pytest.approx(1)


def test_a_text_has_one_score_beside_any_others(folders: dict[str, Path]) -> None:
    metric = build_metric("comet", model=str(folders["regression"]), device="cpu", batch_size=6)
    together = metric.counted(HYPOTHESES, [REFERENCES], SOURCES)
    alone = [metric.counted([h], [[r]], [s])[0] for h, r, s in zip(HYPOTHESES, REFERENCES, SOURCES, strict=True)]
    assert together == pytest.approx(np.array(alone), abs=1e-6)


def test_a_checkpoint_of_tensors_is_read_as_safetensors_are(tmp_path: Path, folders: dict[str, Path]) -> None:
    pickled = write_checkpoint(tmp_path / "regression", "regression", pickled=True)
    metrics = [build_metric("comet", model=str(folder), device="cpu") for folder in (pickled, folders["regression"])]
    first, second = (metric.counted(HYPOTHESES, [REFERENCES], SOURCES) for metric in metrics)
    assert first == pytest.approx(second, abs=1e-6)
    assert metrics[0].label == "COMET regression"
    assert [part.split(":")[0] for part in str(metrics[0].signature()).split("|")] == ["model", "weights", "version"]
    assert metrics[0].signature() != metrics[1].signature()  # of other files


def test_training_draws_what_it_would_draw_without(folders: dict[str, Path]) -> None:
    from headway.metrics.comet import load_scorer

    load_scorer.cache_clear()
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    build_metric("comet", model=str(folders["cls"]), device="cpu").counted(HYPOTHESES, [REFERENCES], SOURCES)
    assert torch.equal(torch.rand(3), expected)


class Code:
    """An object that a pickle would make by a call."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("called",)


def test_a_checkpoint_that_wants_to_run_code_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "made", "regression", pickled=True)
    torch.save({"state_dict": {}, "callbacks": Code()}, folder / "checkpoints" / "model.ckpt")
    metric = build_metric("comet", model=str(folder), device="cpu")
    with pytest.raises(UserError, match="wants to run code"):
        metric.counted(HYPOTHESES, [REFERENCES], SOURCES)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_identifier": "xcomet_metric"}, "class_identifier.*or 'unified_metric'.*xcomet_metric"),
        ({"encoder_model": "RemBERT"}, "encoder_model.*RemBERT"),
        ({"layer_transformation": "entmax"}, "layer_transformation.*entmax"),
        ({"activations": "Swish"}, "activations.*Swish"),
    ],
)
def test_a_metric_of_another_kind_is_refused_by_name(
    tmp_path: Path, folders: dict[str, Path], changes: dict[str, Any], message: str
) -> None:
    config = CASES["regression"] | changes
    (tmp_path / "hparams.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        build_metric("comet", model=str(tmp_path), encoder=str(folders["regression"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("estimator.ff.3.bias"), "has no weights estimator.ff.3.bias"),
        (lambda weights: weights.pop("layerwise_attention.gamma"), "has no weights layerwise_attention.gamma"),
        (lambda weights: weights.update({"estimator.ff.9.bias": torch.ones(1)}), "no place for the weights estimator"),
        (
            lambda weights: weights.update({"estimator.ff.0.weight": torch.ones(12, 7)}),
            "not the weights of this metric",
        ),
    ],
)
def test_weights_of_another_network_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    folder = write_checkpoint(tmp_path / "made", "regression")
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    metric = build_metric("comet", model=str(folder), device="cpu")
    with pytest.raises(UserError, match=message):
        metric.counted(HYPOTHESES, [REFERENCES], SOURCES)


def test_an_encoder_has_a_folder_of_its_own(tmp_path: Path, folders: dict[str, Path]) -> None:
    apart = write_checkpoint(tmp_path / "regression", "regression")
    for file in [*apart.glob("*.json")]:
        file.unlink()
    with pytest.raises(UserError, match=r"no configuration and tokenizer.*hf:xlm-roberta-large"):
        build_metric("comet", model=str(apart))
    encoder = str(folders["regression"])
    found = [build_metric("comet", model=model, encoder=encoder, device="cpu") for model in (str(apart), encoder)]
    first, second = (metric.counted(HYPOTHESES, [REFERENCES], SOURCES) for metric in found)
    assert first == pytest.approx(second, abs=1e-6)
    with pytest.raises(UserError, match=r"not of the metric's kind.*xlm-roberta-xl.*allowed: xlm-roberta"):
        build_metric("comet", model=str(apart), encoder=str(folders["xl"]), device="cpu").counted(
            HYPOTHESES, [REFERENCES], SOURCES
        )


def test_only_a_name_that_says_so_is_asked_of_the_hub(
    tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        files = {file.name: file.read_bytes() for file in folders["referenceless"].iterdir()}
        ours = {name: files[name] for name in ("hparams.yaml", "model.safetensors")}
        ours["hparams.yaml"] = ours["hparams.yaml"].replace(b"xlm-roberta-large", b"made/encoder")
        hub.repositories["made/kiwi"] = ours
        hub.repositories["made/encoder"] = {name: text for name, text in files.items() if name.endswith(".json")}
        hub.repositories["made/encoder"]["model.safetensors"] = b"not asked for"
        with pytest.raises(UserError, match=r"no such folder.*hf:OWNER/NAME"):
            build_metric("comet", model="made/kiwi")
        assert hub.tokens == []
        metric = build_metric("comet", model="hf:made/kiwi", device="cpu")
        local = build_metric("comet", model=str(folders["referenceless"]), device="cpu")
        expected = local.counted(HYPOTHESES, [REFERENCES], SOURCES)
        assert metric.counted(HYPOTHESES, [REFERENCES], SOURCES) == pytest.approx(expected, abs=1e-6)
        assert metric.label == "COMET kiwi"
        assert not [*tmp_path.glob("models--made--encoder/**/model.safetensors")]


def test_sources_and_one_reference_are_needed(folders: dict[str, Path]) -> None:
    metric = build_metric("comet", model=str(folders["regression"]), device="cpu")
    with pytest.raises(UserError, match=r"looks at the sources.*0 for 6 segments"):
        metric.score(HYPOTHESES, [REFERENCES])
    with pytest.raises(UserError, match="COMET has one reference"):
        metric.score(HYPOTHESES, [REFERENCES, REFERENCES], SOURCES)
    alone = build_metric("comet", model=str(folders["referenceless"]), device="cpu")
    assert np.array_equal(
        alone.counted(HYPOTHESES, [REFERENCES, REFERENCES], SOURCES), alone.counted(HYPOTHESES, [[""] * 6], SOURCES)
    )


def lines(path: Path, texts: list[str]) -> str:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


def test_files_are_scored_beside_their_sources(tmp_path: Path, folders: dict[str, Path]) -> None:
    texts = {"src": SOURCES, "ref": REFERENCES, "first": HYPOTHESES, "second": HYPOTHESES[::-1]}
    files = {name: lines(tmp_path / f"{name}.txt", part) for name, part in texts.items()}
    both, model = [files["first"], files["second"]], folders["regression"]
    metrics = ["chrf", f"comet:model={model},device=cpu"]
    found = headway.compare(hypotheses=both, references=files["ref"], source=files["src"], metrics=metrics)
    own = build_metric("comet", model=str(model), device="cpu")
    for variant, part in zip(found.variants, (texts["first"], texts["second"]), strict=True):
        assert variant.scores["comet"].mean == pytest.approx(own.score(part, [REFERENCES], SOURCES).value, abs=1e-4)
    assert "COMET regression" in found.table().text()
    with pytest.raises(UserError, match="looks at the sources"):
        headway.compare(hypotheses=both, references=files["ref"], metrics=own)


def test_a_metric_without_references_needs_no_file_of_them(tmp_path: Path, folders: dict[str, Path]) -> None:
    source, first = lines(tmp_path / "source.txt", SOURCES), lines(tmp_path / "first.txt", HYPOTHESES)
    second = lines(tmp_path / "second.txt", HYPOTHESES[::-1])
    kiwi, both = f"comet:model={folders['unified']},device=cpu", [first, second]
    found = headway.compare(hypotheses=both, source=source, metrics=kiwi, output=tmp_path / "report")
    own = build_metric("comet", model=str(folders["unified"]), device="cpu")
    expected = own.score(HYPOTHESES, [REFERENCES], SOURCES).value
    assert found.variants[0].scores["comet"].mean == pytest.approx(expected, abs=1e-4)
    assert (tmp_path / "report").is_dir()
    with pytest.raises(UserError, match="scored by references"):
        headway.compare(hypotheses=both, source=source, metrics=[kiwi, "bleu"])
    with pytest.raises(UserError, match="scored by references"):
        headway.compare(hypotheses=both, metrics=kiwi)


def test_recordings_are_no_sources(folders: dict[str, Path]) -> None:
    metric = build_metric("comet", model=str(folders["regression"]))
    check_kind([metric], "text", "metric", of_texts=True)
    with pytest.raises(UserError, match="reads sources, and these are no texts"):
        check_kind([metric], "text", "metric", of_texts=build_task("speech_recognition").reads_text)
