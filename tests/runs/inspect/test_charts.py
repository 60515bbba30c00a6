"""Line charts: what is in them, and what is refused."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from headway.errors import UserError
from headway.runs.inspect import charts
from headway.runs.inspect.charts import Panel, panel_chart


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, in the place of files."""
    figures: list[Figure] = []
    monkeypatch.setattr(charts, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def test_a_chart_has_its_lines_and_texts_and_is_the_same_twice(tmp_path: Path) -> None:
    lines = {name: [(1, 100.0), (2, 50.0), (3, float(place))] for place, name in enumerate("abcdefghij")}
    for name in ("one.svg", "two.svg"):
        shaded = 0.5, 2.5, "trained lengths"
        panel_chart([Panel("copy", "length", "exact match, %", lines, True, shaded=shaded)], tmp_path / name)
    drawn = (tmp_path / "one.svg").read_text()
    assert drawn == (tmp_path / "two.svg").read_text()
    for text in ("trained lengths", "exact match, %", "copy", "j"):
        assert f"<!-- {text} -->" in drawn


def test_both_axes_can_be_logarithmic(tmp_path: Path) -> None:
    lines = {"a": [(32, 0.5), (64, 2.0)]}
    panel_chart([Panel("", "length", "seconds", lines, logarithmic=True)], tmp_path / "a.svg")
    assert "<!-- 64 -->" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("lines", [{}, {"a": []}])
def test_a_figure_without_lines_is_refused(tmp_path: Path, lines: dict) -> None:
    with pytest.raises(UserError, match="nothing to draw"):
        panel_chart([Panel("", "length", "seconds", lines)], tmp_path / "none.svg")


def test_panels_share_their_lines_and_each_has_its_own_look(tmp_path: Path, saved: list[Figure]) -> None:
    lines = {"first": [(0.0, 1.0), (1.0, 3.0)], "last": [(0.0, 2.0), (1.0, 1.0)], "evenly": [(0.0, 1.5), (1.0, 1.5)]}
    with_all = Panel(
        "left", "x", "y", lines, limits=(0, 4), baseline="evenly", names=["a", "b"],
        bars={"first": [(0.5, 1.25), (2.75, 3.5)]}, dots=[(0, 1), (1, 2)],
    )  # fmt: skip
    panel_chart([with_all, Panel("right", "x", "z", {"first": [(3, 1), (4, 2)]})], tmp_path / "a.svg", ordered=True)
    (figure,) = saved
    left, right = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["left", "right"]
    assert [label.get_text() for label in left.get_xticklabels()] == ["a", "b"]
    assert left.get_ylim() == (0, 4)
    drawn = {each.get_label(): each.lines[0] for each in left.containers}
    assert drawn["first"].get_color() == right.containers[0].lines[0].get_color()
    assert len({str(line.get_color()) for line in drawn.values()}) == 3
    assert list(drawn["last"].get_ydata()) == [2, 1]
    assert [segment[:, 1].tolist() for segment in left.containers[0].lines[2][0].get_segments()] == [
        [0.5, 1.25], [2.75, 3.5]
    ]  # fmt: skip
    assert left.collections[-1].get_offsets().tolist() == [[0, 1], [1, 2]]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "last", "evenly"]


def test_a_single_point_is_a_number(tmp_path: Path, saved: list[Figure]) -> None:
    panel = Panel("quality", "length", "BLEU", {"": [(5, 23.456)]}, bars={"": [(20.0, 26.5)]})
    panel_chart([panel], tmp_path / "a.svg", of="runs/dates")
    (axes,) = saved[0].axes
    assert [text.get_text() for text in axes.texts] == ["23.46 (20 to 26.5)", "BLEU, length 5"]
    assert not axes.lines
    assert saved[0].get_suptitle() == "runs/dates"


@pytest.mark.parametrize(
    ("values", "begins", "says"), [([20.0, 60.0], 0, ""), ([80.0, 90.0], None, " (axis cut)"), ([-2.0, 3.0], None, "")]
)
def test_an_axis_begins_at_zero_or_says_that_it_is_cut(
    tmp_path: Path, saved: list[Figure], values: list[float], begins: float | None, says: str
) -> None:
    line = list(zip([1, 2], values, strict=True))
    panel = Panel("t", "length", "BLEU", {"a": line}, counts=[(1, 10), (2, 12)])
    panel_chart([panel, panel._replace(limits=(10, 100))], tmp_path / "a.svg")
    axes, chosen = saved[0].axes
    assert (chosen.get_ylabel(), chosen.get_ylim()) == ("BLEU (axis cut)", (10, 100))
    assert axes.get_ylabel() == f"BLEU{says}"
    assert begins is None or axes.get_ylim()[0] == begins
    assert {text.get_text() for text in axes.texts} >= {"10", "12"}


@pytest.mark.parametrize(
    ("counts", "label", "above"),
    [
        ([7] * 3, "length (7 examples each)", 0),
        ([1, 7, 9], "length (above it: examples)", 3),
        ([1_000, *range(2, 40)], "length (2 to 1,000 examples each)", 0),
    ],
)
def test_counts_stand_where_they_can_be_read(
    tmp_path: Path, saved: list[Figure], counts: list[int], label: str, above: int
) -> None:
    points = [(float(x), 50.0) for x in range(len(counts))]
    panel_chart([Panel("", "length", "BLEU", {"a": points}, counts=list(enumerate(counts)))], tmp_path / "a.svg")
    (axes,) = saved[0].axes
    assert axes.get_xlabel() == label
    assert len([text for text in axes.texts if text.get_text() != "//"]) == above
