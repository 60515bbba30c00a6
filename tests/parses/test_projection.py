"""Heads of subwords: sentences worked by hand in Japanese, English and German, and properties of any sentence."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headway.parses.parse import Parse, Token
from headway.parses.projection import NONE, project
from headway.processing.text.text_processor import TextToken


def tree(line: str, *tokens: tuple[str, int]) -> Parse:
    """A parse whose tokens stand in `line` in this order; heads count from 0, a root is its head."""
    parsed, start = [], 0
    for text, head in tokens:
        start = line.index(text, start)
        parsed.append(Token(start, start + len(text), head, "label"))
        start += len(text)
    return Parse(parsed)


def cut(line: str, segmented: str) -> list[TextToken]:
    """Subwords of a line: `segmented` has spaces between words and | between the subwords of a word; its characters are
    those of the line, white space aside."""
    subwords, index = [], 0
    for word, text in enumerate(segmented.split()):
        for number, subword in enumerate(text.split("|")):
            while line[index].isspace():
                index += 1
            start = index
            for character in subword:
                while line[index].isspace():
                    index += 1
                assert line[index] == character
                index += 1
            subwords.append(TextToken(9, ("" if number else "\u2581") + subword, start, index, word))
    return subwords


def heads(line, segmented, *tokens, **options):
    return project(cut(line, segmented), tree(line, *tokens), **options).heads.tolist()


def test_english_word_by_word_and_in_pieces():
    line = "She speaks well ."
    tokens = ("She", 1), ("speaks", 1), ("well", 1), (".", 1)
    assert heads(line, "She speaks well .", *tokens) == [1, 1, 1, 1]
    #                   0   1    2    3  4   5: the root's last subword points to itself, others to its first
    assert heads(line, "She sp|eak|s we|ll .", *tokens) == [1, 2, 3, 3, 5, 1, 1]


def test_english_contraction_is_merged():
    """The parser has `ca` and `n't`, the translator one word: both hang on `tell`, and make one edge."""
    line = "I can't tell"
    tokens = ("I", 3), ("ca", 3), ("n't", 3), ("tell", 3)
    assert heads(line, "I can't tell", *tokens) == [2, 2, 2]
    assert heads(line, "I can|'t tell", *tokens) == [3, 2, 3, 3]
    counts = project(cut(line, "I can't tell"), tree(line, *tokens)).counts
    assert counts["merged"] == 1
    assert (counts["tokens"], counts["words"], counts["edges"], counts["split"], counts["dropped"]) == (4, 3, 3, 0, 0)


def test_a_merged_word_takes_the_head_of_its_highest_token():
    """`cannot`: `not` hangs on `can`, and `can` on `go`; and where the root is inside, the word is the root."""
    line = "I cannot go"
    assert heads(line, "I cannot go", ("I", 3), ("can", 3), ("not", 1), ("go", 3)) == [2, 2, 2]
    assert heads(line, "I cannot go", ("I", 1), ("can", 1), ("not", 1), ("go", 1)) == [1, 1, 1]


def test_a_token_that_covers_two_words_is_chained():
    """The parser has `New York` as one token; its first word is what others point to."""
    line = "in New York now"
    tokens = ("in", 1), ("New York", 1), ("now", 1)
    assert heads(line, "in New York now", *tokens) == [1, 2, 2, 1]
    assert heads(line, "in New Yo|rk now", *tokens) == [1, 2, 3, 3, 1]
    assert project(cut(line, "in New York now"), tree(line, *tokens)).counts["split"] == 1


def test_a_word_that_both_cut_elsewhere():
    """abcd: words ab cd, tokens abc d. They are one node; the higher token, d, gives its head."""
    line = "x ab cd y"
    tokens = Parse([Token(0, 1, 3, ""), Token(2, 6, 2, ""), Token(6, 7, 3, ""), Token(8, 9, 3, "")])
    projection = project(cut(line, "x ab c|d y"), tokens)
    assert projection.heads.tolist() == [4, 2, 3, 4, 4]
    assert projection.blocks.tolist() == [0, 1, 1, 1, 2]
    assert (projection.counts["merged"], projection.counts["split"]) == (1, 1)


def test_japanese_segmented_by_another_tool():
    """KyTea cuts the verb's ending off (着 く), the parser does not, and reads the line without its spaces."""
    line = "誰 が 一番 に 着 く か"
    parse = Parse([
        Token(0, 1, 4, "nsubj"), Token(2, 3, 0, "case"), Token(4, 6, 4, "advmod"), Token(7, 8, 2, "case"),
        Token(9, 12, 4, "root"), Token(13, 14, 4, "mark"),
    ])  # fmt: skip
    #  誰0 が1 一2 番3 に4 着5 く6 か7
    projection = project(cut(line, "誰 が 一|番 に 着 く か"), parse)
    assert projection.heads.tolist() == [5, 0, 3, 5, 2, 6, 6, 5]
    assert projection.left_only().heads.tolist() == [NONE, 0, NONE, NONE, 2, NONE, 6, 5]
    counts = projection.left_only().counts
    assert (counts["edges"], counts["edges to the right"]) == (4, 4)


