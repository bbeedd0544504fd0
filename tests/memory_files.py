"""The kinds of anonymous file that memory may lie in, for tests to run over."""

from __future__ import annotations

import os

import pytest

from shoal.memory.segment import create_memfd, create_unlinked_file

FILES = pytest.mark.parametrize(
    "create_file",
    [
        pytest.param(
            create_memfd, marks=pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has none")
        ),
        create_unlinked_file,
    ],
)
