"""Where the repository and the tests' shared files lie."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
DOCS = ROOT / "docs"
