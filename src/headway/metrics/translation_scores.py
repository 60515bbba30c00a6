"""BLEU, chrF and TER: sacrebleu's statistics, scores and signatures with headway's metric interface."""

import re
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Annotated, Literal

import numpy as np
import sacrebleu
from pydantic import Field
from sacrebleu.metrics.base import Metric as SacrebleuMetric

from headway.core.errors import UserError, nearest
from headway.core.languages import LanguageCode, has_no_spaces, is_written_in_han
from headway.core.log import warn
from headway.metrics.metric import Metric, Signature, Statistics, check_segments, present, spelt, without_words

COMPOUNDS = "-compounds"  # after the name of a tokenizer
HYPHEN = re.compile(r"(\S)-(\S)")
MANY_TOKENISED = 100  # the number of tokenised-looking outputs above which to warn, as in sacrebleu


class Sacrebleu(Metric):
    """A metric of sacrebleu.

    `_extract_corpus_statistics` and `_compute_score_from_stats` are sacrebleu's only separation between the statistics
    of segments and the score of a corpus; its own significance tests use them, too.

    Attributes:
        counts_blanks: whether sacrebleu counts a blank text among other references as a reference.
    """

    counts_blanks = True

    def __init__(self, metric: SacrebleuMetric, label: str, *, needs_spaces: bool = False) -> None:
        self._metric = metric
        self._label = label
        self._needs_spaces = needs_spaces
        self._told_of_words = False
        self._told_of_blanks = False
        # sacrebleu sets this from the references. Its signature needs the attribute, and leaves out None.
        metric.num_refs = None  # type: ignore[assignment]

    @property
    def label(self) -> str:
        return self._label

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """The statistics. Warns once about blank texts among other references, and about references without words."""
        check_segments(hypotheses, references)
        blank = int((~present(references)).sum()) if self.counts_blanks and not self._told_of_blanks else 0
        if blank:
            self._told_of_blanks = True
            share = f"{blank:,} of {len(references) * len(references[0]):,} references"
            warn(
                f"{self.label}: {share} are blank beside others of their segment; they count as texts of no length, as"
                " in sacrebleu, so that short outputs score too well"
            )
        if not self._told_of_words and (what := self._wordless(references)) is not None:
            self._told_of_words = True
            warn(f"{self.label}: {what}")
        return np.asarray(self._metric._extract_corpus_statistics(hypotheses, references), dtype=np.float64)

    def _wordless(self, references: Sequence[Sequence[str]]) -> str | None:
        return without_words(references) if self._needs_spaces else None

    def aggregate(self, totals: Statistics) -> float:
        return float(self._metric._compute_score_from_stats(totals.tolist()).score)

    def signature(self) -> Signature:
        return Signature.parse(str(self._metric.get_signature()))


class CompoundTokenizer:
    """A tokenizer of sacrebleu, followed by the split of compounds at hyphens in tokenised BLEU of WMT papers.

    The split is that of GNMT and tensor2tensor's `get_ende_bleu.sh`: `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`.
    """

    def __init__(self, tokenizer: Callable[[str], str], name: str) -> None:
        self._tokenizer, self._name = tokenizer, name

    def signature(self) -> str:
        return self._name

    def __call__(self, line: str) -> str:
        return HYPHEN.sub(r"\1 ##AT##-##AT## \2", self._tokenizer(line))


