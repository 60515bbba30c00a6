"""BLEU, chrF and TER against loops written from their papers, against sacrebleu, and against mteval-v13a."""

import math
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from headway.metrics import build_metric

HYPOTHESES = [
    "It is a guide to action which ensures that the military always obeys the commands of the party.",
    "Hello, World! The U.S. spent $1,000.50 on 3.5% of it.",
    "",
    "今日は良い天気です。",
    "Das Haus ist klein",
    "the the the the the the the",
    "Café-Besuch im Mai &amp; Juni",
]
REFERENCES = [
    [
        "It is a guide to action that ensures that the military will forever heed Party commands.",
        "Hello World! The U.S. spent $1,000.50 on 3.5 % of it.",
        "Nothing.",
        "今日はいい天気ですね。",
        "Das Haus ist sehr klein",
        "the cat is on the mat",
        "Cafébesuch im Mai und Juni",
    ],
    [
        "It is the guiding principle which guarantees the military forces always being under the command of the Party.",
        "Hello, world: the US has spent $1,000.50 on 3.5% of this.",
        "",
        "今日は天気が良いです。",
        "Klein ist das Haus",
        "there is a cat on the mat",
        "Ein Café-Besuch im Mai & Juni",
    ],
]
TOKENISED = ["the cat sat on the mat today", "he reads the big red book", "yes it is so"]
TOKENISED_REFERENCES = [
    ["the cat sat on a mat today", "he read the big red book again", "yes it is"],
    ["a cat sat on the mat", "he reads one big red book", "it is so , yes"],
]


def ngrams(items: list[str] | str, order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(items[start : start + order]) for start in range(len(items) - order + 1))


def oracle_bleu(hypotheses: list[str], references: list[list[str]]) -> float:
    """Papineni et al. (2002), equations 1 to 3, on text that is tokenised already."""
    output_length = closest_length = 0
    matches, totals = [0] * 4, [0] * 4
    for index, hypothesis in enumerate(hypotheses):
        words = hypothesis.split()
        targets = [reference[index].split() for reference in references]
        output_length += len(words)
        closest_length += min((abs(len(target) - len(words)), len(target)) for target in targets)[1]
        for order in range(1, 5):
            for ngram, count in ngrams(words, order).items():
                totals[order - 1] += count
                matches[order - 1] += min(count, max(ngrams(target, order)[ngram] for target in targets))
    brevity_penalty = 1.0 if output_length > closest_length else math.exp(1 - closest_length / output_length)
    logarithms = [math.log(match / total) for match, total in zip(matches, totals, strict=True)]
    return 100 * brevity_penalty * math.exp(sum(logarithms) / 4)


