"""Documents of our own words, and of others where they can be had: copies are copies, and a sign moves nothing."""

import os
from pathlib import Path

import pytest

from tools.campaigns.documents import SMALL, DocumentCase, check, documents


@pytest.mark.parametrize("path", sorted(SMALL.iterdir()), ids=lambda path: path.name)
@pytest.mark.parametrize("signs", [False, True])
def test_nothing_moves(path: Path, signs: bool) -> None:
    check(DocumentCase(str(path), signs))


@pytest.mark.slow
@pytest.mark.skipif("HEADWAY_DOCUMENTS" not in os.environ, reason="python -m tools.real_documents FOLDER fetches them")
def test_nothing_moves_in_documents_of_others() -> None:
    for path in documents():
        for signs in (False, True):
            check(DocumentCase(str(path), signs))
