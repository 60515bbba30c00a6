"""`headway new`: a folder with train, dev and test sets of the user's pairs, and a recipe that suits their number."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.documents import dump_yaml
from headway.core.errors import UserError, option
from headway.core.files import write_text
from headway.core.languages import UNDETERMINED, language_name, languages_of_names, look_unspaced
from headway.core.log import counted, duration
from headway.corpora.split import Split, SplitOptions, split_parallel, split_table, suffix_of
from headway.formats.corpus_format import Broken
from headway.formats.pairs import open_source
from headway.predictors.predictor import Run
from headway.recipe import recipe_of
from headway.training.trained import dry_run

NGRAM, NARROW = {"kind": "ngram"}, {"dim": 128, "feed_forward": 256, "heads": 4}
STUDENT = {"preset": "student-tiny", "norm": "post", "dropout": 0.1}


class Size(NamedTuple):
    """The sizes of a recipe: vocabulary tokens, model, learning rate, batch tokens, reached scores (docs/sizes.md)."""

    vocabulary: int
    model: dict[str, Any]
    learning_rate: float
    batch_tokens: int
    reached: str = "no training of this size was measured yet"


# By the least number of pairs: with fewer pairs, model and vocabulary are smaller. Those below 200,000
# are the recipes start, tanaka/low-resource/plain and tanaka/transformer-small, measured with 1,600, 10,000 and 50,000
# pairs. The others have sizes of papers.
SIZES = {
    0: Size(2000, NARROW | {"dropout": 0.1, "encoder": {"layers": 2}, "decoder": {"layers": 2}}, 2e-3, 1024,
            "3.5 BLEU with 1,600 pairs of short sentences, Japanese to English"),
    5000: Size(4000, NARROW | {"dropout": 0.2, "encoder": {"layers": 4}, "decoder": {"layers": 4}}, 3e-3, 2048,
               "16 BLEU with 10,000 pairs of short sentences, Japanese to English"),
    20_000: Size(8000, {"preset": "transformer-small", "dropout": 0.1}, 1.5e-3, 2048,
                 "39 BLEU with 50,000 short sentences, Japanese to English"),
    200_000: Size(16_000, {"preset": "transformer-small", "dropout": 0.1}, 1.5e-3, 4096),
    2_000_000: Size(32_000, {"preset": "transformer-base", "dropout": 0.1}, 7e-4, 8192),
}  # fmt: skip
# The recipes multi30k/fast and tanaka/twenty-minutes, faster than attention alone: only headway and onnx support them.
NGRAMS = Size(
    6000,
    {"dim": 256, "feed_forward": 512, "heads": 4, "dropout": 0.1}
    | {side: {"layers": 2, "mixer": [NGRAM | {"n": n}, "attention"]} for side, n in (("encoder", 4), ("decoder", 8))},
    1.3e-3, 1024,
    "38 BLEU with 29,000 captions, English to German, and 41 with 50,000 short sentences, Japanese to English",
)  # fmt: skip
STUDENTS = {
    0: Size(4000, STUDENT, 1.5e-3, 2048),
    20_000: Size(8000, STUDENT, 1.5e-3, 2048,
                 "37 BLEU with 29,000 captions, English to German, and a teacher's translations of them"),
    200_000: Size(16_000, STUDENT | {"preset": "student"}, 1e-3, 4096),
}  # fmt: skip
BROWSER = "browser"
PURPOSES = {"ctranslate2": SIZES, BROWSER: STUDENTS, "research": SIZES | {20_000: NGRAMS}}
# These recipes train for 35 epochs on 1,600 pairs, 20 on 10,000 and 12 on 50,000, which is this power law.
PASSES, FEW, FALL = 35.0, 1600, 0.3
LOOKED_AT = 100_000  # the number of pairs whose characters are counted
MANY_CHARACTERS = 1000  # per side; if there are more, the rarest are not tokens
EVALUATIONS, SHARE = 6, 0.2  # the most evaluations, and their share of the minutes of training
LEAST = 0.1  # the least share of the suitable number of updates; with fewer, a model learns little
IDENTIFIED, NO_LANGUAGE = 200, "zxx"  # texts per side for language identification, and py3langid's code for symbols


class Begun(NamedTuple):
    """The recipe, the files of test sources and targets, and a report as text."""

    recipe: Path
    sources: Path
    targets: Path
    account: str


def begin(
    files: Sequence[Path], output: Path, columns: Sequence[str], languages: Sequence[str | None],
    minutes: float | None = None, broken: Broken = "error", purpose: str = "ctranslate2",
    destinations: Callable[[Run], list[str]] = lambda run: [],
) -> Begun:  # fmt: skip
    """Split pairs into train, dev and test, and write a recipe for them, whose time is measured on this machine.

    Args:
        files: one with columns of source and target, or two.
        output: the folder to make.
        columns: those of source and target, if there is one file.
        languages: of source and target; None to infer them from file names or the text.
        minutes: the most that training may take, including evaluations.
        broken: the treatment of rows that cannot be read.
        purpose: what the model is for, one of `PURPOSES`.
        destinations: returns lines on the export formats that support a run.

    Raises:
        UserError: files cannot be read, there are too few pairs or minutes, or a recipe exists already.
    """
    path = output / "recipe.yaml"
    if path.exists():
        raise UserError("there is a recipe here already", where=option("output"), received=str(path))
    options, ends = SplitOptions(seed=1, disjoint_sources=True), [suffix_of(file) for file in files]
    if len(files) == 2:
        split = split_parallel(files[0], files[1], output, options, broken)
    else:
        split = split_table(files[0], columns, output, options, broken)
    train, dev = (_corpus(output.absolute() / part, ends, columns) for part in ("train", "dev"))
    data = {"train": train, "dev": dev} | ({} if broken == "error" else {"broken": broken})
    looked_at = islice(open_source(train, "data.train", broken), LOOKED_AT)
    pairs = [(pair.source, pair.target) for pair in looked_at]
    texts = zip(*pairs[:IDENTIFIED], strict=True)
    sides = zip(("source", "target"), languages, languages_of_names(files, columns), texts, strict=True)
    languages, said = zip(*(language_of_side(*side) for side in sides), strict=True)
    tree = recipe_tree(split.sizes["train"], pairs, languages, purpose)
    tree = {"task": "translation", "data": data | tree.pop("data"), **tree}
    account = "\n".join([*said, _measured(tree, split, minutes, purpose, destinations)])
    comment = "".join(f"# {line}\n" for line in account.splitlines())
    write_text(path, comment + dump_yaml(tree, flow=True))
    if len(files) == 2:
        return Begun(path, output / f"test{ends[0]}", output / f"test{ends[1]}", account)
    test = [(pair.source, pair.target) for pair in open_source(_corpus(output / "test", ends, columns), "test", broken)]
    begun = Begun(path, output / "test.source", output / "test.target", account)
    for file, lines in zip((begun.sources, begun.targets), zip(*test, strict=True), strict=True):
        write_text(file, "".join(f"{line}\n" for line in lines))
    return begun


def _corpus(beginning: Path, ends: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
    """A part of the split as a corpus in the form of recipes."""
    files = [f"{beginning}{end}" for end in ends]
    if len(files) == 2:
        return dict(zip(("source", "target"), files, strict=True))
    numbers = [int(column) if column.isdecimal() else column for column in columns]
    kind = "jsonl" if ends[0] == ".jsonl" else "tsv"
    return {kind: files[0]} if numbers == [1, 2] and kind == "tsv" else {kind: files[0], "columns": numbers}


def language_of_side(side: str, given: str | None, named: str | None, texts: Sequence[str]) -> tuple[str | None, str]:
    """The language of a side, None if it is not known, and a line that says how it was inferred."""
    code, how = given or named, "" if given else " (by its name)"
    if code is None and find_spec("py3langid") is not None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        found, count = Counter(str(identifier.classify(text)[0]) for text in texts).most_common(1)[0]
        code, how = found if 2 * count > len(texts) and found != NO_LANGUAGE else None, " (by its text)"
    unknown = f"not known: name it as text.{side}.language in the recipe"
    return code, f"{side}: {language_name(code) + how if code else unknown}"


def size_for(count: int, purpose: str = "ctranslate2") -> Size:
    sizes = PURPOSES[purpose]
    return sizes[max(least for least in sizes if least <= count)]


def _words(texts: Iterable[str], unspaced: bool) -> Iterator[str]:
    for text in texts:
        yield from map("".join, pairwise(text)) if unspaced else text.split()


def recipe_tree(
    count: int, pairs: Sequence[tuple[str, str]], languages: Sequence[str | None], purpose: str = "ctranslate2"
) -> dict[str, Any]:
    """The sections of a recipe that depend on the data: on the number `count` of pairs, and on the sample `pairs`."""
    size = size_for(count, purpose)
    sides = [Counter[str](), Counter[str]()]
    for pair in pairs:
        for counts, text in zip(sides, pair, strict=True):
            counts.update(text)
    frequent = {character for character, number in sides[0].items() if 5000 * number > sides[0].total()}
    known = sum(number for character, number in sides[1].items() if character in frequent)
    characters, kind = max(map(len, sides)), "bpe"
    if purpose == BROWSER:
        characters, kind = len(sides[0] | sides[1]), "unigram"
    vocabulary: dict[str, Any] = {"kind": kind, "size": max(size.vocabulary, 500 * math.ceil(characters / 250))}
    if characters > MANY_CHARACTERS:
        vocabulary = {"kind": kind, "size": size.vocabulary, "character_coverage": 0.9995}
    # Each different word can be a piece of its own, so that as many pieces can be had of whatever text; of unigram,
    # each that occurs twice. Without spaces between words, two neighbouring characters can be one.
    texts = list(zip(*pairs, strict=True))
    unspaced = [look_unspaced(side) for side in texts]
    counted_words = (Counter(_words(side, each)) for side, each in zip(texts, unspaced, strict=True))
    words = min(sum(kind == "bpe" or number > 1 for number in one.values()) for one in counted_words)
    vocabulary["size"] = min(vocabulary["size"], max(words, characters + 8))
    shares = purpose == BROWSER and not any(unspaced)  # as Mozilla's models
    if shares or known >= 0.9 * sides[1].total():  # a common alphabet: names are equal on both sides
        vocabulary["shared"] = True
    lengths = sorted(max(map(len, pair)) for pair in pairs)
    longest = lengths[len(lengths) * 99 // 100]  # in characters; a token usually has two or more
    source, target = ({"language": code or UNDETERMINED} for code in languages)
    return {
        "data": {"max_length": min(1000, max(100, 50 * math.ceil(longest / 100)))},
        "text": {"source": source, "target": target},
        "vocabulary": vocabulary,
        "model": {"norm": "pre", **size.model},
        "objective": {"label_smoothing": 0.1},
        "optimizer": {"learning_rate": size.learning_rate, "schedule": "linear", "warmup": 1},
        "training": {"updates": 1000, "batch_tokens": size.batch_tokens},
        "decoding": {"beam": 1} if purpose == BROWSER else {"beam": 4, "length_penalty": 0.6},
    }


def _measured(
    tree: dict[str, Any], split: Split, minutes: float | None, purpose: str, destinations: Callable[[Run], list[str]]
) -> str:
    """Set the length of a recipe's training from a trial of a few updates. Returns a report on the recipe."""
    count, training, lines = split.sizes["train"], tree["training"], list[str]()
    cost = dry_run(recipe_of(tree, []), lambda run: lines.extend(destinations(run)))
    evaluations, updates = EVALUATIONS, math.ceil(PASSES * (FEW / max(count, FEW)) ** FALL * cost.updates_per_epoch)
    wanted, evaluation = updates, cost.evaluation_seconds  # of an untrained model, the slowest to evaluate
    if minutes is not None:
        evaluations = max(1, min(evaluations, int(SHARE * 60 * minutes / evaluation)))
        updates = min(updates, int((60 * minutes - evaluations * evaluation) / cost.update_seconds))
        least = math.ceil(LEAST * wanted)
        if updates < least:
            what = f"{max(0, updates):,} updates fit into these minutes, and {wanted:,} suit this number of pairs"
            allowed = f"{math.ceil((least * cost.update_seconds + evaluation) / 60)} or more, for {least:,} updates"
            raise UserError(what, where=option("minutes"), received=f"{minutes:g}", allowed=allowed)
    training |= {"updates": updates, "checkpoint_every": math.ceil(updates / evaluations)}
    tree["optimizer"]["warmup"] = max(1, min(4000, updates // 12))
    seconds = updates * cost.update_seconds + evaluations * evaluation
    cut = "" if updates == wanted else f", of {wanted:,} that suit this number of pairs"
    return (
        f"{split.text()}\n"
        f"{cost.parameters:,} parameters, {tree['vocabulary']['size']:,} tokens of vocabulary\n"
        f"{counted(updates, 'update')}{cut}: {updates / cost.updates_per_epoch:.1f} passes over the pairs\n"
        f"at most about {duration(seconds)} on this machine under its load, with {counted(evaluations, 'evaluation')}\n"
        + "\n".join([f"such recipes have reached: {size_for(count, purpose).reached}", *lines])
    )
