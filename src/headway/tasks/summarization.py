"""Summarization: headlines of sentences, summaries of documents. Pairs of lines as in translation, other metrics."""

from collections.abc import Sequence

from headway.corpora.lead import LeadConfig
from headway.formats.pairs import Pair
from headway.languages import look_unspaced
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
    """The lead of as many words, or characters without spaces, as the references have on average."""
    texts = [text.strip() for pair in pairs for text in pair.references if text.strip()]
    unspaced = look_unspaced(texts)
    count = sum(len(text if unspaced else text.split()) for text in texts) / max(1, len(texts))
    return LeadConfig(count=max(1, round(count)), unit="characters" if unspaced else "words")
