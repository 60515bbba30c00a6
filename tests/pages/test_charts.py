"""Line charts and figures of alignments: what is in them, and what is refused."""

from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headway.core import figures
from headway.core.errors import UserError
from headway.core.figures import MISSING, STYLE
from headway.pages import charts
from headway.pages.charts import Panel, alignment_figure, alignment_page, panel_chart
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.output import Example, Output, TextHypothesis
from headway.predictors.word_alignment import WordAlignment
from tests.tiers import thinned


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


def test_both_axes_can_be_logarithmic(tmp_path: Path, saved: list[Figure]) -> None:
    lines = {"a": [(32, 7.0), (64, 900.0)]}
    panel_chart([Panel("", "length", "seconds", lines, logarithmic="xy")], tmp_path / "a.svg")
    low, high = saved[0].axes[0].get_ylim()
    assert 1 < low < 7 < 900 < high
    assert [text.get_text() for text in saved[0].axes[0].get_xticklabels()].count("64") == 1


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


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved."""
    saved: list[Figure] = []
    save = charts.save_figure
    monkeypatch.setattr(charts, "save_figure", lambda figure, path: (saved.append(figure), save(figure, path)))
    return saved


def example(source: list[str]) -> Output:
    target = TextHypothesis("le chat", 0.0, ["le", "chat", "$x_1$"], [])
    generator = np.random.default_rng(1)
    attention = {f"decoder.{layer}.cross": generator.dirichlet(np.ones(len(source)), (3, 4)) for layer in (1, 2)}
    return Output(Example(" ".join(source)), [target], AttentionWeights(attention), attended=source)


def labels(axes: Axes) -> tuple[list[str], list[str]]:
    return [label.get_text() for label in axes.get_xticklabels()], [
        label.get_text() for label in axes.get_yticklabels()
    ]


def test_alignment_shows_tokens_and_the_mean_over_heads(tmp_path: Path, drawn: list[Figure]) -> None:
    shown = example(["the", "cat", " ", "sat", "</s>"])
    alignment_figure(shown, tmp_path / "a.png")
    axes = drawn[0].axes[0]
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    assert labels(axes) == (["the", "cat", "␣", "sat", "</s>"], ["le", "chat", "$x_1$", "</s>"])
    both = np.mean([weights.mean(0) for weights in shown.attention.values()], axis=0)
    np.testing.assert_allclose(axes.images[0].get_array(), both)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_characters_without_a_font_are_named(
    tmp_path: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "pick_fonts", lambda text: (["DejaVu Sans"], {"ก"}))
    alignment_figure(example(["กa", "b"]), tmp_path / "a.png")
    assert labels(drawn[0].axes[0])[0] == [f"{MISSING}a", "b"]
    assert "U+0E01" in drawn[0].get_supxlabel()


SCRIPTS = ["二〇二一年三月", "الجمعة ٢٥", "शुक्रवार", "วันศุกร์", "금요일", "ორშაბათი"]


@pytest.mark.parametrize("text", thinned(SCRIPTS, 3, 1))
def test_no_script_warns_with_the_fonts_of_this_machine_or_matplotlibs_own(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, drawn: list[Figure]
) -> None:
    alignment_figure(example([*text, "</s>"]), tmp_path / "a.png")
    drawn.clear()
    own = [font for font in figures.fontManager.ttflist if font.name.startswith(("DejaVu", "Last Resort"))]
    monkeypatch.setattr(figures, "fontManager", SimpleNamespace(ttflist=own))
    monkeypatch.setattr(figures, "_add_new_fonts", lambda: None)
    alignment_figure(example([*text, "</s>"]), tmp_path / "a.png")
    assert (MISSING in "".join(labels(drawn[0].axes[0])[0])) == (text not in ("الجمعة ٢٥", "ორშაბათი"))


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="suffix"):
        alignment_figure(example(["a", "b"]), tmp_path / "a.docx")
    assert list(tmp_path.iterdir()) == []


def test_global_settings_are_left_alone(tmp_path: Path) -> None:
    names = [*STYLE, "font.family"]
    before = {name: matplotlib.rcParams[name] for name in names}
    alignment_figure(example(["a", "b"]), tmp_path / "a.png")
    assert {name: matplotlib.rcParams[name] for name in names} == before


def words(source: str, target: str) -> WordAlignment:
    one, other = tuple(source.split()), tuple(target.split())
    weights = np.random.default_rng(len(one)).dirichlet(np.ones(len(one)), len(other))
    return WordAlignment(one, other, weights)


def test_a_page_shows_every_sentence_with_its_words(tmp_path: Path, drawn: list[Figure]) -> None:
    page = [
        words("das Haus ist alt", "the house is old"),
        words("私 は 学生 です", "I am a student"),
        words("ja", "yes"),
    ]
    alignment_page(page, tmp_path / "a.png", columns=2)
    panels = [axes for axes in drawn[0].axes if axes.images]
    assert len(panels) == 3
    for axes, each in zip(panels, page, strict=True):
        assert labels(axes) == (list(each.source), list(each.target))
        np.testing.assert_allclose(axes.images[0].get_array(), each.weights)
    rows = [axes.get_subplotspec().rowspan.start for axes in panels]
    assert rows == [0, 0, 1]


def test_long_sentences_stand_below_each_other_and_those_without_words_are_left_out(
    tmp_path: Path, drawn: list[Figure]
) -> None:
    long = " ".join("a" * 40)
    alignment_page([words(long, "c"), words("d e f", ""), words("g", "h i"), words("", "")], tmp_path / "a.png")
    panels = [axes for axes in drawn[0].axes if axes.images]
    assert [labels(axes)[0] for axes in panels] == [long.split(), ["g"]]
    assert [axes.get_subplotspec().rowspan.start for axes in panels] == [0, 1]


@pytest.mark.parametrize("page", [[], [words("a b", "")], [words("", "a")]])
def test_a_page_of_nothing(tmp_path: Path, page: list[WordAlignment]) -> None:
    with pytest.raises(UserError, match="there is no alignment to draw: every line or its output is empty"):
        alignment_page(page, tmp_path / "a.png")