def test_japanese_without_segmentation():
    """Subwords run over word ends; a word ends where a subword and a token do. は問 joins two tokens."""
    line = "彼は問題を解決した"
    parse = tree(line, ("彼", 4), ("は", 0), ("問題", 4), ("を", 2), ("解決", 4), ("し", 4), ("た", 4))
    #  彼0 は問1 題2 を3 解4 決5 した6
    projection = project(cut(line, "彼|は問|題|を|解|決|した"), parse, segmented=False)
    assert projection.blocks.tolist() == [0, 1, 1, 2, 3, 3, 4]
    # は (below 彼) and 問題 (below 解決) are one node: 問題 is higher.
    assert projection.heads.tolist() == [4, 2, 4, 1, 5, 5, 4]
    assert project(cut(line, "彼|は問|題|を|解|決|した"), parse).blocks.tolist() == [0] * 7


def test_german_separable_verb_compound_and_punctuation():
    """`ruft ... an`: the particle hangs on the verb. BPE cuts the compound; the full stop is a word of its own."""
    line = "Er ruft die Hausverwaltung an."
    tokens = ("Er", 1), ("ruft", 1), ("die", 3), ("Hausverwaltung", 1), ("an", 1), (".", 1)
    #  Er0 ruft1 die2 Haus3 verwalt4 ung5 an6 .7
    assert heads(line, "Er ruft die Haus|verwalt|ung an .", *tokens) == [1, 1, 3, 4, 5, 1, 1, 1]


def test_german_contraction_whose_words_share_their_characters():
    """`im` is in + dem in Universal Dependencies; both cover its two characters."""
    line = "Er ist im Haus"
    parse = Parse([
        Token(0, 2, 4, "nsubj"), Token(3, 6, 4, "cop"), Token(7, 9, 4, "case"), Token(7, 9, 4, "det"),
        Token(10, 14, 4, "root"),
    ])  # fmt: skip
    projection = project(cut(line, "Er ist im Haus"), parse)
    assert projection.heads.tolist() == [3, 3, 3, 3]
    assert projection.counts["merged"] == 1


def test_a_token_without_a_piece_hands_on_its_children():
    """The dash stands in no subword (normalisation took it); what hung on it hangs on its head."""
    line = "a - b c"
    parse = tree(line, ("a", 1), ("-", 2), ("b", 3), ("c", 3))
    subwords = [TextToken(9, text, line.index(text), line.index(text) + 1, index) for index, text in enumerate("abc")]
    projection = project(subwords, parse)
    assert projection.heads.tolist() == [1, 2, 2]
    assert projection.counts["dropped"] == 1
    root_gone = project(subwords, tree(line, ("a", 1), ("-", 1), ("b", 1), ("c", 2)))
    assert root_gone.heads.tolist() == [NONE, NONE, 1]


def test_words_without_a_token_and_lines_without_a_parse():
    line = "a b"
    projection = project(cut(line, "a b"), tree(line, ("a", 0)))
    assert projection.heads.tolist() == [0, NONE]
    assert projection.counts["words without a token"] == 1
    for parse in (None, Parse(())):
        nothing = project(cut(line, "a b"), parse)
        assert nothing.heads.tolist() == [NONE, NONE]
        assert (nothing.counts["lines without a parse"], nothing.counts["edges"]) == (1, 0)


