"""Add word alignment links of a recipe's pairs, made by the aligner in `data.links`, to their store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

from headway.core.errors import UserError
from headway.core.log import counted, progress, say
from headway.core.processes import batched
from headway.core.registry import foreign_code
from headway.core.storage import hashes_of
from headway.formats.alignments import read_alignments
from headway.formats.pairs import Pair, open_source
from headway.parses.aligners import align_by_eflomal, eflomal_version, links_of_file
from headway.parses.links import (
    LinksConfig,
    LinkStore,
    identity,
    key_text,
    lacks_spaces,
    linked_characters,
    linked_words,
    named_links,
    store_of_links,
)
from headway.parses.parse_store import key_of, open_writer
from headway.predictors.input_account import InputAccount, accounted
from headway.predictors.sequence_predictor import SequencePredictor
from headway.predictors.word_alignment import WordAlignment, build_aligner
from headway.processing.text.text_processor import TextConfig, TextProcessor, prepare
from headway.recipe import Recipe
from headway.runs.load import load
from headway.runs.run import open_run

CHUNK = 200  # pairs per write
LEAST = 0.01  # the least share of a target word's attention for which a link is stored


def annotate_links(recipe: Recipe) -> None:
    """Align the pairs of train and dev that have no links yet, and log the result.

    A file has links of train only. eflomal aligns all pairs again if one has no links yet; a teacher resumes.

    Raises:
        UserError: no links are configured, the aligner is missing, or the store has other links.
        RunError: the aligner failed.
    """
    links, data = named_links(recipe.data.links), recipe.data
    if links.kind == "teacher" and any(lacks_spaces(recipe.text)):
        what = "a teacher links words, and this text has no spaces between words"
        raise UserError(what, where="data.links.kind", received=links.kind, allowed="eflomal, or a segmenter in text")
    corpora = {"data.train": data.train} | ({"data.dev": data.dev} if data.dev and links.kind != "pharaoh" else {})
    sources = [open_source(corpus, name, data.broken, tags=False) for name, corpus in corpora.items()]
    pairs, store = partial(chain.from_iterable, sources), store_of_links(data.train, links)
    with open_writer(store, identity(links, recipe.text, _version(links)), LinkStore) as writer:

        def fresh(pair: Pair) -> bool:
            return bool(pair.source.strip() and pair.target.strip()) and _key(pair) not in writer.known

        total, added, without = sum(map(fresh, pairs())), 0, 0
        with progress(store.name, total, "pairs") as work:
            for some in batched(_aligned(recipe, links, pairs, fresh) if total else (), CHUNK):
                new = {_key(pair): line for pair, line in some if fresh(pair)}
                writer.add(new.items())
                writer.known.update(new)
                added, without = added + len(new), without + sum(not line for line in new.values())
                work.update(added)
    missing = f", {without:,} of them without links" if without else ""
    say(f"{counted(added, 'pair')} newly aligned{missing}; {store}")


def _key(pair: Pair) -> str:
    return key_of(key_text(pair.source, pair.target))


def _version(links: LinksConfig) -> str:
    """The version of the source of links: of the program, the file or the weights. Raises UserError."""
    if links.kind == "eflomal":
        return eflomal_version("data.links.kind")
    if links.file is not None:
        read_alignments(links.file, links.links_from, "data.links.links_from")  # validate before the store is created
        return hashes_of([links.file])[0]
    assert links.run is not None
    return str(open_run(links.run).manifest.get("model_sha256"))


def _aligned(
    recipe: Recipe, links: LinksConfig, pairs: Callable[[], Iterable[Pair]], fresh: Callable[[Pair], bool]
) -> Iterable[tuple[Pair, str]]:
    """All pairs with their lines of links; with a teacher only the `fresh` pairs."""
    if links.kind == "teacher":
        return _taught(links, recipe.text, filter(fresh, pairs()))

    text, (source, target) = recipe.text, linked_characters(links.kind, recipe.text)

    def words() -> Iterator[tuple[list[str], list[str]]]:
        for pair in pairs():
            sources = linked_words(pair.source, text.source, characters=source)
            yield sources, linked_words(pair.target, text.target, characters=target)

    if links.file is not None:
        return zip(pairs(), links_of_file(links.file, words, "data.links.file", links.links_from), strict=True)
    return zip(pairs(), align_by_eflomal(words, links.symmetrise), strict=True)


def _taught(links: LinksConfig, text: TextConfig, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, str]]:
    """Pairs with the attention of the teacher; empty for pairs that it cannot read completely."""
    assert links.run is not None
    with foreign_code(False):  # permission in training covers only the recipe's code
        predictor = load(links.run)
    if not isinstance(predictor, SequencePredictor) or not isinstance(predictor.source, TextProcessor):
        raise UserError("a teacher translates text", where="data.links.run", received=str(links.run))
    if (received := TextConfig(source=predictor.source.config, target=predictor.target.config)) != text:
        raise UserError(
            "the words of the teacher are those of another preparation of the text", where="text",
            received=text.model_dump(mode="json"), allowed=str(received.model_dump(mode="json")),
        )  # fmt: skip
    aligner = build_aligner(predictor, links.layer, links.heads)
    for some in batched(pairs, predictor.window((aligner.layer,))):
        readable = [pair for pair in some if predictor.can_read(pair.source, pair.target)]
        given = [pair.source for pair in readable], [pair.target for pair in readable]
        with accounted(InputAccount()):
            forced = predictor.force(*given, capture=(aligner.layer,)) if readable else []
        lines = {}
        for pair, output in zip(readable, forced, strict=True):
            alignment = aligner(output)
            sides = zip((alignment.source, alignment.target), pair[1:3], (text.source, text.target), strict=True)
            if all(len(words) == len(prepare(raw, config).split()) for words, raw, config in sides):
                lines[_key(pair)] = _shares(alignment)
        yield from ((pair, lines.get(_key(pair), "")) for pair in some)


def _shares(alignment: WordAlignment) -> str:
    """A line of links with their shares of attention."""
    weights = alignment.weights
    return " ".join(
        f"{source}-{target}:{weights[target, source]:.3f}"
        for target, source in zip(*(weights >= LEAST).nonzero(), strict=True)
    )
