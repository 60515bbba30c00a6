"""Placeholders: parts of a text that a program replaces or a reader follows, which are copied unchanged."""

import re
from collections import Counter
from collections.abc import Collection, Iterable

_SIZE = r"(?:\*(?:\d+\$)?|\d+)?(?:\.(?:\*(?:\d+\$)?|\d+)?)?"
_TYPE = r"(?:(?:hh?|ll?|q|z|j|t|L)?[sdiufFgGxXeEcrpaAo@]|<PRI[a-zA-Z]\w*>)"
_NAMED = r"%(?:\(\w+\)[#0+-]*\d*(?:\.\d+)?[a-zA-Z]|\{\w+\}|<\w+>[#0+-]*\d*(?:\.\d+)?[a-zA-Z])"  # Python, Ruby
_BOOST = r"%(?:\d+%|\|[^|%\s]+\|)"
_FORMAT = rf"(?:{_NAMED}|{_BOOST}|%(?:%|(?:\d+\$)?[#0+-]*{_SIZE}{_TYPE}|L?\d{{1,2}}|n))"
_BRACES = r"\{\{[^{}]*\}\}|\$?\{(?:[^{}]|\{[^{}]*\})*\}"
_SHELL = r"(?<![\w$])\$[A-Z_][A-Z0-9_]+(?!\w)"
CONTROL = r"\x1b\[[\d;]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f]"  # of a terminal
# Addresses, code, the marks of translation tools, and controls.
_ADDRESS = (
    r"(?:https?|ftp)://[^\s<>\"'`{}]*[\w/]|\bwww\.[^\s<>\"'`{}]*[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|`[^`\n]+`"
    rf"|\[X\d+X\]|{CONTROL}"
)
# No match in 100%ige.
PLACEHOLDER = rf"{_ADDRESS}|{_BRACES}|{_SHELL}|(?<![\d%]){_FORMAT}|(?<=\d){_FORMAT}(?!\w)"
PLACEHOLDERS = re.compile(PLACEHOLDER)

_PRINTF = rf"%(?:%|(?:\d+\$)?[ #0+'I-]*{_SIZE}(?:(?:hh?|ll?|q|z|j|t|L)?[a-zA-Z@]|<PRI[a-zA-Z]\w*>))"
# The directives of the formats by which messages of gettext are flagged (gettext manual, 15.3).
_FAMILIES = {
    "c objc php perl awk lua tcl d go sh-printf java-printf javascript elisp librep gcc-internal gfc-internal": _PRINTF,
    "python": rf"%\(\w+\)[ #0+-]*{_SIZE}[a-zA-Z]|{_PRINTF}",
    "python-brace perl-brace csharp java c++ rust": r"\{\{|\}\}|\{[^{}]*\}",
    "kde kde-kuit smalltalk ycp": r"%(?:%|\d+)",
    "qt": r"%(?:L?\d{1,2}|n)",
    "qt-plural": r"%L?(?:\d{1,2}|n)",
    "boost": rf"{_BOOST}|{_PRINTF}",
    "ruby": rf"{_NAMED}|{_PRINTF}",
    "sh": r"\$(?:\w+|\{\w+\})",
    "scheme lisp": r"~[\d,:@']*\S",
    "object-pascal": r"%(?:%|(?:\d+:)?-?[\d*]*(?:\.[\d*]+)?[a-zA-Z])",
}
FORMATS = {f"{name}-format": pattern for names, pattern in _FAMILIES.items() for name in names.split()}


def flagged(flags: Collection[str]) -> re.Pattern[str]:
    """The placeholders in a message with these flags: none of `%` if a flag denies a format."""
    own = [FORMATS[flag] for flag in flags if flag in FORMATS]
    denied = any(flag.startswith("no-") and flag.endswith("-format") for flag in flags)
    return re.compile("|".join([*own, _ADDRESS, _BRACES, _SHELL])) if own or denied else PLACEHOLDERS


def same_placeholders(source: str, target: str) -> bool:
    """Whether two texts have the same placeholders, each equally often."""
    return Counter(PLACEHOLDERS.findall(source)) == Counter(PLACEHOLDERS.findall(target))


def same_arguments(flags: Iterable[str], source: str, target: str) -> bool:
    """Whether two texts pass the same arguments to the formats in `flags`, as msgfmt checks."""
    patterns = [FORMATS[flag] for flag in flags if flag in FORMATS]
    return all(_arguments(pattern, source) == _arguments(pattern, target) for pattern in patterns)


def _arguments(pattern: str, text: str) -> tuple[list[str], list[str]]:
    """The directives that take the next argument, in order, and those with a name or a number, sorted."""
    found = [one for one in re.findall(pattern, text) if one not in ("%%", "{{", "}}")]
    following = [one for one in found if "$" not in one and re.fullmatch(_PRINTF, one)]
    return following, sorted(one for one in found if one not in following)
