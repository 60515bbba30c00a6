"""The page and the heat map of `headway inspect`: what they collect, and what they write."""

import base64
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.core.errors import UserError
from headway.inspect import inspection
from headway.inspect.capture import Layer, contributions
from headway.inspect.inspect_options import HeatMapOptions
from headway.inspect.inspection import (
    Attributing,
    Inspected,
    Map,
    inspect,
    pack_sentences,
    run_heat_map,
    write_inspection,
)  # fmt: skip
from headway.losses import DependencyConfig
from headway.pages.page import packed_weights
from headway.predictors import sequence_predictor
from headway.predictors.captured_attention import AttentionName
from headway.predictors.output import Example
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.load import load
from headway.runs.run import open_run
from headway.runs.run_folder import RunFolder
from tests.conftest import Command, Reversal
from tests.predictors.test_captured_attention import MODELS, stacks, untrained
from tests.rounding import rounding
from tests.training.test_report import Page


def raw(lines: list[str], targets: list[str] | None = None) -> list[Example]:
    return [Example(line, target) for line, target in zip(lines, targets or [None] * len(lines), strict=True)]


LINES = ["abcd", "", "ba", "<script>x</script>"]


def read_values(layer: dict[str, Any], bits: int, signed: bool, columns: int) -> np.ndarray:
    """What the page's scripts read: the square of a share of `most`, with its sign; (K, T, S)."""
    kind = np.dtype(f"<{'i' if signed else 'u'}{bits // 8}")
    roots = np.frombuffer(zlib.decompress(base64.b64decode(layer["data"])), kind) / float(np.iinfo(kind).max)
    return (np.sign(roots) * roots**2 * layer["most"]).reshape(layer["heads"], -1, columns)


def sentences_of(path: Path) -> list[dict[str, Any]]:
    page = Page(path)
    count = len(json.loads(page.text_of("script", id="index")[0])["sentences"])
    return [json.loads(page.text_of("script", id=f"sentence-{number}")[0]) for number in range(count)]


def test_outputs_and_attention_are_the_predictors(
    predictor: SequencePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_predictor, "ATTENTION", 32)  # several windows
    lines = [*LINES, *["abc"] * 32, "cab"]
    references = [f"reference {number}" for number in range(len(lines))]
    found = list(inspect(predictor, raw(lines, references), nbest=3))
    assert [each.source for each in found] == lines
    assert [each.reference for each in found] == references
    said = predictor.predict(lines, nbest=3, capture="all")
    for each, prediction in zip(found, said, strict=True):
        if not prediction.source_tokens:
            assert (each.outputs, each.maps, each.alignment) == ([], [], None)
            continue
        assert [output.text for output in each.outputs] == [hypothesis.text for hypothesis in prediction.hypotheses]
        assert each.outputs[0].tokens == [*prediction.tokens, "</s>"]
        np.testing.assert_allclose(
            np.log(each.outputs[2].probabilities), prediction.hypotheses[2].log_probabilities, atol=rounding()
        )
        layers = {layer.name: layer for map in each.maps for layer in map.layers}
        assert set(layers) == set(prediction.attention)
        for name, layer in layers.items():
            np.testing.assert_allclose(layer.weights, prediction.attention[name], atol=rounding())
            attention = prediction.attention
            assert (list(layer.rows), list(layer.columns)) == (attention.rows[name], attention.columns[name])
    assert [map.title for map in found[0].maps] == ["Encoder", "Decoder", "Cross"]


def test_every_kind_of_model_has_a_page(predictor: SequencePredictor, tmp_path: Path) -> None:
    for name in MODELS:
        found = list(inspect(untrained(predictor, name), raw(["abc"])))
        write_inspection(tmp_path / "page.html", title=name, facts=[], packed=pack_sentences(found, len(found)))
        assert "Cross" in [map["title"] for map in sentences_of(tmp_path / "page.html")[0]["maps"]]


def test_signed_weights_are_shown_with_their_sign(predictor: SequencePredictor, tmp_path: Path) -> None:
    mixed = [{"kind": "linear", "gate": "vector"}, "delta"]
    own = untrained(
        predictor, "attention", encoder={"layers": 2, "mixer": mixed}, decoder={"layers": 2, "mixer": mixed}
    )
    (said,) = own.predict(["abcd"], capture="all")
    (found,) = inspect(own, raw(["abcd"]))
    assert [(map.title, map.measure, map.signed) for map in found.maps] == [
        ("Encoder", "signed weight", True), ("Decoder", "signed weight", True), ("Cross", "weight", False)
    ]  # fmt: skip
    assert (said.attention.captured["encoder.self"].weights < 0).any(axis=(1, 2, 3)).all()
    write_inspection(tmp_path / "page.html", title="t", facts=[], packed=pack_sentences([found], 1))
    (written,) = sentences_of(tmp_path / "page.html")
    for map in written["maps"]:
        for layer in map["layers"]:
            values = read_values(layer, 16, map["signed"], len(written["tokens"][layer["columns"]]))
            np.testing.assert_allclose(values, said.attention[layer["name"]], atol=1e-4 * layer["most"])