def oracle_chrf(hypotheses: list[str], references: list[str], orders: int = 6, beta: int = 2) -> float:
    """Popović (2015): mean precision and recall over the orders of character n-grams, white space left out."""
    precisions, recalls = [], []
    for order in range(1, orders + 1):
        matches = outputs = targets = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            output, target = (ngrams("".join(line.split()), order) for line in (hypothesis, reference))
            outputs += sum(output.values())
            targets += sum(target.values())
            for ngram, count in output.items():
                matches += min(count, target[ngram])
        precisions.append(matches / outputs)
        recalls.append(matches / targets)
    precision, recall = sum(precisions) / orders, sum(recalls) / orders
    return 100 * (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def test_bleu_equals_the_loops() -> None:
    metric = build_metric("bleu", tokenize="none")
    for count in (1, 2):
        references = TOKENISED_REFERENCES[:count]
        score = metric.score(TOKENISED, references).value
        assert score == pytest.approx(oracle_bleu(TOKENISED, references), abs=1e-9)
        assert 10 < score < 95


PUBLISHED = r"s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g"  # tensor2tensor's get_ende_bleu.sh


@pytest.mark.skipif(shutil.which("perl") is None, reason="the published line is Perl")
@pytest.mark.parametrize("base", ["13a", "none"])
def test_bleu_with_split_compounds_is_that_of_the_published_script(base: str) -> None:
    """The script's own line splits sacrebleu's tokens, and sacrebleu counts what it wrote."""
    outputs = ["a rich-text format, state-of-the-art.", "x-y-z - a-", "the well-known cats - 3-4 times"]
    references = ["a rich-text format of the state of the-art.", "x-y z - b-", "well-known cats - about 3-4 times"]
    tokenizer = sacrebleu.BLEU(tokenize=base).tokenizer
    split = [
        subprocess.run(
            ["perl", "-ple", PUBLISHED],
            input="\n".join(map(tokenizer, texts)),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for texts in (outputs, references)
    ]
    assert split[0][1].startswith("x ##AT##-##AT## y-z")
    expected = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(split[0], [split[1]]).score
    metric = build_metric("bleu", tokenize=f"{base}-compounds")
    assert metric.score(outputs, [references]).value == pytest.approx(expected, abs=1e-9)
    assert (
        metric.score(outputs, [references]).value
        != build_metric("bleu", tokenize=base).score(outputs, [references]).value
    )
    assert f"tok:{base}-compounds" in str(metric.signature())
    assert metric.label == "BLEU-compounds"  # so that one table has both


def test_bleu_statistics_by_hand() -> None:
    # 7 words; reference lengths 6 and 8 are equally near, and the shorter counts (as in mteval-v13a).
    hypothesis, references = (
        "the cat the cat on the mat",
        [["the cat is on the mat"], ["there is a cat on the mat now"]],
    )
    statistics = build_metric("bleu", tokenize="none").statistics([hypothesis], references)
    # unigrams: the 2 (of 3), cat 1 (of 2), on, mat; bigrams: the cat 1 (of 2), cat on, on the, the mat;
    # trigrams: cat on the, on the mat; 4-grams: cat on the mat
    assert statistics.tolist() == [[7, 6, 5, 4, 2, 1, 7, 6, 5, 4]]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            ("bleu", {"tokenize": name, "lowercase": lowercase})
            for name in ("13a", "intl", "zh", "char", "none")
            for lowercase in (False, True)
        ),
        ("chrf", {}),
        ("chrf", {"word_order": 2}),
        ("chrf", {"char_order": 3, "beta": 1}),
        ("chrf", {"lowercase": True}),
        ("chrf", {"whitespace": True}),
        ("chrf", {"eps_smoothing": True}),
        ("ter", {}),
        ("ter", {"normalized": True, "asian_support": True}),
        ("ter", {"no_punct": True}),
        ("ter", {"case_sensitive": True}),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_scores_and_signatures_equal_those_of_sacrebleu(name: str, options: dict[str, Any], count: int) -> None:
    peer = getattr(sacrebleu, name.upper())(**options)
    expected = peer.corpus_score(HYPOTHESES, REFERENCES[:count])
    score = build_metric(name, **options).score(HYPOTHESES, REFERENCES[:count])
    assert score.value == pytest.approx(expected.score, abs=1e-9)
    assert score.value > 5
    assert (score.metric, str(score.signature)) == (expected.name, str(peer.get_signature()))


@pytest.mark.parametrize("smooth_method", ["exp", "floor", "add-k", "none"])
def test_bleu_smoothing_equals_sacrebleu_and_leaves_the_totals_alone(smooth_method: str) -> None:
    metric = build_metric("bleu", smooth_method=smooth_method)
    hypotheses, references = ["a b x c d"], [["a b y c d"]]
    totals = metric.statistics(hypotheses, references).sum(axis=0)
    before = totals.copy()
    expected = sacrebleu.BLEU(smooth_method=smooth_method).corpus_score(hypotheses, references).score
    assert metric.aggregate(totals) == pytest.approx(expected, abs=1e-9)
    assert (totals == before).all()


def test_chrf_equals_the_loops() -> None:
    score = build_metric("chrf").score(TOKENISED, TOKENISED_REFERENCES[:1])
    assert score.value == pytest.approx(oracle_chrf(TOKENISED, TOKENISED_REFERENCES[0]), abs=1e-9)
    assert score.metric == "chrF2"


@pytest.mark.parametrize(
    ("hypothesis", "references", "edits", "length"),
    [
        ("a b c d", ["a b c d"], 0, 4),
        ("a x c d", ["a b c d"], 1, 4),  # one substitution
        ("a c d", ["a b c d"], 1, 4),  # one insertion
        ("a b b c d", ["a b c d"], 1, 4),  # one deletion
        ("c d e a b", ["a b c d e"], 1, 5),  # one shift of a block, where word edits alone need four
        ("c d x a b", ["a b c d e"], 2, 5),  # a shift and a substitution
        ("A b", ["a b"], 0, 2),  # case is ignored
        ("a b", ["x y z w", "a b"], 0, 3),  # edits to the nearest reference over the mean length
        ("", ["a b"], 2, 2),
    ],
)
def test_ter_by_hand(hypothesis: str, references: list[str], edits: int, length: float) -> None:
    metric = build_metric("ter")
    statistics = metric.statistics([hypothesis], [[reference] for reference in references])
    assert statistics.tolist() == [[edits, length]]
    assert metric.aggregate(statistics[0]) == pytest.approx(100 * edits / length)


def test_bleu_equals_the_official_mteval_v13a() -> None:
    folder = Path(os.environ.get("HEADWAY_DATA", ".")) / "bleu-check"
    if "HEADWAY_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("HEADWAY_DATA does not name a folder that holds bleu-check (WMT15 output scored by mteval-v13a)")
    official = (folder / "mteval-13a.output").read_text(encoding="utf-8").splitlines()
    rows = [[float(number) for number in line.split()[1:10]] for line in official if line.startswith(" BLEU:")]
    individual, cumulative = rows
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("google.ru", "ref.ru")]
    # The one apostrophe, which the scored SGML has within a word; mteval undoes this entity, sacrebleu's 13a does not.
    hypotheses, reference = (text.replace(" &apos; ", "'").splitlines() for text in texts)
    assert len(hypotheses) == 100
    metric = build_metric("bleu")
    totals = metric.statistics(hypotheses, [reference]).sum(axis=0)
    assert totals[:2].tolist() == [1998, 1862]
    assert metric.aggregate(totals) == pytest.approx(100 * cumulative[3], abs=0.005)
    for order in range(4):
        assert totals[2 + order] / totals[6 + order] == pytest.approx(individual[order], abs=5e-5)