class Bleu(Sacrebleu):
    """BLEU (Papineni et al. 2002), with the shortest of the closest reference lengths, as sacrebleu and mteval-v13a.

    Statistics: lengths of hypothesis and reference, then matches and then totals of each n-gram order.

    Args:
        tokenize: a tokenizer of sacrebleu; `none` for tokenised text. By default `zh` or `char` for languages that are
            written without spaces, else `13a`. After its name, `-compounds` splits compounds at hyphens, as tokenised
            BLEU in papers on WMT's English-German does: `13a-compounds`, or `none-compounds` for tokenised text. Such
            scores are not comparable with those of the plain tokenizer.
        lowercase: compare without regard to case.
        smooth_method: the smoothing of zero precisions; `exp` is mteval-v13a's (Chen and Cherry 2014, method 3).
        smooth_value: the value of `floor` and `add-k`; None for sacrebleu's.
        max_ngram_order: the longest n-gram.
        force: do not warn about hypotheses that look tokenised, as with `tokenize="none"`.
        language: the language of the references.

    Raises:
        UserError: the tokenizer is unknown, or cannot be loaded.
    """

    name = "bleu"

    def __init__(
        self,
        *,
        tokenize: str | None = None,
        lowercase: bool = False,
        smooth_method: Literal["exp", "floor", "add-k", "none"] = "exp",
        smooth_value: Annotated[float, Field(gt=0, le=1e6)] | None = None,
        max_ngram_order: Annotated[int, Field(gt=0, le=100)] = 4,
        force: bool = False,
        language: LanguageCode | None = None,
    ) -> None:
        needs_spaces = tokenize is None and not has_no_spaces(language)
        if not tokenize:  # always available, so that scores do not depend on installed packages
            unspaced = language if has_no_spaces(language) else None
            tokenize = "13a" if unspaced is None else "zh" if is_written_in_han(unspaced) else "char"
        known, split = list(sacrebleu.BLEU.TOKENIZERS), tokenize.endswith(COMPOUNDS)
        if (base := tokenize.removesuffix(COMPOUNDS)) not in known:
            hint = nearest(base, known)
            raise UserError(f"unknown tokenizer{hint}", where="bleu.tokenize", received=tokenize, allowed=known)
        try:
            metric = sacrebleu.BLEU(
                tokenize=base,
                lowercase=lowercase,
                smooth_method=smooth_method,
                smooth_value=smooth_value,
                max_ngram_order=max_ngram_order,
                force=True,  # headway has its own warning
            )
        except (ImportError, RuntimeError, OSError) as error:  # a missing library, or a model that cannot be downloaded
            reason = " ".join(str(error).split())
            raise UserError(
                f"this tokenizer cannot be loaded ({reason})", where="bleu.tokenize", received=tokenize
            ) from error
        if split:
            metric.tokenizer = CompoundTokenizer(metric.tokenizer, tokenize)
            metric.tokenizer_signature = tokenize
        super().__init__(metric, f"BLEU{COMPOUNDS if split else ''}", needs_spaces=needs_spaces)
        self._warns = not (force or base == "none")

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """The statistics. Warns once about hypotheses that look tokenised, unless `force` is set."""
        tokenised = sum(hypothesis.rstrip().endswith(" .") for hypothesis in hypotheses) if self._warns else 0
        if tokenised >= MANY_TOKENISED:
            self._warns = False
            warn(
                f"BLEU: {tokenised:,} of {len(hypotheses):,} outputs end in a full stop behind a space, as tokenised"
                " text does, and BLEU tokenises them once more. Score text without such spaces, or set tokenize: none."
                " With force: true the score stays the same, and this warning goes"
            )
        return super().statistics(hypotheses, references)

    def missing(self, references: Sequence[Sequence[str]]) -> str | None:
        self._told_of_words = True
        return self._wordless(references)

    def _wordless(self, references: Sequence[Sequence[str]]) -> str | None:
        if (what := super()._wordless(references)) is not None:
            return what
        bleu = self._metric
        assert isinstance(bleu, sacrebleu.BLEU)
        order = bleu.max_ngram_order
        lengths = (len(bleu._preprocess_segment(text).split()) for texts in references for text in texts)
        if bleu.smooth_method == "add-k" or any(length >= order for length in lengths):
            return None
        why = f"no reference has {order} words by the tokenizer {bleu.tokenizer.signature()}"
        return f"{why}, so that BLEU is 0 whatever the output; chrf and exact_match tell such outputs apart"

    def segment_scores(self, statistics: Statistics) -> Statistics:
        """BLEU of each segment, up to the longest n-gram that it has: sacrebleu's effective order."""
        bleu = self._metric
        assert isinstance(bleu, sacrebleu.BLEU)
        orders = slice(2, 2 + bleu.max_ngram_order), slice(2 + bleu.max_ngram_order, None)
        scores = [
            bleu.compute_bleu(
                row[orders[0]], row[orders[1]], row[0], row[1], smooth_method=bleu.smooth_method,
                smooth_value=bleu.smooth_value, effective_order=True, max_ngram_order=bleu.max_ngram_order,
            ).score
            for row in statistics.astype(int).tolist()
        ]  # fmt: skip
        return np.array(scores)


