"""What the pages show was run: every example with a prompt gives what stands under it."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if ">>> " in path.read_text(encoding="utf-8"))


def test_some_pages_have_examples():
    """A test over no page proves nothing."""
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_examples_of_a_page(page):
    """In one session, as a reader would type them."""
    # A page of Markdown ends an example with a fence, so the results end with an empty line before it.
    outcome = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0, f"{outcome.failed} examples of {page.name} give something else; see the output"
