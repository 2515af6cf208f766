"""Drawings of the graph of a definition: as text for a terminal, and as SVG with the marks of an execution."""

from aliquot.workflow.drawing.svg import draw_svg
from aliquot.workflow.drawing.text import draw_text

__all__ = ["draw_svg", "draw_text"]
