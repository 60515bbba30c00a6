"""The account of a recipe's corpora, for `headway data check`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from headway.corpora.findings import Finding
from headway.corpora.overlap import Overlap, overlap
from headway.corpora.unseen_characters import UnseenCharacters, unseen_characters
from headway.errors import UserError
from headway.formats.corpus_format import Broken, Pair, PairSource


class CorpusAccount(Protocol):
    """The report of a corpus, whatever its examples are."""

    @property
    def name(self) -> str:
        """The recipe key of the corpus."""

    def to_json(self) -> dict[str, Any]:
        """The report as values that JSON can hold."""

    def text(self) -> str:
        """The report in a few lines, to be read."""


@dataclass(frozen=True)
class DataCheck:
    """The reports of train and, where there is one, dev, what they share, and everything that cannot be read.

    Attributes:
        reports: of the corpora, without the rows that cannot be read.
        broken: by corpus, what is wrong with each of these rows.
        allowed: the setting that leaves them out, where training would end at them; None where it leaves them out.
        overlap: what dev shares with train.
        unseen: characters of dev that no text of training has.
        findings: pairs that people may not have meant.
        refused: what training would refuse, once rows that cannot be read are left out.
    """

    reports: Sequence[CorpusAccount]
    broken: Mapping[str, Sequence[str]]
    allowed: str | None
    overlap: Overlap | None = None
    unseen: UnseenCharacters | None = None
    findings: Sequence[Finding] = ()
    refused: UserError | None = None

    def to_json(self) -> dict[str, Any]:
        """The check as values that JSON can hold."""
        return {
            "train": None,
            "dev": None,
            **{report.name.removeprefix("data."): report.to_json() for report in self.reports},
            "overlap": self.overlap and asdict(self.overlap),
            "unseen_characters": self.unseen and asdict(self.unseen),
            "findings": [asdict(finding) for finding in self.findings],
            "broken": {name.removeprefix("data."): list(rows) for name, rows in self.broken.items()},
        }

    def text(self) -> str:
        """The check in a few lines, to be read, and a line for each row that cannot be read."""
        lines = [report.text() for report in self.reports]
        if self.overlap is not None:
            lines.append(f"warning: {self.overlap.warning()}" if self.overlap.is_large else str(self.overlap))
        lines += self.unseen.text() if self.unseen is not None else []
        lines += [finding.text() for finding in self.findings]
        for name, rows in self.broken.items():
            if rows:
                lines.append(f"{name}: {len(rows):,} rows cannot be read")
                lines += [f"  {row}" for row in rows]
        return "\n".join(lines)

    def refuse(self) -> None:
        """Raise UserError where training would end at a row that cannot be read, or could use nothing of a corpus."""
        count = sum(map(len, self.broken.values()))
        if count and self.allowed is not None:
            where = ", ".join(name for name, rows in self.broken.items() if rows)
            what = f"training would end here: {count:,} rows cannot be read"
            raise UserError(what, where=where, allowed=self.allowed)
        if self.refused is not None:
            raise self.refused


def allowed_by(broken: Broken, key: str = "data.broken") -> str | None:
    """The setting that lets training leave out what cannot be read, unless it does so already."""
    return f"{key}: skip leaves them out" if broken == "error" else None


def refusal(check: Callable[[], Any]) -> UserError | None:
    """The error of a check that training makes, if it has one."""
    try:
        check()
    except UserError as error:
        return error
    return None


def every_error(source: PairSource) -> list[str]:
    """The error of each row that cannot be read of a corpus that is opened to leave them out."""
    source.row_errors.shown = None
    for _ in source:
        pass
    return source.row_errors.all()


def shared_by(
    train: Iterable[Pair], dev: Iterable[Pair] | None, *, source_is_text: bool = True
) -> tuple[Overlap | None, UnseenCharacters | None]:
    """The overlap of dev with train, and the characters that dev alone has; nothing without dev."""
    if dev is None:
        return None, None
    return overlap(train, dev), unseen_characters(train, dev, sources=source_is_text)
