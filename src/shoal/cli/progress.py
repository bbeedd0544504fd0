"""A progress bar that does not disturb what it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def progress_bar(total: int, file: TextIO) -> Iterator[Callable[[str], None]]:
    """Shows a bar while something is measured `total` times.

    It is drawn between measurements only: a thread that redraws it would take its share of the
    processor, and of the interpreter lock, from what is measured. Where `file` is no
    terminal, there is no bar.

    Yields:
        A function to be called before each measurement with a description of it.
    """
    console = Console(file=file)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        # Workers that are forked while the bar is shown would inherit what stands in for the streams.
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)
        started = 0

        def start(description: str) -> None:
            nonlocal started
            bar.update(task, completed=started, description=description)
            bar.refresh()
            started += 1

        yield start
