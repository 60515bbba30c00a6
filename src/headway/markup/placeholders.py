"""Placeholders: parts of a text that a program replaces or a reader follows, which are copied unchanged."""

import re

_FORMAT = (
    r"%(?:%|\(\w+\)[#0+-]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|(?:\d+\$)?[#0+-]*\d*(?:\.\d+)?(?:hh?|ll?|z|j|t)?[sdiufFgGxXeEcrpaAo@])"
)
PLACEHOLDER = (
    r"(?:https?|ftp)://[^\s<>\"'`{}]*[\w/]|\bwww\.[^\s<>\"'`{}]*[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|`[^`\n]+`"
    r"|\{\{[^{}]*\}\}|\$?\{(?:[^{}]|\{[^{}]*\})*\}"
    rf"|(?<![\d%]){_FORMAT}|(?<=\d){_FORMAT}(?!\w)"  # no match in 100%ige
)
PLACEHOLDERS = re.compile(PLACEHOLDER)