def test_the_mark_of_a_space_is_the_first_piece_of_its_word():
    subwords = [
        TextToken(9, "\u2581", 0, 0, 0),
        TextToken(9, "a", 0, 1, 0),
        TextToken(9, "\u2581", 1, 2, 1),
        TextToken(9, "b", 2, 3, 1),
    ]
    parse = tree("a b", ("a", 1), ("b", 1))
    for segmented in (True, False):
        assert project(subwords, parse, segmented=segmented).heads.tolist() == [1, 2, 3, 3]


@pytest.mark.parametrize("heads", [[1, 0], [1, 2, 0], [5], [-1]])
def test_heads_that_make_no_tree_are_refused(heads):
    with pytest.raises(ValueError, match="has no way to a root"):
        Parse([Token(index, index + 1, head, "") for index, head in enumerate(heads)])


@st.composite
def sentences(draw):
    """A line, its subwords and a parse: words and tokens cut at random, heads any trees."""
    words = draw(st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=7))
    line = draw(st.sampled_from([" ", "  "])).join(words)
    segmented = " ".join("|".join(_chunks(draw, word)) for word in words)
    spans = [index for index, character in enumerate(line) if not character.isspace()]
    tokens, start = [], 0
    while start < len(spans):
        size = draw(st.integers(1, 5))
        if draw(st.integers(0, 7)):  # some characters are in no token
            tokens.append((spans[start], spans[min(start + size, len(spans)) - 1] + 1))
        start += size
    order = draw(st.permutations(range(len(tokens))))
    heads = [0] * len(tokens)
    for rank, token in enumerate(order):
        above = draw(st.integers(0, rank))
        heads[token] = order[above]  # itself for a root
    parse = Parse([Token(*span, head, "x") for span, head in zip(tokens, heads, strict=True)])
    return cut(line, segmented), parse, draw(st.booleans())


def _chunks(draw, word):
    ends = sorted({*draw(st.lists(st.integers(1, len(word)), max_size=3)), len(word)})
    return [word[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(sentences())
def test_every_edge_points_to_a_piece_and_pieces_make_trees(sentence):
    subwords, parse, segmented = sentence
    projection = project(subwords, parse, segmented=segmented)
    heads = projection.heads.tolist()
    assert len(heads) == len(subwords)
    assert all(head == NONE or 0 <= head < len(subwords) for head in heads)
    # An edge leads to the next subword of a block, or to the first subword of one, or, from a root, to itself.
    blocks = projection.blocks.tolist()
    for index, head in enumerate(heads):
        last = index + 1 == len(blocks) or blocks[index + 1] != blocks[index]
        if head != NONE and not last:
            assert head == index + 1
        elif head not in (NONE, index):
            assert blocks[head] != blocks[index]
            assert head == 0 or blocks[head - 1] != blocks[head]
    if NONE not in heads:
        Parse([Token(0, 0, head, "") for head in heads])  # trees: no circles
        assert any(head == index for index, head in enumerate(heads))
    left = projection.left_only().heads.tolist()
    assert all(head <= index for index, head in enumerate(left))
    assert all(new in (NONE, old) for new, old in zip(left, heads, strict=True))
    counts = projection.counts
    assert counts["edges"] == sum(head != NONE for head in heads)
    assert counts["merged"] + counts["dropped"] <= counts["tokens"]


@given(st.data())
def test_the_same_segmentation_keeps_the_tree(data):
    words = data.draw(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=7))
    line, order = " ".join(words), data.draw(st.permutations(range(len(words))))
    heads = [0] * len(words)
    for rank, token in enumerate(order):
        heads[token] = order[data.draw(st.integers(0, rank))]
    parse = tree(line, *zip(words, heads, strict=True))
    projection = project(cut(line, line), parse)
    assert projection.heads.tolist() == heads
    assert sum(projection.counts[name] for name in ("merged", "dropped", "split", "words without a token")) == 0