@pytest.mark.parametrize("name", ["bleu", "ter"])
def test_blank_references_beside_others_count_as_in_sacrebleu_and_are_told_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    outputs, references = ["a b c d e", "x"], [["a b c d e f g h i j k l", "x"], ["", "y"]]
    metric = build_metric(name)
    expected = getattr(sacrebleu, name.upper())().corpus_score(outputs, references).score
    assert metric.score(outputs, references).value == pytest.approx(expected, abs=1e-9)
    assert metric.score(outputs, references[:1]).value != pytest.approx(expected, abs=1e-3)
    (record,) = caplog.records
    assert "1 of 4 references are blank beside others of their segment" in record.message
    metric.score(outputs, references)
    build_metric("chrf").score(outputs, references)
    assert len(caplog.records) == 1


def test_tokenised_text_is_warned_of_once_in_words_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["it rains here ."] * 100
    tokenised, meant = build_metric("bleu"), build_metric("bleu", force=True)
    assert tokenised.score(lines, [lines]).value == meant.score(lines, [lines]).value
    tokenised.score(lines, [lines])
    (record,) = caplog.records
    assert record.name == "headway"
    assert "100 of 100 outputs end in a full stop behind a space" in record.message
    build_metric("bleu").score(lines[:99], [lines[:99]])
    build_metric("bleu", tokenize="none").score(lines, [lines])
    assert len(caplog.records) == 1


UNSPACED = {
    "zh": ["我喜欢猫", "他在家里"],
    "ja-JP": ["東京へ行きますか。", "ありがとう"],
    "th": ["ฉันรักแมว", "เขาอยู่บ้าน"],
}


@pytest.mark.parametrize(("language", "tokenizer"), [("zh", "zh"), ("ja-JP", "char"), ("th", "char")])
def test_bleu_has_the_tokenizer_of_the_language(
    language: str, tokenizer: str, caplog: pytest.LogCaptureFixture
) -> None:
    lines, metric = UNSPACED[language], build_metric("bleu", language=language)
    assert metric.score(lines, [lines]).value == pytest.approx(100)
    assert metric.signature()["tok"] == tokenizer
    assert not caplog.records
    own = build_metric("bleu", language=language, tokenize="13a")
    assert own.score(lines, [lines]).signature["tok"] == "13a"


@pytest.mark.parametrize("language", UNSPACED)
def test_unspaced_text_of_no_language_is_warned_of(language: str, caplog: pytest.LogCaptureFixture) -> None:
    lines = UNSPACED[language]
    for name in ("bleu", "ter", "wer"):
        metric = build_metric(name)
        for _ in range(2):
            metric.score(lines, [lines])
        (record,) = caplog.records
        assert "no spaces between words" in record.message
        assert "text.target.language" in record.message
        caplog.clear()


def test_references_without_the_longest_ngram_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["SAVE", "OPEN it"]
    metric = build_metric("bleu")
    assert metric.score(lines, [lines]).value == 0
    (record,) = caplog.records
    assert "BLEU: no reference has 4 words by the tokenizer 13a, so that BLEU is 0 whatever" in record.message
    assert metric.missing([lines, ["a", "four words are here"]]) is None
    assert build_metric("bleu", max_ngram_order=2).missing([lines]) is None


def test_ter_by_language() -> None:
    asian = sacrebleu.TER(normalized=True, asian_support=True)
    lines, outputs = UNSPACED["zh"], ["我喜欢狗", "他在家"]
    expected = asian.corpus_score(outputs, [lines]).score
    assert build_metric("ter", language="zh").score(outputs, [lines]).value == pytest.approx(expected)
    thai = build_metric("ter", language="th").score(["ฉันรักแมว"], [["ฉันรักหมา"]])
    assert thai.value == pytest.approx(100 * 2 / 9)
    assert thai.signature["tok"] == "char"
    plain = build_metric("ter", language="zh", normalized=False, asian_support=False)
    assert plain.score(outputs, [lines]).value == pytest.approx(100)
