"""The `shoal` command."""

from shoal.cli.group import main

__all__ = ["main"]
