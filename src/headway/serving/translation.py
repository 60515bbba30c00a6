"""Translation between the languages of the served runs: detection, sentences, directions, and a pivot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from headway.core.errors import UserError, option
from headway.core.languages import base_language, language_name
from headway.core.processes import check_waited_for
from headway.markup.inline import Aligned
from headway.predictors.predict_options import checked_options
from headway.predictors.sentence_translator import aligned, check_alone
from headway.processing.text.sentences import between, sentences, warn_without_rules
from headway.serving.guard import aside
from headway.serving.models import ServedModel, TooLargeError
from headway.serving.options import ServeOptions

AUTO = "auto"


class Translator:
    """Translates with all served runs that have a direction.

    Args:
        models: the served models; those without a direction are ignored.
        options: the pivot, and the limits.

    Attributes:
        directions: the models by source and target.
    """

    def __init__(self, models: Sequence[ServedModel], options: ServeOptions) -> None:
        self.directions = {model.direction: model for model in models if model.direction is not None}
        self.options = options
        if options.pivot is not None and not any(options.pivot in pair for pair in self.directions):
            raise UserError("no run translates from or into the pivot", where=option("pivot"), received=options.pivot)
        if self.directions:
            self.detect("")  # load its data, and the rules for sentences, before the first request
            sentences("")

    @cached_property
    def languages(self) -> list[dict[str, Any]]:
        """The languages in LibreTranslate's form, each with its possible targets."""
        codes = sorted({code for pair in self.directions for code in pair})
        targets = {code: [other for other in codes if other != code and self._route(code, other)] for code in codes}
        return [{"code": code, "name": language_name(code), "targets": targets[code]} for code in codes]

    def code(self, given: str) -> str:
        """The code of a served language, or `auto`, in its own letters; any other code as it is."""
        codes = [AUTO, *(each["code"] for each in self.languages)]
        return next((code for code in codes if code.lower() == given.lower()), given)

    def reads_context(self, source: str, target: str) -> bool:
        """Whether a model on the route reads the sentences before each."""
        return any(model.predictor.recipe.data.context.most for model in self.route(source, target))

    def _route(self, source: str, target: str) -> list[ServedModel]:
        direct, pivot = self.directions.get((source, target)), self.options.pivot
        if direct is not None or pivot is None:
            return [direct] if direct is not None else []
        ways = [self.directions.get(pair) for pair in ((source, pivot), (pivot, target))]
        return [model for model in ways if model is not None] if all(ways) else []

    def route(self, source: str, target: str) -> list[ServedModel]:
        """The models that translate in sequence; empty from a language to itself. Raises UserError without a route."""
        codes = [language["code"] for language in self.languages]
        for code in (source, target):
            if code not in codes:
                raise UserError(f"{code} is not supported")
        route = self._route(source, target)
        if not route and source != target:
            names = [f"{language_name(code)} ({code})" for code in (target, source)]
            raise UserError(f"{names[0]} is not available as a target language from {names[1]}")
        return route

    @cached_property
    def _identifier(self) -> LanguageIdentifier:
        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = {base_language(each["code"]) for each in self.languages if each["targets"]} & set(identifier.labels)
        if known:
            identifier.set_languages(sorted(known))
        return identifier

    def detect(self, text: str) -> list[dict[str, Any]]:
        """The possible languages of a text among those that can be translated, the most likely first.

        Each has a confidence from 0 to 100.
        """
        check_waited_for()
        codes = {base_language(each["code"]): each["code"] for each in reversed(self.languages) if each["targets"]}
        if not codes.keys() & set(self._identifier.labels):
            raise UserError("no language that is served can be detected; name the source")
        ranked = self._identifier.rank(text)
        return [{"confidence": round(100 * share, 1), "language": codes[code]} for code, share in ranked]

    async def translate(self, texts: Sequence[str], source: str, target: str, alternatives: int = 0) -> list[list[str]]:
        """Each text's translation, followed by up to `alternatives` others; text between sentences is kept."""
        models = self.route(source, target)
        if not models:
            return [[text] for text in texts]
        warn_without_rules(source)
        cut = await aside(texts, lambda: [list(documents(text, source, target)) for text in texts])
        found = [[piece for piece, is_sentence in part if is_sentence] for some in cut for part in some]
        if (count := sum(map(len, found))) > self.options.sentences:
            raise TooLargeError(f"request ({count} sentences) exceeds text limit ({self.options.sentences})")
        ends = [""] if self.reads_context(source, target) else []
        lines = [line for some in found if some for line in [*some, *ends]]  # empty lines end a document
        answered = zip(lines, await self.sentences(lines, source, target, alternatives), strict=True)
        written = iter([answer for line, answer in answered if line])
        answers = []
        for some in map(chain.from_iterable, cut):
            parts = [next(written) if is_sentence else [piece] for piece, is_sentence in some]
            ranks = range(max([1, *map(len, parts)]))
            joined = ["".join(part[min(rank, len(part) - 1)] for part in parts) for rank in ranks]
            answers.append(list(dict.fromkeys(joined)))
        return answers

    async def sentences(self, texts: Sequence[str], source: str, target: str, alternatives: int = 0) -> list[list[str]]:
        """Translate sentences. The result has the format of `translate`."""
        answers = [[text] for text in texts]
        models = self.route(source, target)
        for number, model in enumerate(models, start=1):
            count = 1 + (alternatives if number == len(models) and not model.greedy else 0)
            beam = {"beam": max(count, model.predictor.recipe.decoding.beam), "nbest": count} if count > 1 else {}
            options = checked_options(model.predictor.Options, None, beam)
            outputs = await model.outputs([some[0] for some in answers], options)
            texts_of = ([each.text for each in output.hypotheses] for output in outputs)
            answers = [
                [best, *(text for text in dict.fromkeys(others) if text not in ("", best))]
                for best, *others in texts_of
            ]
        return answers

    async def aligned(self, texts: Sequence[str], source: str, target: str) -> list[Aligned]:
        """Translations of sentences, with aligned characters if the translation is direct."""
        models = self.route(source, target)
        for each in models:
            check_alone(each.predictor)
        aligner = models[0].aligner if len(models) == 1 else None
        try:
            if aligner is None:
                return [Aligned(each[0]) for each in await self.sentences(texts, source, target)]
            options = models[0].predictor.Options().model_copy(update={"capture": (aligner.layer,)})
            return [aligned(output, aligner) for output in await models[0].outputs(texts, options)]
        except TooLargeError:  # too many attention weights
            if len(texts) == 1:
                return [Aligned((await self.sentences(texts, source, target))[0][0])]
        half = len(texts) // 2
        return await self.aligned(texts[:half], source, target) + await self.aligned(texts[half:], source, target)


def documents(text: str, source: str, target: str) -> Iterator[list[tuple[str, bool]]]:
    """The pieces of each paragraph of a text, and the empty lines between them."""
    for number, part in enumerate(re.split(r"(\n\s*\n)", text)):
        yield [(part, False)] if number % 2 else list(pieces(part, source, target))


def pieces(text: str, source: str, target: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a text, each with True, and what is between them in the translation, with False."""
    for line in re.split(r"([\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+)", text):
        end = 0
        for sentence in sentences(line, source) if line.strip() else ():
            begin = line.index(sentence, end)
            blank = line[end:begin]
            if blank := between(blank, source, target) if end and blank in ("", " ") else blank:
                yield blank, False
            yield sentence, any(map(str.isalnum, sentence))
            end = begin + len(sentence)
        if line[end:]:
            yield line[end:], False
