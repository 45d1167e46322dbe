"""Two pictures of the results, each light and dark: `pictures.py RESULTS.json FOLDER`.

Runs in the environment with matplotlib, and needs nothing of ours.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib  # type: ignore[import-not-found]

matplotlib.use("svg")
from matplotlib import pyplot as plot
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # type: ignore[import-not-found]

WIDTH, HEIGHT = 8.6, 4.8
"""Inches; SVGs scale."""

LIGHT = {
    "ink": "#1f2328",
    "soft": "#6e7781",
    "grid": "#d8dee4",
    "paper": "#ffffff",
    "ours": "#0969da",
}
DARK = {
    "ink": "#e6edf3",
    "soft": "#8b949e",
    "grid": "#30363d",
    "paper": "#0d1117",
    "ours": "#58a6ff",
}

FEW = 300
"""A scale with less between its ends has marks at 2 and 5, too."""

FONTS = ["-apple-system", "Segoe UI", "Helvetica", "Arial", "DejaVu Sans", "sans-serif"]

Style = tuple[str, str, str]
STYLES: dict[str, Style] = {
    "SqliteSaver": ("#d1242f", "#ff7b72", "-"),
    "SqliteSaver, DeltaChannel": ("#d1242f", "#ff7b72", "--"),
    "DBOS, WAL": ("#8250df", "#d2a8ff", "-"),
    "Restate": ("#bf3989", "#ff9bce", "-"),
    "SQLiteSession": ("#1a7f37", "#7ee787", "-"),
    "eventsourcing": ("#9a6700", "#e3b341", "-"),
    "PerdureSaver": ("ours", "ours", "--"),
    "a bare INSERT": ("soft", "soft", ":"),
}
"""The lines besides ours, of those without a server of PostgreSQL: their colours on light and
on dark, and how they are drawn."""

PICTURES = {
    "step": ("Time to add one message", "s"),
    "files": ("Stored, after that many messages of 500 B", "B"),
}
SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
}
Points = list[tuple[int, float]]


def readable(value: float, unit: str) -> str:
    for scale, suffix in SCALES[unit]:
        if value >= scale:
            return f"{value / scale:g} {suffix}"
    return f"{value:g}"


def lines(results: dict[str, Any], key: str) -> dict[str, Points]:
    """What each contestant has at each length of the conversation."""
    found: dict[str, Points] = {}
    for name, work in results["works"].items():
        what, _, length = name.rpartition(" at ")
        if what != key:
            continue
        for contestant, cell in work["cells"].items():
            if cell["values"]:
                found.setdefault(contestant, []).append((int(length), median(cell["values"])))
    return {name: sorted(points) for name, points in found.items()}


def spread(places: list[float], gap: float) -> list[float]:
    """The same places, moved as little as needed for each to be a gap above the one before."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for _ in range(200):
        for low, high in pairwise(order):
            short = gap - (moved[high] - moved[low])
            if short > 1e-9:
                moved[low] -= short / 2
                moved[high] += short / 2
    return moved


def draw(
    results: dict[str, Any], key: str, colours: dict[str, str], dark: bool, path: Path
) -> None:
    title, unit = PICTURES[key]
    found = lines(results, key)
    longest = max(length for points in found.values() for length, _ in points)
    figure, axes = plot.subplots(figsize=(WIDTH, HEIGHT))
    ends = []
    for name, (light_one, dark_one, dashes) in {**STYLES, "Perdure": ("ours", "ours", "-")}.items():
        if name not in found:
            continue
        colour = colours.get(light_one, dark_one if dark else light_one)
        ours = name == "Perdure"
        axes.plot(
            *zip(*found[name], strict=True),
            dashes,
            color=colour,
            zorder=3 if ours else 2,
            linewidth=3.2 if ours else 1.7,
            marker="o",
            markersize=5 if ours else 3,
        )
        stopped = found[name][-1][0] < longest
        ends.append((f"{name} (stopped)" if stopped else name, found[name][-1], colour, ours))
    _axes(axes, found, unit, colours)
    axes.set_title(title, loc="left", color=colours["ink"], fontsize=13, fontweight="bold", pad=12)
    figure.subplots_adjust(left=0.085, right=0.69, top=0.9, bottom=0.13)
    _names(axes, ends)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plot.close(figure)


def _axes(axes: Any, found: dict[str, Points], unit: str, colours: dict[str, str]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    lengths = sorted({length for points in found.values() for length, _ in points})
    axes.set_xticks(lengths)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if high < FEW * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value, unit)))
    axes.set_xlabel("messages in the conversation", color=colours["soft"], fontsize=10)
    axes.grid(color=colours["grid"], linewidth=0.8)
    axes.tick_params(colors=colours["soft"], length=0, labelsize=10)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _names(axes: Any, ends: list[tuple[str, tuple[int, float], str, bool]]) -> None:
    """Each line's name at its right, joined to its end, no two upon each other."""
    axes.figure.canvas.draw()
    right = axes.bbox.x1
    places = [axes.transData.transform(end) for _, end, _, _ in ends]
    heights = spread([float(place[1]) for place in places], 15.0 * axes.figure.dpi / 72)
    for (name, end, colour, ours), height in zip(ends, heights, strict=True):
        axes.annotate(
            name,
            xy=end,
            xytext=(right + 16 * axes.figure.dpi / 72, height),
            textcoords="figure pixels",
            color=colour,
            fontsize=10.5,
            va="center",
            fontweight="bold" if ours else "normal",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "alpha": 0.6,
                "shrinkA": 3,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def main(source: str, folder: str) -> None:
    # Text stays text, in the fonts of whoever looks; ids are the same at each run.
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "perdure",
            "font.family": FONTS,
        }
    )
    matplotlib.set_loglevel("error")  # those fonts need not be here
    results = json.loads(Path(source).read_text("utf-8"))
    for key in PICTURES:
        if lines(results, key):
            draw(results, key, LIGHT, False, Path(folder) / f"{key}.svg")
            draw(results, key, DARK, True, Path(folder) / f"{key}-dark.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
