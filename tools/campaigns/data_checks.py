"""What has to hold of the files of the data campaign once they were read without an error."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headway.comparison.options import CompareOptions
from headway.core.errors import UserError
from headway.corpora.corpus import build_corpus
from headway.corpora.filters import Filters
from headway.corpora.split import SplitOptions, split_parallel
from headway.formats.alignments import parse_pharaoh, read_alignments
from headway.formats.conllu import read_sentences
from headway.formats.corpus_format import ERRORS, TAGS, TREES, Pair, open_corpora
from headway.formats.labelled_words import open_labelled
from headway.formats.lines import check_file, read_lines
from headway.formats.pairs import open_source
from headway.formats.recordings import open_recordings, read_utterances
from headway.formats.treebanks import read_trees
from headway.grids.compare import compare_existing
from headway.metrics import build_metric
from headway.parses.parsers import read_conllu as read_parses
from headway.processing.text.text_processor import TextConfig, TextProcessor, train_processors
from headway.processing.text.vocabulary import VocabularyConfig
from headway.trees.linear_form import linearise, repair
from tools.campaigns.mutations import LINE_ENDS

FILTERS = Filters(max_length=50, drop_duplicates=True)
MOST_LINES = 20_000  # whose tokens are looked at
TEXT = ("a b c dog Haus 日本語 . ,", "A B C dog Haus 日本語 . ,")
_sides: dict[str, tuple[TextProcessor, TextProcessor]] = {}


def prepare(folder: Path) -> None:
    """Train the vocabularies, and load what is only loaded when it is first used."""
    for kind in ("char", "word", "whitespace"):
        config = VocabularyConfig(kind=kind, size=64)
        _sides[kind] = train_processors(TextConfig(), config, lambda: iter([TEXT] * 20))
    for name in ("moses", "whitespace", "punctuation", "nfkc"):
        check_line("line", [_written(folder / "line", b"a dog .\n")], name)
    for metric in ("bleu", "chrf", "wer", "cer", "rouge-l"):
        build_metric(metric).score(["a dog"], [["a cat"]])
    list(read_sentences(_written(folder / "conllu", b"1\ta\ta\tX\tX\t_\t0\troot\t_\t_\n")))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def plain(path: Path) -> bytes:
    """The content of a file, unpacked by the standard library."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else lzma.decompress(raw) if path.suffix == ".xz" else raw


def count_lines(path: Path) -> int:
    """How many lines end with a newline, and one more where something follows the last."""
    content = plain(path).removeprefix(b"\xef\xbb\xbf")
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def lines_of(path: Path) -> list[str]:
    """The lines of a file."""
    *lines, last = plain(path).decode().removeprefix("\ufeff").split("\n")
    return [line.removesuffix("\r") for line in lines] + [last] * bool(last)


def corpus_of(kind: str, paths: Sequence[Path], option: str) -> dict[str, Any]:
    """The corpus as a recipe writes it."""
    columns = [int(column) if column.isdigit() else column for column in option.split()]
    match kind:
        case "parallel" | "parallel-crlf" | "encode":
            return {"source": paths[0], "target": paths[1]}
        case "corrections":
            return {"source": paths[0], "references": [paths[1]]}
        case "tsv" | "manifest":
            return {"tsv": paths[0]} | ({"columns": columns} if columns else {})
        case "jsonl":
            return {"jsonl": paths[0], "columns": columns}
        case "columns":
            return {"kind": "columns", "path": paths[0], "columns": columns}
        case "conllu":
            return {"conllu": paths[0], "label": option}
        case "m2":
            return {"m2": paths[0]} | ({"annotator": int(option)} if option else {})
        case "penn" | "tiger":
            return {"trees": paths[0]}
    raise AssertionError(kind)


