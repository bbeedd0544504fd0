"""Runs the `shoal` command as `python -m shoal.cli`."""

from shoal.cli.group import main

if __name__ == "__main__":
    main(prog_name="shoal")
