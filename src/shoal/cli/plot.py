"""A picture of a bench: one panel per env id, env-steps per second over the number of envs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shoal.cli.compare import Comparison
from shoal.cli.contenders import SHOAL
from shoal.cli.ideal import IDEAL

_PANEL_INCHES = (6.0, 4.0)


class PlotError(ValueError):
    """The plot cannot be drawn, or not there."""


def check_plot(path: Path) -> None:
    """Raises `PlotError`, before anything is measured, if a plot could not be written to the path."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise PlotError("a plot needs matplotlib; pip install 'shoal[plot]'.") from error
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in formats:
        raise PlotError(f"{path} has none of the endings {', '.join(sorted(formats))}.")
    if not path.parent.is_dir():
        raise PlotError(f"the directory {path.parent} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise PlotError(f"the directory {path.parent} cannot be written to.")


def draw_plot(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the picture; its format is the path's ending.

    Bars reach from the lowest to the highest round around the median.
    """
    from matplotlib.figure import Figure

    env_ids = list(dict.fromkeys(comparison.cell.make_env.env_id for comparison in comparisons))
    figure = Figure(figsize=(_PANEL_INCHES[0] * len(env_ids), _PANEL_INCHES[1]), layout="constrained")
    panels = figure.subplots(1, len(env_ids), squeeze=False)[0]
    for axes, env_id in zip(panels, env_ids, strict=True):
        shown = [one for one in comparisons if one.cell.make_env.env_id == env_id]
        shown.sort(key=lambda one: one.cell.num_envs)
        counts = [one.cell.num_envs for one in shown]
        for name in shown[0].samples:
            rates = [one.rates(name) for one in shown]
            medians = [rate.median for rate in rates]
            axes.errorbar(
                counts,
                medians,
                yerr=(
                    [rate.median - rate.low for rate in rates],
                    [rate.high - rate.median for rate in rates],
                ),
                label=name,
                marker="o",
                capsize=3,
                linewidth=2.5 if name == SHOAL else 1.2,
                linestyle="--" if name == IDEAL else "-",
                color="0.4" if name == IDEAL else None,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set(title=env_id, xlabel="envs", ylabel="env-steps per second")
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(path, dpi=150)
