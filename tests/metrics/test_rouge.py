"""ROUGE against hand-worked cases, loops written from Lin (2004), and rouge-score itself."""

import itertools
from collections import Counter

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from headway.core.errors import UserError
from headway.metrics import as_metrics, build_metric
from headway.processing.text.sentences import sentences

OUTPUTS = [
    "the cat was found under the bed",
    "Police killed the gunman!",
    "",
    "a tiny synopsis, of a package",
    "runs running ran",
]
REFERENCES = [
    ["the cat was under the bed", "the gunman police killed", "nothing", "package synopsis", "runner runs quickly"],
    ["a cat was hidden below it", "police ended the gunman", "", "a tiny package of a synopsis", "it run"],
]


def f1(matches: float, output: int, reference: int) -> float:
    precision, recall = matches / max(output, 1), matches / max(reference, 1)
    return 2 * precision * recall / (precision + recall) if matches else 0.0


def longest_common(one: list[str], other: list[str]) -> int:
    """By trying every subsequence of the shorter text."""
    shorter, longer = sorted((one, other), key=len)
    for length in range(len(shorter), 0, -1):
        for chosen in itertools.combinations(shorter, length):
            rest = iter(longer)
            if all(word in rest for word in chosen):
                return length
    return 0


def by_loops(kind: str, output: list[str], reference: list[str]) -> float:
    if kind == "rouge-l":
        return f1(longest_common(output, reference), len(output), len(reference))
    size = int(kind[-1])
    counts = [
        Counter(tuple(words[i : i + size]) for i in range(len(words) - size + 1)) for words in (output, reference)
    ]
    return f1((counts[0] & counts[1]).total(), *(reference.total() for reference in counts))


def value(kind: str, output: str, *references: str, **options: object) -> float:
    return build_metric(kind, **options).score([output], [[reference] for reference in references]).value


@pytest.mark.parametrize(
    ("kind", "output", "reference", "expected"),
    [
        ("rouge-1", "the cat was found under the bed", "the cat was under the bed", f1(6, 7, 6)),
        ("rouge-2", "the cat was found under the bed", "the cat was under the bed", f1(4, 6, 5)),
        ("rouge-l", "the cat was found under the bed", "the cat was under the bed", f1(6, 7, 6)),
        ("rouge-l", "police killed the gunman", "police kill the gunman", f1(3, 4, 4)),  # Lin (2004), section 3.1
        ("rouge-l", "police killed the gunman", "the gunman kill police", f1(2, 4, 4)),  # S2 and S3 of the same
        ("rouge-1", "the the the", "the cat the", f1(2, 3, 3)),  # clipped
        ("rouge-1", "Hello, WORLD 42!", "hello world; 42", 1.0),
        ("rouge-2", "one", "one", 0.0),  # there is no pair of words
        ("rouge-1", "", "a", 0.0),
        ("rouge-1", "a", "", 0.0),
    ],
)
def test_by_hand(kind: str, output: str, reference: str, expected: float) -> None:
    assert value(kind, output, reference) == pytest.approx(100 * expected, abs=1e-9)


def test_summaries_of_several_sentences_by_hand() -> None:
    """The example of Lin (2004), section 3.2: w1 w2 w3 w4 w5 against w1 w2 w6 w7 w8 and w1 w3 w8 w9 w5."""
    output = "W1 w2 w6 w7 w8. W1 w3 w8 w9 w5."
    assert value("rouge-lsum", output, "W1 w2 w3 w4 w5.") == pytest.approx(100 * f1(4, 10, 5))
    assert value("rouge-l", output, "W1 w2 w3 w4 w5.") == pytest.approx(100 * f1(4, 10, 5))
    swapped = "Second thing came here. First thing came there."
    assert value("rouge-lsum", swapped, "First thing came there. Second thing came here.") == pytest.approx(100)
    assert value("rouge-l", swapped, "First thing came there. Second thing came here.") < 80


@pytest.mark.parametrize("kind", ["rouge-1", "rouge-2", "rouge-l"])
def test_equals_the_loops_and_the_peer(kind: str) -> None:
    random = np.random.default_rng(3)
    texts = [[" ".join(random.choice(list("abcde"), random.integers(0, 8))) for _ in range(30)] for _ in range(2)]
    statistics = build_metric(kind).statistics(texts[0], [texts[1]])
    peer = RougeScorer([kind.replace("-", "").replace("l", "L")])
    for row, (output, reference) in enumerate(zip(*texts, strict=True)):
        expected = by_loops(kind, output.split(), reference.split())
        assert statistics[row].tolist() == pytest.approx([expected, 1], abs=1e-12)
        assert next(iter(peer.score(reference, output).values())).fmeasure == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("stem", [False, True])