def test_layers_without_weights_show_what_their_offsets_add(predictor: SequencePredictor) -> None:
    own = untrained(predictor, "n-grams below")
    (said, empty) = inspect(own, raw(["abcd", ""]))
    maps = {map.title: map for map in said.maps}
    assert list(maps) == [
        "Encoder", "Decoder", "Cross", "Encoder: contributions", "Encoder: gradient × input", "Decoder: contributions",
        "Decoder: gradient × input",
    ]  # fmt: skip
    ((expected),) = contributions(own, ["abcd"], [said.outputs[0].text])
    (layer,) = maps["Encoder: contributions"].layers
    np.testing.assert_allclose(layer.weights, expected["encoder.1.self"].norm, rtol=1e-5)
    assert list(layer.columns) == ["-1", "0", "+1"]
    assert layer.rows == ["▁", "a", "b", "c", "d", "</s>"]
    signed = maps["Encoder: gradient × input"]
    np.testing.assert_allclose(
        signed.layers[0].weights, expected["encoder.1.self"].gradient_input, rtol=1e-4, atol=rounding()
    )
    assert (signed.signed, maps["Encoder: contributions"].signed) == (True, False)
    assert empty.maps == []


def test_arcs_are_the_taught_heads_of_each_token(predictor: SequencePredictor) -> None:
    MODELS["taught"] = stacks({"kind": "dependency", "dependency_heads": 2})
    own = untrained(predictor, "taught")
    MODELS.pop("taught")
    for index_by, first in (("output", 0), ("input", 1)):
        config = DependencyConfig(layer=2, heads=(1, 2), index_by=index_by)
        objective = own.recipe.objective.model_copy(update={"dependency": config})
        decoding = own.recipe.decoding.model_copy(update={"min_length": 3})
        own.recipe = own.recipe.model_copy(update={"objective": objective, "decoding": decoding})
        (said,) = inspect(own, raw(["abcd"]))
        source, target = said.arcs
        assert source.title == "encoder layer 2, self, head 1, 2"
        (prediction,) = own.predict("abcd", capture="all")
        for arcs, name, start in ((source, "encoder.2.self", 0), (target, "decoder.2.self", first)):
            weights = prediction.attention[name][:2].mean(0)[start:, start:]
            for place, (head, weight) in enumerate(zip(arcs.heads, arcs.weights, strict=True)):
                row = weights[place, : len(arcs.tokens)]
                assert (head, weight) == (int(row.argmax()), pytest.approx(row.max()))
        assert (source.tokens, target.tokens) == (prediction.source_tokens, prediction.tokens)


def test_alignments_are_of_the_output_or_of_the_reference_that_gold_is_of(predictor: SequencePredictor) -> None:
    (said,) = inspect(predictor, raw(["ab cd"]))
    assert said.alignment is not None
    assert (said.alignment.target, said.alignment.gold, said.alignment.error_rate) == ("output", None, None)
    (said,) = inspect(predictor, raw(["ab cd"], ["dc ba"]), ["0-1 1?0"])
    assert said.alignment is not None
    assert said.alignment.target == "reference"
    assert said.alignment.gold is not None
    assert said.alignment.gold.sure == {(0, 1)}
    layer = said.alignment.map.layers[0]
    assert (list(layer.rows), list(layer.columns)) == (["dc", "ba"], ["ab", "cd"])
    assert said.alignment.links == [(int(row.argmax()), place) for place, row in enumerate(layer.weights[0])]
    links = set(said.alignment.links)
    hits = len(links & {(0, 1)}) + len(links & {(0, 1), (1, 0)})
    assert said.alignment.error_rate == pytest.approx(100 * (1 - hits / (len(links) + 1)))
    with pytest.raises(UserError, match=r"words that the sentences do not have.*2 source and 2 target words"):
        list(inspect(predictor, raw(["ab cd"], ["dc ba"]), ["2-0"]))
    with pytest.raises(UserError, match=r"line 2: .*words that the sentences do not have.*1 source and 0 target words"):
        list(inspect(predictor, raw(["ab", "ab"], ["ba", ""]), ["0-0", "0-0"]))


