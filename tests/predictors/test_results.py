"""Results in a shell and in a notebook: one line, a table without anybody's markup, a picture of attention."""

import html

import matplotlib
import numpy as np
import pytest

import headway
from headway.core.errors import UserError
from headway.predictors.captured_attention import AttentionWeights
from headway.predictors.output import Example, LabelledWords, Output, TextHypothesis
from headway.predictors.sequence_predictor import SequencePredictor

matplotlib.use("Agg")


def test_a_prediction_is_one_line(predictor: SequencePredictor) -> None:
    (said,) = predictor.predict("abcd", capture="all", nbest=3)
    assert repr(said) == f"Output('abcd' -> 'dcba', score={said.score:.4f}, 3 hypotheses, attention=5)"
    long = Output(Example("a\nb" * 100), [TextHypothesis("c" * 100, -1.0, [], [])], problem=UserError("broken"))
    assert "\n" not in repr(long)
    assert len(repr(long)) < 200
    assert "problem='broken'" in repr(long)


def test_labelled_words_are_one_line() -> None:
    said = LabelledWords.of(("he", "bad"), ("c", "i"), np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), ("c", "i"))
    assert repr(said) == "LabelledWords('he/c bad/i')"
    assert said.log_probabilities == pytest.approx(np.log([0.9, 0.8]), abs=1e-6)
    assert said._repr_html_().count("<tr>") == 3
    with pytest.raises(UserError, match="name: this attention was not captured"):
        said.plot()


def test_a_notebook_shows_no_markup_of_others() -> None:
    said = Output(Example("<script>"), [TextHypothesis("<b>&", -1.0, [], [])])
    assert "<script>" not in said._repr_html_()
    assert "<b>" not in said._repr_html_()
    assert "&lt;b&gt;&amp;" in said._repr_html_()
    words = LabelledWords.of(("<i>",), ("<u>",), np.ones((1, 1), np.float32), ("<u>",))
    assert "<i>" not in words._repr_html_()
    assert "<u>" not in words._repr_html_()


def test_attention_is_drawn(predictor: SequencePredictor) -> None:
    (said,) = predictor.predict("abcd", capture="all")
    ax = said.plot()
    assert ax.get_title() == "decoder.cross, layer 2, mean of heads"
    for labels, tokens in ((ax.get_xticklabels(), said.attended), (ax.get_yticklabels(), [*said.tokens, "</s>"])):
        assert [label.get_text() for label in labels] == [token.replace("▁", "␣") for token in tokens]
    np.testing.assert_allclose(ax.images[0].get_array(), said.attention["decoder.2.cross"].mean(0))
    scale = ax.images[0].colorbar
    assert scale is not None
    assert (scale.vmin, scale.vmax) == (0, 1)
    assert scale.ax.lines[0].get_ydata()[0] == pytest.approx(1 / len(said.attended))  # type: ignore[index]
    stretched = said.plot(stretch=True).images[0].colorbar
    assert stretched is not None
    assert stretched.vmax == pytest.approx(said.attention["decoder.2.cross"].mean(0).max())
    again = said.plot("decoder.self", layer=1, head=2, ax=ax)
    assert again is ax
    np.testing.assert_allclose(ax.images[-1].get_array(), said.attention["decoder.1.self"][1])
    assert said.plot("encoder.1.self").get_title() == "encoder.self, layer 1, mean of heads"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "encoder.cross"}, "name: this attention was not captured; received 'encoder.cross'"),
        ({"layer": 3}, "layer: this layer has no such attention; received 3; allowed: 1, 2"),
        ({"head": 0}, "head: there is no such head; received 0; allowed: 1 to 2"),
    ],
)
def test_attention_that_is_not_there(predictor: SequencePredictor, given: dict[str, object], message: str) -> None:
    (said,) = predictor.predict("abcd", capture="all")
    with pytest.raises(UserError, match=message):
        said.plot(**given)  # type: ignore[arg-type]
    (plain,) = predictor.predict("abcd")
    with pytest.raises(UserError, match="name: this attention was not captured"):
        plain.plot()


def test_the_page_of_an_output_is_shown_in_a_cell() -> None:
    weights = np.full((1, 2, 2), 0.5, np.float32)
    attention = AttentionWeights(
        {"decoder.1.cross": weights}, {"decoder.1.cross": ["b", "</s>"]}, {"decoder.1.cross": ["a", "</s>"]}
    )
    said = Output(Example('"<i>a'), [TextHypothesis("<b>", -1.0, ["b"], [-0.5, -0.5])], attention)
    markup = headway.show(said)._repr_html_()
    assert markup.startswith("<iframe srcdoc=")
    assert markup.count('"') == 4  # of srcdoc and style alone
    page = html.unescape(markup.split('"')[1])
    assert '"title":"decoder layer 1, cross"' in page
    assert "<i>" not in page
    words = LabelledWords.of(("<i>",), ("u",), np.ones((1, 1), np.float32), ("u",))
    assert "u" in html.unescape(headway.show(words)._repr_html_())
