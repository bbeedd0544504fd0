"""The command group: finds a subcommand when it is asked for, and decides the exit status."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

import shoal

_WRONG_USE = 2
_INTERRUPTED = 130


class _Entry(NamedTuple):
    module: str
    attribute: str
    summary: str


# Here rather than in the commands' modules, so that `shoal --help` imports none of them.
_COMMANDS = {
    "bench": _Entry("shoal.cli.bench", "bench", "Measure env-steps per second, side by side with others."),
}


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they run, and whose errors take one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all subcommands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a subcommand, or None if there is none of this name."""
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name].summary) for name in self.list_commands(ctx)])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command; if standalone, exits: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            sys.exit(_INTERRUPTED)
        except click.ClickException as error:
            click.echo(_one_line(error), err=True)
            sys.exit(error.exit_code)
        sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context is not None else "shoal"
    message = " ".join(error.format_message().split())
    hint = f" See '{command} --help'." if isinstance(error, click.UsageError) else ""
    return f"{command}: error: {message}{hint}"


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"shoal {shoal.__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context) -> None:
    """Step batches of RL environments in worker processes, over shared memory."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(_WRONG_USE)