def check_pairs(kind: str, paths: Sequence[Path], option: str) -> None:
    """A pair a line, in order, the same each time, and no line end within a text."""
    source = open_source(corpus_of(kind, paths, option), "data.train")
    pairs = list(source)
    assert pairs == list(source), "a second reading differs"
    assert source.fingerprint() == source.fingerprint()
    header = bool(option) and kind == "tsv" and not option[0].isdigit()
    assert [pair.line for pair in pairs] == list(range(1 + header, count_lines(paths[0]) + 1)), "lines are lost"
    if kind.startswith("parallel"):
        for path, texts in zip(paths, zip(*((pair.source, pair.target) for pair in pairs), strict=True), strict=False):
            assert list(texts) == [re.sub(f"[{LINE_ENDS}]", " ", line) for line in lines_of(path)], (
                "other lines than those of the file"
            )
    check_texts(pairs)


def check_texts(pairs: Sequence[Pair]) -> None:
    """No text holds what ends a line anywhere."""
    texts = [text for pair in pairs for text in (pair.source, *pair.references)]
    assert not any(sign in text for text in texts for sign in LINE_ENDS), "a line end within a text"


def check_labelled(kind: str, paths: Sequence[Path], option: str) -> None:
    """A label for each word, by each annotator."""
    product = ERRORS if kind in ("m2", "corrections") else TAGS
    for sentence in open_labelled(corpus_of(kind, paths, option), "data.train", product):
        assert sentence.words
        assert {len(labels) for labels in sentence.labels} == {len(sentence.words)}
        assert all(word.strip() and not set(word) & set(LINE_ENDS) for word in sentence.words), "a line end in a word"
        assert all(len(label.split()) == 1 for labels in sentence.labels for label in labels), "no label"


def check_conllu(kind: str, paths: Sequence[Path], option: str) -> None:
    """Labels or parses of Universal Dependencies."""
    if option == "parses":
        for text, parse in read_parses(paths[0]):
            visible = len("".join(text.split()))
            assert all(0 <= token.start <= token.end <= visible for token in parse.tokens)
    else:
        check_labelled(kind, paths, option)


def check_trees(kind: str, paths: Sequence[Path], option: str) -> None:
    """Trees can be written and read back, and their sentences are one line."""
    for _, tree in read_trees(paths[0]):
        if tree is not None:
            check_tree(tree)
    (corpus,) = open_corpora(corpus_of(kind, paths, option), "data.train", TREES)
    check_texts(list(corpus.pairs()))


def check_tree(tree: Any) -> None:
    """A tree survives being written, as brackets and as a linear form."""
    from headway.formats.penn import parse_tree

    words = tree.words()
    assert all(len(word.split()) == 1 for word in words), "a word is not one"
    assert parse_tree(tree.write()) == tree, "the tree cannot be read back"
    if len(words) < 300:
        assert repair(linearise(tree), words).tree.words() == words


def check_alignments(kind: str, paths: Sequence[Path], option: str) -> None:
    """Links of each sentence pair, as many lines as there are."""
    for path, name in zip(paths[1:], ("a.xml", "b.xml"), strict=False):
        shutil.copy(path, path.parent / name)
    links = read_alignments(paths[0])
    for line in links:
        parse_pharaoh(line, "written")
    if kind == "pharaoh" and not plain(paths[0]).lstrip().startswith(b"<"):
        assert len(links) <= max(count_lines(paths[0]), 4)


def check_recordings(kind: str, paths: Sequence[Path], option: str) -> None:
    """Utterances of a manifest or of LibriSpeech's transcripts."""
    corpus = corpus_of("tsv", paths, "")
    if kind == "librispeech":
        (paths[0].parent / "84").mkdir()
        shutil.copy(paths[0], paths[0].parent / "84" / "84-1.trans.txt")
        corpus = {"librispeech": paths[0].parent / "84"}
    source = open_recordings(corpus, "data.train")
    utterances = read_utterances(source)
    assert all("\n" not in utterance.text for utterance in utterances)
    check_texts([Pair(1, "", utterance.text) for utterance in utterances])


