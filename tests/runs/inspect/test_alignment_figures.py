"""Figures of alignments: they show the weights and tokens they were given, whatever the script, without a warning."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headway.errors import UserError
from headway.figures import fonts
from headway.figures.drawing import STYLE
from headway.figures.fonts import MISSING
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.output import Example, Output, TextHypothesis
from headway.predictors.word_alignment import WordAlignment
from headway.runs.inspect import alignment_figures
from headway.runs.inspect.alignment_figures import alignment_figure, alignment_page


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved."""
    saved: list[Figure] = []
    save = alignment_figures.save_figure
    monkeypatch.setattr(
        alignment_figures, "save_figure", lambda figure, path: (saved.append(figure), save(figure, path))
    )
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


def test_svg_is_well_formed_and_the_same_again(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        alignment_figure(example(["a", "b"]), tmp_path / name)
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_characters_without_a_font_are_named(
    tmp_path: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "pick_fonts", lambda text: (["DejaVu Sans"], {"ก"}))
    alignment_figure(example(["กa", "b"]), tmp_path / "a.png")
    assert labels(drawn[0].axes[0])[0] == [f"{MISSING}a", "b"]
    assert "U+0E01" in drawn[0].get_supxlabel()


@pytest.mark.parametrize("text", ["二〇二一年三月", "الجمعة ٢٥", "शुक्रवार", "วันศุกร์", "금요일", "ორშაბათი"])
def test_no_script_warns_with_the_fonts_of_this_machine_or_matplotlibs_own(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, drawn: list[Figure]
) -> None:
    alignment_figure(example([*text, "</s>"]), tmp_path / "a.png")
    drawn.clear()
    own = [font for font in fonts.fontManager.ttflist if font.name.startswith(("DejaVu", "Last Resort"))]
    monkeypatch.setattr(fonts, "fontManager", SimpleNamespace(ttflist=own))
    monkeypatch.setattr(fonts, "_add_new_fonts", lambda: None)
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
