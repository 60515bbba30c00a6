"""Figures: their scale, fonts that cover a text, fonts that are newly installed, tokens that are visible alone."""

from types import SimpleNamespace

import matplotlib.pyplot
import numpy as np
import pytest

from headway.core import figures
from headway.core.figures import pick_fonts, visible_token


def test_fonts_cover_the_text_or_say_what_is_missing() -> None:
    unassigned = "\U000e0fff"
    families, missing = pick_fonts(f"Dates Даты ημερομηνία {unassigned}")
    assert families[0] == "DejaVu Sans"
    assert missing == {unassigned}


def test_fonts_that_matplotlib_has_not_listed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = figures.fontManager.ttflist
    (newer,) = [
        font for font in known if font.name == "STIXNonUnicode" and (font.style, font.weight) == ("normal", 400)
    ]
    listed = SimpleNamespace(ttflist=[font for font in known if font.name == "DejaVu Sans"])
    listed.addfont = lambda path: listed.ttflist.append(newer)
    monkeypatch.setattr(figures, "fontManager", listed)
    monkeypatch.setattr(figures, "findSystemFonts", lambda: [newer.fname])
    monkeypatch.setattr(figures, "_add_new_fonts", figures._add_new_fonts.__wrapped__)
    assert pick_fonts("a\ue000") == (["DejaVu Sans", "STIXNonUnicode"], set())
    assert pick_fonts("a") == (["DejaVu Sans"], set())


def test_tokens_are_visible_alone() -> None:
    assert [visible_token(token) for token in ("a", " ", "", "ा")] == ["a", "␣", "␣", "◌ा"]


@pytest.mark.parametrize(("stretch", "most"), [(False, 1.0), (True, 0.6)])
def test_the_scale_is_the_same_for_all_pictures_unless_stretched(stretch: bool, most: float) -> None:
    figure, axes = matplotlib.pyplot.subplots()
    weights = np.array([[0.6, 0.2, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])
    figures.draw_weights(axes, weights, list("abcd"), list("xy"), stretch=stretch)
    assert axes.images[0].get_clim() == (0, most)
    (uniform,) = [line for line in axes.images[0].colorbar.ax.lines if len(line.get_ydata()) == 2]
    assert uniform.get_ydata()[0] == 0.25
    matplotlib.pyplot.close(figure)


def test_the_scale_of_signed_weights_has_zero_in_its_middle() -> None:
    figure, axes = matplotlib.pyplot.subplots()
    figures.draw_weights(axes, np.array([[0.5, -1.5], [0.0, 1.0]]), list("ab"), list("xy"))
    assert axes.images[0].get_clim() == (-1.5, 1.5)
    scale = axes.images[0].colorbar.ax
    assert scale.get_ylabel() == "signed weight"
    assert not [line for line in scale.lines if len(line.get_ydata()) == 2]
    matplotlib.pyplot.close(figure)
