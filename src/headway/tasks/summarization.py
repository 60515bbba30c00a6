"""Summarization: headlines of sentences, summaries of documents. Pairs of lines as in translation, other metrics."""

from collections.abc import Sequence

from headway.corpora.lead import LeadConfig
from headway.formats.pairs import Pair
from headway.recipe import Recipe
from headway.tasks.translation import Translation


class Summarization(Translation):
    """Sources and summaries, an encoder-decoder and search, beside the beginning of the source (Lead)."""

    name = "summarization"
    metrics = ({"name": "rouge-1"}, {"name": "rouge-2"}, {"name": "rouge-l"})

    def leads(self, recipe: Recipe, dev: Sequence[Pair]) -> Sequence[LeadConfig]:
        """The recipe's beginnings or, where it has none, one that is as long as the references."""
        if recipe.data.lead or not dev:
            return super().leads(recipe, dev)
        return (as_long_as_references(dev),)


def as_long_as_references(pairs: Sequence[Pair]) -> LeadConfig:
    """The lead of as many words as the references have on average."""
    counts = [len(text.split()) for pair in pairs for text in pair.references if text.strip()]
    return LeadConfig(count=max(1, round(sum(counts) / max(1, len(counts)))))
