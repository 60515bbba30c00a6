"""Names of attention, whose layers count from 1."""

import pytest

from headway.predictors.captured_attention import AttentionName, by_kind, layer_titles


@pytest.mark.parametrize(
    ("text", "name", "group", "title", "layer_title"),
    [
        ("encoder.1.self", ("encoder", 1, "self"), "encoder.self", "encoder layer 1, self", "layer 1"),
        ("decoder.13.cross", ("decoder", 13, "cross"), "decoder.cross", "decoder layer 13, cross", "layer 13"),
        ("layers", ("layers", None, ""), "layers", "layers", "all layers"),
        ("encoder.layers", ("encoder", None, "layers"), "encoder.layers", "encoder, layers", "all layers"),
    ],
)
def test_names_are_read_and_written(
    text: str, name: tuple[str, int | None, str], group: str, title: str, layer_title: str
) -> None:
    parsed = AttentionName.parse(text)
    assert parsed == AttentionName(*name)
    assert (str(parsed), parsed.group, parsed.title, parsed.layer_title) == (text, group, title, layer_title)


@pytest.mark.parametrize("text", ["", "encoder.self", "encoder.x.self", "a.0.b.c", "encoder.-1.self"])
def test_other_texts_are_no_names(text: str) -> None:
    with pytest.raises(ValueError, match="no name of attention"):
        AttentionName.parse(text)


def test_kinds_have_their_layers_in_order() -> None:
    names = ["decoder.11.self", "decoder.3.self", "encoder.1.self", "layers"]
    assert by_kind(names) == {
        "decoder.self": {3: "decoder.3.self", 11: "decoder.11.self"},
        "encoder.self": {1: "encoder.1.self"},
        "layers": {0: "layers"},
    }
    assert layer_titles(2) == ["layer 1", "layer 2"]
