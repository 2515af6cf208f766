"""Paths of the repository and of the tests' shared files."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
