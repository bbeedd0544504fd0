"""What all tests share: one launcher for the whole run, and the guard against things left behind.

Stacks of a hung test come from pytest's own faulthandler, after `faulthandler_timeout`.
"""

from __future__ import annotations

import hypothesis
import pytest

import shoal

pytest_plugins = ["leak_guard"]

# Its assertions show values, as those of test files do.
pytest.register_assert_rewrite("shoal.testing.contract")

# How long an example takes depends on processes, and so on the machine.
hypothesis.settings.register_profile("shoal", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shoal")


@pytest.fixture(scope="session", autouse=True)
def launcher() -> None:
    """Keeps one launcher process for the whole run, so that not each test waits for its imports."""
    shoal.preload()