def test_single_words_are_aligned_by_their_tokens(predictor: SequencePredictor) -> None:
    (said,) = inspect(predictor, [Example("abcd")])
    (prediction,) = predictor.predict(["abcd"], capture="*.cross")
    assert said.alignment is not None
    layer = said.alignment.map.layers[0]
    assert (list(layer.columns), list(layer.rows)) == (prediction.source_tokens, prediction.tokens)
    cross = prediction.attention[layer.name].mean(0)[:-1, :-1]  # without the end marks
    np.testing.assert_allclose(layer.weights[0], cross, rtol=1e-6)
    assert said.alignment.map.measure == "weight between words, or the tokens of a side of one word"


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("signed", [False, True])
def test_values_come_back_as_near_as_is_said(bits: int, signed: bool) -> None:
    random = np.random.default_rng(1)
    values = random.dirichlet(np.full(30, 0.3), 50) * (random.choice([-1, 1], (50, 30)) if signed else 1)
    packed = packed_weights(values[None], bits, signed=signed)
    most, steps = packed["most"], 2 ** (bits - signed) - 1
    assert most == np.abs(values).max()
    back = read_values(packed, bits, signed, 30)[0]
    assert (np.abs(back - values) <= np.sqrt(np.abs(values) * most) / steps + most / steps**2).all()
    assert not read_values(packed_weights(np.zeros((1, 2, 3)), bits, signed=signed), bits, signed, 3).any()


@pytest.mark.parametrize("most_exact", [0, 10**9])
def test_the_page_holds_the_arrays(
    predictor: SequencePredictor, tmp_path: Path, most_exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.inspect.inspection.MOST_EXACT", most_exact)
    bits, tolerance = (8, 4e-3) if most_exact == 0 else (16, 2e-5)
    found = list(inspect(predictor, raw(LINES), nbest=2))
    signed = Map(
        "signed",
        [Layer("x.0.y", np.array([[[-2.0, 0.0, 0.5]]]), ["r"], ["a", "b", "c"])],
        "nats",
        signed=True,
    )
    found.append(Inspected("x", tokens=["x"], maps=[signed]))
    write_inspection(tmp_path / "page.html", title="t", facts=["f"], packed=pack_sentences(found, len(found)))
    index = json.loads(Page(tmp_path / "page.html").text_of("script", id="index")[0])
    assert (index["bits"], index["facts"], len(index["sentences"])) == (bits, ["f"], 5)
    assert index["sentences"][1]["certainty"] is None
    for each, written in zip(found, sentences_of(tmp_path / "page.html"), strict=True):
        assert written["source"] == each.source
        for map, its in zip(each.maps, written["maps"], strict=True):
            for layer, packed in zip(map.layers, its["layers"], strict=True):
                assert written["tokens"][packed["rows"]] == list(layer.rows)
                assert written["tokens"][packed["columns"]] == list(layer.columns)
                values = read_values(packed, bits, map.signed, len(layer.columns))
                np.testing.assert_allclose(values, layer.weights, atol=tolerance * packed["most"] * 2)
    tokens = sentences_of(tmp_path / "page.html")[0]["tokens"]
    assert len({tuple(each) for each in tokens}) == len(tokens)  # each list once


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    lines = {"lines": "ab cd\nabc\n", "references": "dc ba\ncba\n", "gold": "0-1 1-0\n0-0\n", "one": "ab\n", "none": ""}
    for name, text in lines.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: tmp_path / name for name in lines}


