"""Formats of translation tools: translation memories in TMX, and message catalogues in PO."""

from collections.abc import Iterator
from pathlib import Path

from headway.core.errors import UserError
from headway.core.languages import LanguageCode, nearest_variant
from headway.formats.corpus_config import CorpusConfig
from headway.formats.corpus_format import PAIRS, CorpusFormat, Pair, PairSource
from headway.formats.lines import read_lines
from headway.formats.xml_files import read_tags
from headway.markup.gettext import messages, plural_form

CODES = ("bpt", "ept", "it", "ph", "ut")  # elements of a TMX segment that contain code, not text


class Memory(PairSource):
    """The units of a TMX file, read element by element. A unit without one of the languages is unreadable."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        super().__init__(str(path), (path,), languages)

    def rows(self) -> Iterator[Pair | UserError]:
        wanted = [*map(str, self.columns)]
        texts, language, begun, in_code = dict[str, str](), "", 0, 0
        inside = False
        for tag in read_tags(self.files[0], with_text=True):
            given = tag.attributes
            if tag.name in CODES:
                in_code += 1 if given is not None else -1
            elif tag.name == "tu" and given is not None:
                texts, begun = {}, tag.line
            elif tag.name == "tuv" and given is not None:
                language = given.get("xml:lang") or given.get("lang", "")
            elif tag.name == "seg":
                inside = given is not None and language not in texts
                texts.setdefault(language, "")
            elif not tag.name and inside and not in_code:
                texts[language] += tag.text
            elif tag.name == "tu":
                filled = [code for code, text in texts.items() if text.strip()]
                found = [nearest_variant(filled, code) or nearest_variant(texts, code) for code in wanted]
                missing = [code for code, one in zip(wanted, found, strict=True) if one is None]
                where = f"{self.files[0]}:{begun}"
                if missing:
                    yield UserError("this unit lacks a language", where=where, received=missing[0], allowed=list(texts))
                else:
                    yield Pair.of(begun, [texts[code] for code in found if code is not None])


class Tmx(CorpusFormat):
    """A translation memory, without its inline tags."""

    class Config(CorpusConfig):
        """`file`: the translation memory. `source`, `target`: the language code of that side."""

        file: Path
        source: LanguageCode
        target: LanguageCode

    config: Config
    products = (PAIRS,)

    def pairs(self) -> PairSource:
        return Memory(self.config.file, (self.config.source, self.config.target))


class Catalogue(PairSource):
    """The translated messages of a PO file, without fuzzy ones. Plurals give the forms for 1 and 2."""

    def rows(self) -> Iterator[Pair | UserError]:
        header = ""
        try:
            for message in messages(list(read_lines(self.files[0]))):
                source = message.fields["msgid"].text
                header = header if source else next(iter(message.translations.values())).text
                plural = message.fields.get("msgid_plural")
                sources = [source] if plural is None else [source, plural.text]
                for number, text in enumerate(sources, start=1):
                    name = "msgstr" if plural is None else f"msgstr[{plural_form(header, number)}]"
                    target = message.translations.get(name)
                    if text and target is not None and target.text and not message.fuzzy:
                        yield Pair.of(message.fields["msgid"].begin + 1, [text, target.text])
        except UserError as error:
            where = (
                error.where if (error.where or "").startswith(str(self.files[0])) else f"{self.files[0]}:{error.where}"
            )
            raise UserError(error.what, where=where, received=error.received) from error


class Po(CorpusFormat):
    """The messages of a program with their translations."""

    class Config(CorpusConfig):
        """`file`: the catalogue of messages."""

        file: Path

    config: Config
    products = (PAIRS,)

    def pairs(self) -> PairSource:
        return Catalogue(str(self.config.file), (self.config.file,))