@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rougeL"])
def test_several_references_equal_the_peer(kind: str, stem: bool) -> None:
    metric = build_metric(f"rouge-{kind[5:].lower()}", stem=stem)
    peer = RougeScorer([kind], use_stemmer=stem)
    expected = [
        peer.score_multi(targets, output)[kind].fmeasure
        for output, targets in zip(OUTPUTS, zip(*REFERENCES, strict=True), strict=True)
    ]
    assert metric.statistics(OUTPUTS, REFERENCES)[:, 0].tolist() == pytest.approx(expected)
    assert metric.score(OUTPUTS, REFERENCES).value == pytest.approx(100 * np.mean(expected))


@pytest.mark.parametrize("letters", ["ab", "abcde", "abcdefghijklmnop"])
def test_summaries_equal_the_peer(letters: str) -> None:
    random = np.random.default_rng(5)
    texts = [
        [
            " ".join(f"{' '.join(random.choice(list(letters), random.integers(1, 12)))} end." for _ in range(count))
            for count in random.integers(0, 4, 40)
        ]
        for _ in range(2)
    ]
    peer = RougeScorer(["rougeLsum"])
    for output, reference in zip(*texts, strict=True):
        lines = ["\n".join(sentences(text)) for text in (reference, output)]
        expected = peer.score(*lines)["rougeLsum"].fmeasure
        assert value("rouge-lsum", output, reference) == pytest.approx(100 * expected, abs=1e-9)


def test_long_texts() -> None:
    long = "a b " * 10_000
    assert value("rouge-l", long, "b " * 10_000) == pytest.approx(200 / 3)
    assert value("rouge-lsum", "c b " * 1_000, "b " * 1_000) == pytest.approx(200 / 3)
    with pytest.raises(UserError, match="too long for rouge-lsum; received '40,000 and 40,000 words'"):
        value("rouge-lsum", long * 2, long * 2)


def test_stems() -> None:
    assert value("rouge-1", "runs ponies", "running pony") == 0
    assert value("rouge-1", "runs ponies", "running pony", stem=True) == pytest.approx(100)


def test_jackknifing_by_hand() -> None:
    references = ["a b c d", "a x y z", "p q r s"]  # alone: 1.0, 0.25, 0
    assert value("rouge-1", "a b c d", *references) == pytest.approx(100)
    assert value("rouge-1", "a b c d", *references, jackknife=True) == pytest.approx(100 * (0.25 + 1 + 1) / 3)
    assert value("rouge-1", "a b c d", references[1], jackknife=True) == pytest.approx(25)


def test_other_scripts() -> None:
    output, reference = "東京で地震があった。", "東京で大地震"
    # 9 letters and 6, of which 東 京 で 地 震 are shared; as words each is one.
    assert value("rouge-1", output, reference, tokenize="characters") == pytest.approx(100 * f1(5, 9, 6))
    assert value("rouge-2", output, reference, tokenize="characters") == pytest.approx(100 * f1(3, 8, 5))
    assert value("rouge-l", output, reference, tokenize="characters") == pytest.approx(100 * f1(5, 9, 6))
    assert value("rouge-1", output, reference, tokenize="words") == 0
    assert value("rouge-1", output, "「東京で地震があった」", tokenize="words") == pytest.approx(100)
    accented = value("rouge-1", "Über Straße, hügelig", "über die Straße", tokenize="words")
    assert accented == pytest.approx(100 * f1(2, 3, 3))
    assert value("rouge-1", "Über Straße", "er stra e") == pytest.approx(100 * f1(2, 3, 3))  # what is left in ASCII
    assert value("rouge-1", "हिन्दी में", "हिन्दी", tokenize="words") == pytest.approx(100 * f1(1, 2, 1))
    assert value("rouge-1", "हि", "हा", tokenize="characters") == 0  # a letter with its mark is one
    two = value("rouge-lsum", "今日は雨。明日は晴れ。", "明日は晴れ。今日は雨。", tokenize="characters")
    assert two == pytest.approx(100)