def test_the_command_line(run_headway: Command, reversal: Reversal, texts: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    given = ("--reference", texts["references"], "--gold", texts["gold"], "--nbest", "2", "--device", "cpu")
    code, out, err = run_headway("inspect", reversal.run, "--input", texts["lines"], *given, "--output", page)
    assert (code, err) == (0, "")
    assert out.startswith(f"{page}: 2 sentences, 0.")
    assert ", AER " in out
    first, second = sentences_of(page)
    assert (first["source"], first["reference"], second["source"]) == ("ab cd", "dc ba", "abc")
    assert len(first["outputs"]) == 2
    assert first["alignment"]["sure"] == [[0, 1], [1, 0]]
    assert run_headway("inspect", reversal.run, "--text", "ab", "--text", "cd", "--input", texts["one"], "--output",
                       page).code == 0  # fmt: skip
    assert [each["source"] for each in sentences_of(page)] == ["ab", "cd", "ab"]


def test_without_sentences_the_first_of_dev_are_shown(
    run_headway: Command, reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(reversal.recipe.parent)
    page = tmp_path / "page.html"
    assert run_headway("inspect", reversal.run, "--sentences", "3", "--output", page).code == 0
    found = sentences_of(page)
    assert [(each["source"], each["reference"]) for each in found] == [(w, w[::-1]) for w in reversal.words[:3]]
    code, _, err = run_headway("inspect", reversal.run, *("--text", "a") * 3, "--sentences", "2", "--output", page)
    assert (code, err) == (0, "showing the first 2 of 3 sentences\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a", "--output", "{tmp}/none/page.html"], "--output: there is no such folder"),
        (
            ["--text", "a", "--reference", "{references}", "--output", "{tmp}/p"],
            "--reference: there must be a line for",
        ),
        (
            ["--input", "{lines}", "--gold", "{gold}", "--output", "{tmp}/p"],
            "--gold: gold alignments are of references",
        ),
        (["model.dim=3", "--output", "{tmp}/p"], "Unused Tokens: ['model.dim=3']"),
    ],
)
def test_what_does_not_go_together(
    run_headway: Command, reversal: Reversal, texts: dict[str, Path], tmp_path: Path, arguments: list[str], message: str
) -> None:
    places = {name: str(path) for name, path in texts.items()} | {"tmp": str(tmp_path)}
    code, out, err = run_headway("inspect", reversal.run, *(each.format(**places) for each in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "p").exists()


def test_a_run_without_dev_needs_sentences(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    run = Path(shutil.copytree(reversal.run, tmp_path / "run"))
    recipe = open_run(run).recipe
    changed = recipe.model_copy(update={"data": recipe.data.model_copy(update={"dev": None})})
    RunFolder(run).write_recipe(changed)
    code, _, err = run_headway("inspect", run, "--output", tmp_path / "page.html")
    assert (code, "there are no sentences to look at, and the run has no dev" in err) == (2, True)


def test_the_head_of_the_layer_is_drawn(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(inspection, "draw_weights", lambda axes, weights, columns, rows, stretch: drawn.append(weights))
    predictor = load(reversal.run)
    assert isinstance(predictor, SequencePredictor)
    (prediction,) = predictor.predict(["abcd"], capture="all")
    for layer, head in ((None, None), ("decoder.1.cross", 2), ("encoder.1.self", 1)):
        options = HeatMapOptions(output=tmp_path / "heat.svg", text="abcd", layer=layer, head=head)
        message = run_heat_map(reversal.run, options)
        name = layer or "decoder.2.cross"
        title = AttentionName.parse(name).title
        assert message.endswith(f"{title}, {'mean of heads' if head is None else f'head {head}'}")
        weights = prediction.attention[name]
        np.testing.assert_allclose(drawn.pop(), weights.mean(0) if head is None else weights[head - 1], atol=1e-6)


def test_the_command_writes_a_figure(run_headway: Command, reversal: Reversal, tmp_path: Path) -> None:
    ended = run_headway("inspect", "figures", reversal.run, "--text", "abcd", "--output", tmp_path / "heat.pdf")
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "heat.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": "decoder.9.cross"}, "no weights of this name.*decoder.1.cross"),
        ({"layer": "decoder.0.cross"}, "no weights of this name"),
        ({"head": 9}, "no such head.*allowed: 1 to 2"),
        ({"text": " "}, "no weights to draw"),
    ],
)
def test_mistakes(reversal: Reversal, tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_heat_map(reversal.run, HeatMapOptions(**{"output": tmp_path / "heat.png", "text": "abcd"} | changes))


@pytest.mark.parametrize(
    ("name", "message"), [("none/heat.pdf", "no such folder"), ("heat.txt", "format is the suffix")]
)
def test_places_that_no_figure_can_have(
    run_headway: Command, reversal: Reversal, tmp_path: Path, name: str, message: str
) -> None:
    ended = run_headway("inspect", "figures", reversal.run, "--text", "abcd", "--output", tmp_path / name)
    assert ended.code == 2
    assert message in ended.err


def test_a_page_goes_into_the_run(run_headway: Command, reversal: Reversal) -> None:
    ended = run_headway("inspect", reversal.run, "--text", "abcd")
    page = reversal.run / "inside.html"
    assert (ended.code, ended.out.split(":")[0]) == (0, str(page))
    page.unlink()


def test_attribution_is_a_map_of_source_and_prefix(predictor: SequencePredictor) -> None:
    attributing = Attributing.of(predictor, "occlusion", "a")
    said, empty = inspect(predictor, raw(["abcd", ""]), attributing=attributing)
    map = said.maps[-1]
    assert (map.title, map.measure, map.signed, empty.maps) == ("Attribution", "nats", True, [])
    (layer,) = map.layers
    (view,) = predictor.attribute(predictor.predict("abcd"), "occlusion", against="a")
    np.testing.assert_allclose(layer.weights, view["occlusion"], atol=1e-4)
    assert (layer.rows, layer.columns) == (view.rows["occlusion"], view.columns["occlusion"])
