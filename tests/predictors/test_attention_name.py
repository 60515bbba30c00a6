"""Names of attention: files and Python count layers from 0, people from 1."""

import pytest

from headway.predictors.captured_attention import AttentionName, by_kind, layer_titles


@pytest.mark.parametrize(
    ("text", "name", "group", "title", "layer_title"),
    [
        ("encoder.0.self", ("encoder", 0, "self"), "encoder.self", "encoder layer 1, self", "layer 1"),
        ("decoder.12.cross", ("decoder", 12, "cross"), "decoder.cross", "decoder layer 13, cross", "layer 13"),
        ("layers", ("layers", None, ""), "layers", "layers", "all layers"),
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
    names = ["decoder.10.self", "decoder.2.self", "encoder.0.self", "layers"]
    assert by_kind(names) == {
        "decoder.self": {2: "decoder.2.self", 10: "decoder.10.self"},
        "encoder.self": {0: "encoder.0.self"},
        "layers": {0: "layers"},
    }
    assert layer_titles(2) == ["layer 1", "layer 2"]
