"""Lets functions `import aliquot` where it is not installed: this very package, found by its directory."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PACKAGE = Path(__file__).resolve().parent.parent


class AliquotFinder(MetaPathFinder):
    """Comes first: the server and its sandboxes must speak the same version, whatever else is installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "aliquot":
            return None
        return importlib.util.spec_from_file_location(
            fullname, _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
        )


def install() -> None:
    sys.meta_path.insert(0, AliquotFinder())
