"""Summarization: headlines of sentences, summaries of documents. Pairs of lines as in translation, other metrics."""

from dataclasses import replace

from headway.corpora.lead import LeadConfig
from headway.formats.pairs import Pair
from headway.recipe import Recipe
from headway.runs.run_folder import RunFolder
from headway.tasks.translation import PreparedPairs, Translation, prepare_pairs


class Summarization(Translation):
    """Sources and summaries, an encoder-decoder and search, beside the beginning of the source (Lead)."""

    name = "summarization"
    metrics = ({"name": "rouge-1"}, {"name": "rouge-2"}, {"name": "rouge-l"})

    def prepare(self, recipe: Recipe, folder: RunFolder) -> PreparedPairs:
        prepared = prepare_pairs(recipe, folder)
        if recipe.data.lead or not prepared.dev_pairs:
            return prepared
        return replace(prepared, lead=(as_long_as_references(prepared.dev_pairs),))


def as_long_as_references(pairs: list[Pair]) -> LeadConfig:
    """The lead of as many words as the references have on average."""
    counts = [len(text.split()) for pair in pairs for text in pair.references if text.strip()]
    return LeadConfig(count=max(1, round(sum(counts) / max(1, len(counts)))))
