"""The beginning of a source as its own summary: the baseline that every summary is compared with."""

from collections.abc import Sequence
from pathlib import Path

from headway.corpora.data_config import LeadConfig
from headway.formats.lines import read_lines
from headway.processing.text.sentences import sentences
from headway.processing.text.truncation import first_words


def leads_of_file(path: Path, leads: Sequence[LeadConfig]) -> dict[str, list[str]]:
    """The beginnings of each line of a file, by the lead's name. Raises UserError where the file cannot be read."""
    lines = list(read_lines(path))
    return {each.name: [lead(line, each) for line in lines] for each in leads}


def lead(source: str, config: LeadConfig) -> str:
    """The first words, sentences (see `sentences`) or characters of a raw source; all of a shorter one."""
    text = source.strip()
    if config.unit == "characters":
        return text[: config.count].rstrip()
    if config.unit == "sentences":
        return " ".join(sentences(text)[: config.count])
    return first_words(text, config.count)
