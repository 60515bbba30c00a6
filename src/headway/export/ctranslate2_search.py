"""Search by CTranslate2: hypotheses of its beam search, each with the log probability of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.search.hypotheses import Hypothesis, length_penalty
from headway.search.limits import Limits
from headway.tensors.batch import BOS, PAD, SPECIALS

VOCABULARY_MAP = "vmap.txt"  # as CTranslate2 names it
Tokens = list[str]


class CTranslate2Search:
    """A model in CTranslate2's format, ready to decode.

    Its beam search is headway's but for the end. It goes on until the best hypothesis of some step was a finished one,
    and keeps the best of all that are finished. headway keeps the first.

    Args:
        folder: the model.
        source: the tokens of the source vocabulary, in the order of their ids.
        target: those of the target vocabulary.
    """

    def __init__(self, folder: Path, source: Sequence[str], target: Sequence[str]) -> None:
        from ctranslate2 import Translator

        self._translator = Translator(str(folder), intra_threads=torch.get_num_threads())
        self._mapped = (folder / VOCABULARY_MAP).is_file()
        self._source, self._target = list(source), list(target)
        self._ids = {token: id for id, token in enumerate(target)}

    def search(
        self, sources: Sequence[Sequence[int]], limits: Limits, *, beam: int, alpha: float, count: int
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first.

        Args:
            sources: ids without the end mark.
            limits: shortest and longest output, forced prefixes, repetitions.
            beam: hypotheses kept.
            alpha: the exponent of the length penalty.
            count: how many are returned for each source.
        """
        outputs: list[list[Hypothesis]] = [[] for _ in sources]
        for rows, part in _alike(limits, len(sources)):
            tokens = [[self._source[id] for id in sources[row]] for row in rows]
            for row, hypotheses in zip(rows, self._some(tokens, part, beam, alpha, count), strict=True):
                outputs[row] = hypotheses
        return outputs

    def _some(
        self, sources: list[Tokens], limits: Limits, beam: int, alpha: float, count: int
    ) -> list[list[Hypothesis]]:
        """`search` for sources whose outputs have one longest length, and all a prefix or none."""
        prefixes = [[self._target[id] for id in prefix] for prefix in limits.prefix] or None
        found = self._translate(sources, limits, beam, prefixes)
        marks = [SPECIALS[PAD], SPECIALS[BOS]]
        wrong = [
            row for row, outputs in enumerate(found) if any(mark in output for output in outputs for mark in marks)
        ]
        if wrong:  # no text; a trained model hardly ever says them, and forbidding them changes every probability
            again = [sources[row] for row in wrong], replace(limits, longest=[limits.longest[row] for row in wrong])
            kept = [prefixes[row] for row in wrong] if prefixes else None
            instead = self._translate(*again, beam, kept, suppress_sequences=[[mark] for mark in marks])
            for row, outputs in zip(wrong, instead, strict=True):
                found[row] = outputs
        pairs = [(source, output) for source, outputs in zip(sources, found, strict=True) for output in outputs]
        scored = iter(self.score([source for source, _ in pairs], [output for _, output in pairs], alpha))
        ranked = [sorted((next(scored) for _ in outputs), key=lambda each: -each.score) for outputs in found]
        return [hypotheses[:count] for hypotheses in ranked]

    def _translate(
        self, sources: list[Tokens], limits: Limits, beam: int, prefixes: list[Tokens] | None, **options: Any
    ) -> list[list[Tokens]]:
        """The hypotheses of each source; one that reaches the longest length is cut there, whatever comes next."""
        longest = limits.longest[0]
        if not longest:
            return [[[]] for _ in sources]
        results = self._translator.translate_batch(
            sources, prefixes, beam_size=beam, num_hypotheses=beam, length_penalty=0, max_input_length=0,
            max_decoding_length=longest, min_decoding_length=min(limits.shortest, longest),
            no_repeat_ngram_size=limits.no_repeat, use_vmap=self._mapped, **options,
        )  # fmt: skip
        return [list(map(list, result.hypotheses)) for result in results]

    def score(self, sources: list[Tokens], outputs: list[Tokens], alpha: float = 0.0) -> list[Hypothesis]:
        """Outputs with the log probability of each token and of the end mark."""
        scored = self._translator.score_batch(sources, outputs, max_input_length=0) if sources else []
        hypotheses = []
        for output, result in zip(outputs, scored, strict=True):
            logs, ids = tuple(result.log_probs), tuple(self._ids[token] for token in output)
            assert len(logs) == len(ids) + 1
            hypotheses.append(Hypothesis(ids, logs, sum(logs) / length_penalty(len(logs), alpha)))
        return hypotheses


def _alike(limits: Limits, count: int) -> list[tuple[list[int], Limits]]:
    """Rows that CTranslate2 decodes in one call, with their limits.

    It knows one longest length a call. Beside a row with a prefix, it does not let a row without one end at once.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    for row in range(count):
        groups.setdefault((limits.longest[row], bool(limits.prefix and limits.prefix[row])), []).append(row)
    return [
        (
            rows,
            replace(
                limits,
                longest=[longest] * len(rows),
                prefix=[limits.prefix[row] for row in rows] if has_prefix else (),
            ),
        )
        for (longest, has_prefix), rows in groups.items()
    ]
