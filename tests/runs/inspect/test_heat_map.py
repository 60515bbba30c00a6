"""The picture of one layer's weights: the layer and head that were asked for, on a scale from 0 to 1."""

from pathlib import Path

import matplotlib.pyplot
import numpy as np
import pytest

from headway.errors import UserError
from headway.figures import drawing
from headway.predictors.captured_attention import AttentionName
from headway.predictors.sequence_predictor import SequencePredictor
from headway.runs.inspect import heat_map
from headway.runs.inspect.heat_map import run_heat_map
from headway.runs.inspect.inspect_options import HeatMapOptions
from headway.runs.load import load
from tests.conftest import Command, Reversal


def test_the_head_of_the_layer_is_drawn(reversal: Reversal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(heat_map, "draw_weights", lambda axes, weights, columns, rows, stretch: drawn.append(weights))
    predictor = load(reversal.run)
    assert isinstance(predictor, SequencePredictor)
    (prediction,) = predictor.predict(["abcd"], capture="all")
    for layer, head in ((None, None), ("decoder.1.cross", 2), ("encoder.1.self", 1)):
        options = HeatMapOptions(output=tmp_path / "heat.svg", text="abcd", layer=layer, head=head)
        message = run_heat_map(reversal.run, options)
        name = {None: "decoder.2.cross", "decoder.1.cross": "decoder.1.cross", "encoder.1.self": "encoder.1.self"}[
            layer
        ]
        title = AttentionName.parse(name).title
        assert message.endswith(f"{title}, {'mean of heads' if head is None else f'head {head}'}")
        weights = prediction.attention[name]
        np.testing.assert_allclose(drawn.pop(), weights.mean(0) if head is None else weights[head - 1], atol=1e-6)


@pytest.mark.parametrize(("stretch", "most"), [(False, 1.0), (True, 0.6)])
def test_the_scale_is_the_same_for_all_pictures_unless_stretched(stretch: bool, most: float) -> None:
    figure, axes = matplotlib.pyplot.subplots()
    weights = np.array([[0.6, 0.2, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])
    drawing.draw_weights(axes, weights, list("abcd"), list("xy"), stretch=stretch)
    assert axes.images[0].get_clim() == (0, most)
    (uniform,) = [line for line in axes.images[0].colorbar.ax.lines if len(line.get_ydata()) == 2]
    assert uniform.get_ydata()[0] == 0.25
    matplotlib.pyplot.close(figure)


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg"])
def test_the_command_writes_every_format(run_headway: Command, reversal: Reversal, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"heat.{suffix}"
    ended = run_headway("inspect", "figures", reversal.run, "--text", "abcd", "--output", path)
    assert (ended.code, ended.err) == (0, "")
    assert path.stat().st_size > 1000


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