def check_scores(kind: str, paths: Sequence[Path], option: str) -> None:
    """A score with its interval, and text that can be read; the order of segments does not matter to it."""
    metric = build_metric(option)
    given = CompareOptions(hypotheses=(f"x={paths[0]}",), references=(paths[1],))
    report = compare_existing([], given, [metric], least=1)
    value = report.variants[0].scores[report.measures[0].key].mean
    assert value == value, "the score is no number"
    if option in ("bleu", "chrf", "wer", "cer", "exact_match", "rouge-l"):
        outputs, references = lines_of(paths[0]), lines_of(paths[1])
        assert len(report.tests[0]) == len(outputs), "segments are lost"
        turned = metric.score(outputs[::-1], [references[::-1]])
        assert abs(turned.value - value) < 1e-6, "the order of segments changes the score"
        if option == "exact_match":
            equal = [one.strip() == other.strip() for one, other in zip(outputs, references, strict=True)]
            assert abs(value - 100 * sum(equal) / len(equal)) < 1e-6, "another score than by hand"
    assert report.text()
    assert report.to_json()


def check_encoding(kind: str, paths: Sequence[Path], option: str) -> None:
    """Every pair is kept or counted as dropped; ids become the text again."""
    corpus_config, cache = corpus_of(kind, paths, option), paths[0].parent / "cache"
    source, sides = open_source(corpus_config, "data.train"), _sides[option]
    corpus = build_corpus(source, sides, FILTERS, name="data.train", filter=True, cache=cache)
    report = corpus.report
    assert report.pairs_read == count_lines(paths[0])
    assert report.pairs_kept + sum(report.dropped.values()) == report.pairs_read
    pairs = {pair.line: pair for pair in source}
    for index in range(len(corpus)):
        pair = pairs[int(corpus.lines[index])]
        assert corpus.source(index).tolist() == sides[0].encode(pair.source).values
        assert not set(sides[1].decode(corpus.target(index).tolist())) & set(LINE_ENDS), "a line end in an output"
    again = build_corpus(source, sides, FILTERS, name="data.train", filter=True, cache=cache)
    assert again.report == report
    if count_lines(paths[0]) >= 3:
        parts = [path.with_suffix(f".{side}") for path, side in zip(paths, "st", strict=True)]
        for path, part in zip(paths, parts, strict=True):
            part.write_bytes(plain(path))
        try:
            split = split_parallel(*parts, paths[0].parent / "parts", SplitOptions((1, 1, 1)))
        except UserError as error:
            if "too few" not in str(error) and "no pair" not in str(error):
                raise
            return
        assert sum(split.sizes.values()) + sum(split.left_out.values()) == count_lines(paths[0]), "split lost lines"
        for name, size in split.sizes.items():
            assert len(list(read_lines(paths[0].parent / "parts" / f"{name}.s"))) == size, "split miscounted"


def check_line(kind: str, paths: Sequence[Path], option: str) -> None:
    """Tokens of any line come from characters of it, in their order."""
    check_file(paths[0], "data.train")
    steps = (option,) if option in ("nfkc", "punctuation", "lower") else ()
    config = TextConfig.model_validate(
        {"source": {"normalise": steps, "segment": option if not steps and option != "none" else "none"}}
    ).source
    processor = TextProcessor(config, _sides["char"][0].vocabulary)
    for line in islice(read_lines(paths[0]), MOST_LINES):
        tokens = processor.encode_with_spans(line)
        assert [token.id for token in tokens] == processor.encode(line).values
        starts, ends = [token.start for token in tokens], [token.end for token in tokens]
        assert starts == sorted(starts)
        assert ends == sorted(ends)
        assert all(0 <= start <= end <= len(line) for start, end in zip(starts, ends, strict=True))


CHECKS: dict[str, Callable[[str, Sequence[Path], str], None]] = {
    "corrections": check_labelled, "columns": check_labelled, "m2": check_labelled, "conllu": check_conllu,
    "penn": check_trees, "tiger": check_trees, "pharaoh": check_alignments, "naacl": check_alignments,
    "treealigner": check_alignments, "manifest": check_recordings, "librispeech": check_recordings,
    "scores": check_scores, "encode": check_encoding, "line": check_line,
}  # fmt: skip
