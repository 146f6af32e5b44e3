"""Matplotlib figures as SVG that stands in an HTML page: text stays text, ids are the figure's own."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito: told apart by the colour-blind; markers and dashes tell them apart on grey paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are the user's, and a dollar in one is a dollar
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """Figures made in this block look alike."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def new_figure(width_in: float = 7.2, height_in: float = 3.0) -> Figure:
    """A figure without any window system."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def as_svg(figure: Figure, name: str, title: str) -> str:
    """The ``<svg>`` element; ``name`` keeps its ids apart from those of other figures on the page."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Title": title})
    svg = re.sub(r"\A.*?(?=<svg)", "", text.getvalue(), flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    return re.sub(r'<svg ([^>]*?)width="[\d.]+pt" ?', r"<svg \1", svg, count=1).replace(
        "<svg ", f'<svg role="img" aria-label="{title}" ', 1
    )
