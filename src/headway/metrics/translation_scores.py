"""BLEU, chrF and TER: sacrebleu's statistics, scores and signatures behind headway's Metric contract."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import sacrebleu
from pydantic import Field
from sacrebleu.metrics.base import Metric as SacrebleuMetric

from headway.errors import UserError, nearest
from headway.log import warn
from headway.metrics.metric import Metric, Statistics, check_segments, present
from headway.metrics.signature import Signature

MANY_TOKENISED = 100  # outputs that end as tokenised text does, from which on it is warned of them, as sacrebleu does


class Sacrebleu(Metric):
    """A metric of sacrebleu.

    `_extract_corpus_statistics` and `_compute_score_from_stats` are the only seam that sacrebleu has between the
    statistics of segments and the score of a corpus; its own significance tests stand on them too.

    Attributes:
        counts_blanks: whether sacrebleu takes a blank text beside other references for one of them.
    """

    counts_blanks = True

    def __init__(self, metric: SacrebleuMetric, label: str) -> None:
        self._metric = metric
        self._label = label
        self._told_of_blanks = False
        # sacrebleu learns this from the references; its signature cannot do without, and leaves out what is None.
        metric.num_refs = None  # type: ignore[assignment]

    @property
    def label(self) -> str:
        return self._label

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        check_segments(hypotheses, references)
        self._warn_of_blanks(references)
        return np.asarray(self._metric._extract_corpus_statistics(hypotheses, references), dtype=np.float64)

    def _warn_of_blanks(self, references: Sequence[Sequence[str]]) -> None:
        """Say once that blank texts count beside other references, which other metrics pass over."""
        if self._told_of_blanks or not self.counts_blanks:
            return
        if blank := int((~present(references)).sum()):
            self._told_of_blanks = True
            share = f"{blank:,} of {len(references) * len(references[0]):,} references"
            warn(
                f"{self.label}: {share} are blank beside others of their segment; they count as texts of no length, as"
                " in sacrebleu, so that short outputs score too well"
            )

    def aggregate(self, totals: Statistics) -> float:
        return float(self._metric._compute_score_from_stats(totals.tolist()).score)

    def signature(self) -> Signature:
        return Signature.parse(str(self._metric.get_signature()))


class Bleu(Sacrebleu):
    """BLEU (Papineni et al. 2002), with the shortest of the closest reference lengths, as sacrebleu and mteval-v13a.

    Statistics: lengths of hypothesis and reference, then matches and then totals of each n-gram order.

    Args:
        tokenize: a tokenizer of sacrebleu; `none` for text that is tokenised already.
        lowercase: compare without regard to case.
        smooth_method: what stands for a precision of zero; `exp` is mteval-v13a's (Chen and Cherry 2014, method 3).
        smooth_value: the value of `floor` and `add-k`; None for sacrebleu's.
        max_ngram_order: the longest n-gram.
        force: do not warn of hypotheses that look tokenised; `tokenize="none"` says that they are meant to be.

    Raises:
        UserError: an unknown tokenizer, or one that cannot be loaded here.
    """

    name = "bleu"

    def __init__(
        self,
        *,
        tokenize: str = "13a",
        lowercase: bool = False,
        smooth_method: Literal["exp", "floor", "add-k", "none"] = "exp",
        smooth_value: Annotated[float, Field(gt=0, le=1e6)] | None = None,
        max_ngram_order: Annotated[int, Field(gt=0, le=100)] = 4,
        force: bool = False,
    ) -> None:
        known = list(sacrebleu.BLEU.TOKENIZERS)
        if tokenize not in known:
            hint = nearest(tokenize, known)
            raise UserError(f"unknown tokenizer{hint}", where="bleu.tokenize", received=tokenize, allowed=known)
        try:
            metric = sacrebleu.BLEU(
                tokenize=tokenize,
                lowercase=lowercase,
                smooth_method=smooth_method,
                smooth_value=smooth_value,
                max_ngram_order=max_ngram_order,
                force=True,  # the warning is headway's own
            )
        except (ImportError, RuntimeError, OSError) as error:  # a library that is missing, or a model to be downloaded
            reason = " ".join(str(error).split())
            raise UserError(
                f"this tokenizer cannot be loaded ({reason})", where="bleu.tokenize", received=tokenize
            ) from error
        super().__init__(metric, "BLEU")
        self._warns = not (force or tokenize == "none")

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
        """The statistics; text that looks tokenised is warned of, once, unless `force` says that it is meant."""
        tokenised = sum(hypothesis.rstrip().endswith(" .") for hypothesis in hypotheses) if self._warns else 0
        if tokenised >= MANY_TOKENISED:
            self._warns = False
            warn(
                f"BLEU: {tokenised:,} of {len(hypotheses):,} outputs end in a full stop behind a space, as tokenised"
                " text does, and BLEU tokenises them once more. Score text without such spaces, or set tokenize: none."
                " With force: true the score stays the same, and this warning goes"
            )
        return super().statistics(hypotheses, references)

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
        beta: how many times recall weighs precision.
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


class Ter(Sacrebleu):
    """Translation edit rate (Snover et al. 2006), as Tercom: edits over the mean length of the references, times 100.

    Statistics: edits to the nearest reference, mean reference length.

    Args:
        normalized: Tercom's normalisation (punctuation apart, XML entities).
        no_punct: remove punctuation.
        asian_support: with `normalized` one token a CJK character; with `no_punct` without their punctuation too.
        case_sensitive: tell upper from lower case.
    """

    name = "ter"
    higher_is_better = False

    def __init__(
        self,
        *,
        normalized: bool = False,
        no_punct: bool = False,
        asian_support: bool = False,
        case_sensitive: bool = False,
    ) -> None:
        metric = sacrebleu.TER(
            normalized=normalized, no_punct=no_punct, asian_support=asian_support, case_sensitive=case_sensitive
        )
        super().__init__(metric, "TER")
