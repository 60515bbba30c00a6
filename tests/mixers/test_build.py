"""Mixers by name: recipe entries, keyword options, foreign classes, and how they print."""

import pytest

from headway.core.errors import UserError
from headway.core.registry import construct, foreign_code
from headway.mixers import MIXERS, POSITIONS, build_mixer
from headway.mixers.attention import Attention
from headway.mixers.ngram import Ngram
from headway.mixers.relative import Alibi, is_relative


class Slopes(Alibi):
    """A position from outside of the package."""


def test_a_mixer_is_built_from_keywords_or_an_entry():
    by_keyword = build_mixer("ngram", dim=16, causal=False, n=4)
    by_entry = build_mixer({"kind": "ngram", "n": 3}, 16, False, n=4, defaults={"heads": 4, "position": "t5"})
    assert isinstance(by_keyword, Ngram)
    assert isinstance(by_entry, Ngram)
    assert (by_keyword.n, by_keyword.heads, by_entry.n, by_entry.heads) == (4, 8, 4, 4)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("ngrams", {}, "^kind: unknown mixer; did you mean 'ngram'"),
        ("ngram", {"head": 2}, "^head: unknown key; did you mean 'heads'"),
        ("ngram", {"n": "many"}, "^n: input should be a valid integer"),
        ({"n": 2}, {}, "mixer: a mixer needs a kind"),
        ("headway.mixers.relative:Alibi", {}, "not a subclass of headway.mixers.mixer.Mixer"),
        ("headway.mixers.nowhere:Mixer", {}, "cannot import the mixer"),
    ],
)
def test_refusals(config, options, message):
    with pytest.raises(UserError, match=message):
        build_mixer(config, 16, False, **options)


class Failing:
    """A component whose options it does not know itself."""

    def __init__(self, *, act: str = "relu") -> None:
        self.act = {"relu": 1.0}[act]


class Hinted:
    """A component with a type that is there for type checkers alone."""

    def __init__(self, *, act: object = None) -> None:
        self.act = act


def test_what_a_component_cannot_do_is_named_with_its_options(monkeypatch):
    message = r"model\.mixer: Failing cannot be made \(KeyError: 'gelu'\); received {'act': 'gelu'}"
    with pytest.raises(UserError, match=message):
        construct(Failing, {"act": "gelu"}, where="model.mixer")
    monkeypatch.setitem(Hinted.__init__.__annotations__, "act", "Nowhere")
    with pytest.raises(UserError, match=r"test_build:Hinted: the types .* cannot be read \(name 'Nowhere'"):
        construct(Hinted, {}, where="model.mixer")


def test_foreign_positions_work_and_can_be_refused():
    mixer = build_mixer("attention", 16, True, position=f"{__name__}:Slopes")
    assert isinstance(mixer, Attention)
    assert isinstance(mixer.position, Slopes)
    with foreign_code(False), pytest.raises(UserError, match="allow_code"):
        build_mixer("attention", 16, True, position=f"{__name__}:Slopes")


def test_every_position_is_absolute_or_relative():
    assert {name for name in POSITIONS if is_relative(name)} == {"t5", "alibi", "rotary"}


@pytest.mark.parametrize(
    ("kind", "options", "printed"),
    [
        ("attention", {"heads": 2}, "causal=True, heads=2, key_dim=8, value_dim=8, dropout=0.0"),
        ("lightconv", {"width": 3}, "causal=True, width=3, heads=8, dropout=0.0"),
        ("local", {"n": 3}, "n=3"),
        ("dependency", {"dependency_heads": 2}, "dependency_heads=2, key_bias=False"),
        ("ngram", {"global_context": "prefix"}, "causal=True, n=5, heads=8, head_dim=2, global_context='prefix'"),
        ("nplm", {"blocks": 2}, "n=5, blocks=2, block_size=8"),
        ("attention", {"position": "t5"}, "T5Bias(buckets=32, max_distance=128)"),
        ("attention", {"position": {"kind": "rotary", "share": 0.5}, "head_dim": 8}, "Rotary(rotated=4)"),
    ],
)
def test_options_are_printed(kind, options, printed):
    assert printed in repr(build_mixer(kind, 16, True, **options))


def test_options_of_every_mixer_are_listed():
    assert all({choice.name for choice in MIXERS.choices(name)} == set(MIXERS.options(name)) for name in MIXERS)