def test_sentences_end_by_the_rules_of_a_language() -> None:
    output, reference = "Am 3. Mai kam er. Er blieb.", "Er blieb. Mai kam er am 3."
    # By the rules of English, "Am 3." is a sentence, so that it is found in the reference beside "Mai kam er".
    english = build_metric("rouge-lsum")
    german = build_metric("rouge-lsum", language="de-AT")
    assert english.score([output], [[reference]]).value == pytest.approx(100)
    assert german.score([output], [[reference]]).value == pytest.approx(100 * f1(5, 7, 7))
    assert "sentences:headway-en" in str(english.signature())
    assert "sentences:headway-de" in str(german.signature())
    with pytest.raises(UserError, match=r"rouge-lsum\.language: this is no code of a language"):
        build_metric("rouge-lsum", language="xx")


def test_a_language_without_rules_for_sentences_has_those_of_english(caplog: pytest.LogCaptureFixture) -> None:
    metric = build_metric("rouge-lsum", language="th")
    for _ in range(2):
        assert metric.score(["ฉันรักแมว"], [["ฉันรักแมว"]]).value == pytest.approx(100)
    assert "tok:characters" in str(metric.signature())
    assert [record.message for record in caplog.records] == [
        "ROUGE-Lsum: there are no rules for the sentences of Thai (th), which end by those of English"
    ]


@pytest.mark.parametrize("name", ["rouge-1", "rouge-2", "rouge-l", "rouge-lsum"])
def test_a_language_without_spaces_is_compared_by_characters(name: str) -> None:
    by_language, named = build_metric(name, language="ja-JP"), build_metric(name, tokenize="characters", language="ja")
    score = by_language.score(["東京で地震"], [["東京の地震"]])
    assert 0 < score.value < 100
    assert score.value == named.score(["東京で地震"], [["東京の地震"]]).value
    assert build_metric(name, language="ja", tokenize="words").score(["東京で"], [["東京の"]]).value == 0


def test_references_that_ascii_tokens_lose_are_said(caplog: pytest.LogCaptureFixture) -> None:
    metric = build_metric("rouge-1")
    assert metric.score(["地震", "Linux", "…"], [["東京", "Linux の話", "…"]]).value == pytest.approx(100 / 3)
    message = "ROUGE-1: 1 of 3 references have no letter from a to z and count as empty; tokenize words or"
    assert message in caplog.text
    caplog.clear()
    build_metric("rouge-1", tokenize="characters").score(["地震"], [["東京"]])
    metric.score(["a"], [["b – c"]])
    assert not caplog.records


def test_signatures() -> None:
    metric = build_metric("rouge-lsum", stem=True)
    assert metric.label == "ROUGE-Lsum"
    assert str(metric.signature()).startswith(
        "f1|sentences:headway-en|case:lower|tok:ascii|stem:porter|version:rouge-score-"
    )
    metric = build_metric("rouge-2", tokenize="characters", jackknife=True)
    assert str(metric.score(OUTPUTS, REFERENCES).signature).startswith(
        "nrefs:var|refs:jackknife|f1|case:lower|tok:characters|"
    )
    assert str(build_metric("rouge-l").score(OUTPUTS, REFERENCES).signature).startswith("nrefs:var|refs:best|f1|")
    assert str(build_metric("rouge-l").score(OUTPUTS, REFERENCES[:1]).signature).startswith("nrefs:1|f1|")
    assert build_metric("rouge-l").label == "ROUGE-L"


def test_only_english_is_stemmed() -> None:
    with pytest.raises(
        UserError, match=r"rouge-1\.tokenize: only English is stemmed; received 'words'; allowed: ascii"
    ):
        build_metric("rouge-1", tokenize="words", stem=True)


def test_options_stand_behind_a_metric() -> None:
    rouge, bleu, chrf = as_metrics(["rouge-1:stem=true", "bleu:lowercase=true,tokenize=none", "chrf:word_order=2"])
    assert "stem:porter" in str(rouge.signature())
    assert "case:lc" in str(bleu.signature())
    assert "tok:none" in str(bleu.signature())
    assert chrf.label == "chrF2++"
    (named,) = as_metrics("headway.metrics.rouge:Rouge1:stem=true")
    assert named.signature() == rouge.signature()
    with pytest.raises(UserError, match=r"bleu\.stem: unknown key"):
        as_metrics("bleu:stem=true")