class Chrf(Sacrebleu):
    """chrF (Popović 2015); chrF++ (Popović 2017) with `word_order=2`.

    Statistics: for each order, n-grams of the hypothesis, of the best reference, and matches.

    Args:
        char_order: the longest n-gram of characters.
        word_order: the longest n-gram of words; 0 for none.
        beta: the weight of recall relative to precision.
        lowercase: compare without regard to case.
        whitespace: count white space as characters.
        eps_smoothing: the smoothing of chrF++.py and Moses instead of the effective order.
    """

    name = "chrf"
    counts_blanks = False

    def __init__(
        self,
        *,
        char_order: Annotated[int, Field(gt=0, le=100)] = 6,
        word_order: Annotated[int, Field(ge=0, le=100)] = 0,
        beta: Annotated[int, Field(gt=0, le=100)] = 2,
        lowercase: bool = False,
        whitespace: bool = False,
        eps_smoothing: bool = False,
    ) -> None:
        metric = sacrebleu.CHRF(
            char_order=char_order,
            word_order=word_order,
            beta=beta,
            lowercase=lowercase,
            whitespace=whitespace,
            eps_smoothing=eps_smoothing,
        )
        super().__init__(metric, f"chrF{beta}" + "+" * word_order)

    def utilities(self, candidates: Sequence[str], references: Sequence[str], source: str) -> Statistics:
        """As in `Metric`, but the n-grams of each text are counted once instead of once per pair."""
        metric = self._metric
        assert isinstance(metric, sacrebleu.CHRF)
        prepared = ([metric._preprocess_segment(text) for text in texts] for texts in (candidates, references))
        own, wanted = (metric._extract_reference_info(texts)["ref_ngrams"] for texts in prepared)
        pairs = (map(metric._get_match_statistics, *pair) for pair in product(own, wanted))
        scores = [metric._compute_f_score([*chain.from_iterable(orders)]) for orders in pairs]
        return np.array(scores).reshape(len(own), -1)


class Ter(Sacrebleu):
    """Translation edit rate (Snover et al. 2006), as Tercom: edits over the mean length of the references, times 100.

    Statistics: edits to the nearest reference, mean reference length.

    Args:
        normalized: Tercom's normalisation (separate punctuation, XML entities).
        no_punct: remove punctuation.
        asian_support: with `normalized`, each CJK character is a token; with `no_punct`, CJK punctuation is removed,
            too. By default both in Chinese; in other languages without spaces every character is a token.
        case_sensitive: distinguish upper and lower case.
        language: the language of the references.
    """

    name = "ter"
    higher_is_better = False

    def __init__(
        self,
        *,
        normalized: bool | None = None,
        no_punct: bool = False,
        asian_support: bool | None = None,
        case_sensitive: bool = False,
        language: LanguageCode | None = None,
    ) -> None:
        by_language = asian_support is None and has_no_spaces(language)
        in_han = by_language and language is not None and is_written_in_han(language)
        metric = sacrebleu.TER(
            normalized=in_han if normalized is None else normalized, no_punct=no_punct,
            asian_support=in_han or bool(asian_support), case_sensitive=case_sensitive,
        )  # fmt: skip
        super().__init__(metric, "TER", needs_spaces=not (by_language or asian_support))
        self._spelt = by_language and not in_han

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        if self._spelt:
            hypotheses, references = list(map(spelt, hypotheses)), [list(map(spelt, texts)) for texts in references]
        return super().statistics(hypotheses, references)

    def signature(self) -> Signature:
        given = super().signature().fields
        return Signature(tuple((key, "char" if self._spelt and key == "tok" else value) for key, value in given))
