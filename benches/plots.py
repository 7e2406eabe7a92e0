"""Small multiples: a panel for each figure, in one file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Panel:
    """Points are x, y and the spread of y. With labels, x counts them; without, x is
    logarithmic from three points on."""

    title: str
    points: list[tuple[float, float, float]]
    labels: list[str] = field(default_factory=list[str])


def draw(panels: list[Panel], file: Path, title: str = "", columns: int = 3) -> None:
    """Writes an SVG or a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.fonttype"] = "none"
    plots: Any = pyplot
    lines = -(-len(panels) // columns)
    figure, places = plots.subplots(lines, columns, figsize=(4 * columns, 2.2 * lines), squeeze=False)
    for place, panel in zip(places.flat, panels, strict=False):
        x, y, spread = zip(*panel.points, strict=True)
        place.errorbar(x, y, yerr=spread, marker="o", markersize=3, linewidth=1, capsize=2)
        place.set_title(panel.title, fontsize=8)
        place.tick_params(labelsize=7)
        place.set_ylim(bottom=0)
        if panel.labels:
            place.set_xticks(range(len(panel.labels)), panel.labels, rotation=45, fontsize=6)
        elif len(x) > 2:
            place.set_xscale("log")
        else:
            place.set_xticks(x)
    for place in places.flat[len(panels) :]:
        place.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(file)
    plots.close(figure)
