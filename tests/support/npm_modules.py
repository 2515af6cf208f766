"""The npm packages that tests use."""

import sys
from pathlib import Path

MODULES = Path(sys.prefix) / "clients" / "node_modules"  # `make .venv/clients.stamp` puts them there
