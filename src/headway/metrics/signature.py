"""Signatures: all that is needed to compute a score again, after sacreBLEU's (Post 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version


def release(package: str = "headway") -> str:
    """A package with its version, as signatures have it."""
    return f"{package}-{version(package)}"


@dataclass(frozen=True)
class Signature:
    """Settings and versions in their order. `str` gives `key:value` joined by `|`; a key without a value stands alone.

    Args:
        fields: keys with their values; None where the key alone says it.
    """

    fields: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, **fields: str | int | None) -> Signature:
        """A signature in the order of the keywords; those that are None are left out, those that are True stand alone.

        `Signature.of(nrefs=None, f1=True, case="lower")` is `f1|case:lower`.
        """
        given = ((key, value) for key, value in fields.items() if value is not None)
        return cls(tuple((key, None if value is True else str(value)) for key, value in given))

    def with_references(self, steps: str) -> Signature:
        """The signature of a score by references that these steps, separated by commas, have normalised."""
        return Signature((*self.fields, ("refs", steps.replace(", ", "+")))) if steps else self

    @classmethod
    def parse(cls, text: str) -> Signature:
        """The signature that `text` spells."""
        parts = [part.partition(":") for part in text.split("|") if part]
        return cls(tuple((key, value if colon else None) for key, colon, value in parts))

    def __str__(self) -> str:
        return "|".join(key if value is None else f"{key}:{value}" for key, value in self.fields)

    def __getitem__(self, key: str) -> str | None:
        """The value of a key. Raises KeyError where it has no such key."""
        return dict(self.fields)[key]

    def __contains__(self, key: object) -> bool:
        return any(key == name for name, _ in self.fields)
