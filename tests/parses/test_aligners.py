"""Aligners: two directions become one as the published algorithm says; links of files fit their pairs; eflomal runs."""

import random
from importlib.util import find_spec
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headway.core.errors import UserError
from headway.parses import aligners
from headway.parses.aligners import align_by_eflomal, eflomal_version, grow_diag_final_and, links_of_file, symmetrised

Link = tuple[int, int]


def published(forward: set[Link], backward: set[Link], size: int) -> set[Link]:
    """Koehn et al. (2005), as written: loops over all target and source positions until nothing is added."""
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    links, union, positions = forward & backward, forward | backward, range(size)

    def free(source: int | None, target: int | None) -> bool:
        return not any(source in (None, one) and target in (None, other) for one, other in links)

    added = True
    while added:
        added = False
        for target in positions:
            for source in positions:
                if (source, target) not in links:
                    continue
                for by_target, by_source in neighbours:
                    new = source + by_source, target + by_target
                    if (free(new[0], None) or free(None, new[1])) and new in union:
                        links.add(new)
                        added = True
    for direction in (forward, backward):
        for target in positions:
            for source in positions:
                if free(source, None) and free(None, target) and (source, target) in direction:
                    links.add((source, target))
    return links


some_links = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)


@given(some_links, some_links)
def test_grow_diag_final_and_is_the_published_algorithm(forward: set[Link], backward: set[Link]) -> None:
    grown = grow_diag_final_and(forward, backward)
    assert grown == published(forward, backward, 6)
    assert forward & backward <= grown <= forward | backward


def test_two_directions_by_hand() -> None:
    forward, backward = {(0, 0), (1, 1), (1, 2), (4, 4)}, {(0, 0), (1, 1), (2, 1), (5, 5)}
    assert symmetrised(forward, backward, "intersection") == "0-0 1-1"
    # 1-2 and 2-1 are neighbours of 1-1; 4-4 and 5-5 link words that have no link; 4-5 would not.
    assert symmetrised(forward, backward | {(4, 5)}, "grow-diag-final-and") == "0-0 1-1 1-2 2-1 4-4 5-5"


def test_links_of_a_file_fit_their_pairs(tmp_path: Path) -> None:
    file = tmp_path / "gold"
    pairs = [(["a", "b"], ["A", "B"]), (["c"], []), (["d"], ["D"])]
    file.write_text("1-0 0?1\n\n0-0\n")
    assert list(links_of_file(file, lambda: pairs, "here")) == ["0-1 1-0", "", "0-0"]
    for text, message in (
        ("0-0\n\n0-1\n", "line 3: these links are between words"),
        ("0-0\n", "1 lines of links for 3"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=message):
            list(links_of_file(file, lambda: pairs, "here"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("eflomal") is None, reason="eflomal is of the extra align, and needs a C compiler")
def test_eflomal_finds_a_lexicon() -> None:
    """Reversed sentences of a lexicon without any ambiguity; pairs that it does not read keep their place."""
    draw = random.Random(1)
    sources = [[f"s{draw.randrange(30)}" for _ in range(draw.randrange(3, 8))] for _ in range(400)]
    pairs = [(source, [word.replace("s", "t") for word in reversed(source)]) for source in sources]
    pairs[7:7] = [(["s1"], []), (["s1"] * 1024, ["t1"])]
    lines = list(align_by_eflomal(lambda: pairs, "grow-diag-final-and"))
    assert lines[7:9] == ["", ""]
    found, right = 0, 0
    for (source, target), line in zip(pairs, lines, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        found += len(links)
        right += sum(source[one][1:] == target[other][1:] for one, other in links)
    assert right > 0.95 * found
    assert found > 0.9 * sum(len(source) for source, target in pairs if target and len(source) < 1000)
    assert list(align_by_eflomal(lambda: [(["a"], [])], "intersection")) == [""]


def test_an_aligner_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise aligners.PackageNotFoundError(name)

    monkeypatch.setattr(aligners, "version", missing)
    with pytest.raises(UserError, match=r"data\.links\.kind: this aligner needs eflomal.*headway\[align\]"):
        eflomal_version("data.links.kind")
