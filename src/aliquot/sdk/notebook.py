"""The code of a function that is defined in a cell of a notebook: its source, and all that it uses.

A notebook has no file to send. So a file is written of the function's own cell, and of the imports, functions, classes
and constants that it uses from other cells. The cells themselves do not run on the platform.
"""

import ast
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from aliquot.sdk.errors import UsageError

_ADVICE = "make it in the function, pass it as an argument, or put the app into a .py file and import it"
_MAX_CONSTANT_CHARACTERS = 10_000
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def write_module(app: str, functions: tuple[Any, ...], module: dict[str, Any]) -> str:
    """Return the text of a file with the functions or classes and all that they use.

    Raises `UsageError` if that is not possible.
    """
    return _ModuleWriter(app, module).write(functions)


class _ModuleWriter:
    def __init__(self, app: str, module: dict[str, Any]) -> None:
        self._app = app
        self._module = module
        self._written: dict[str, str] = {}  # lines by the name that they define, in the order of their use

    def write(self, functions: tuple[Any, ...]) -> str:
        for function in functions:
            self._add_source(function.__name__, function)
        imports = [text for text in self._written.values() if text.startswith(("import ", "from "))]
        rest = [text for text in self._written.values() if text not in imports]
        return "\n".join([*sorted(set(imports)), "", *rest])

    def _add(self, name: str) -> None:
        """Write what a global name stands for, and what that uses, unless it is written already."""
        if name in self._written or name not in self._module:
            return  # a builtin, or a name that is defined when the function runs
        value = self._module[name]
        if isinstance(value, ModuleType):
            self._written[name] = _import(value.__name__, name)
        elif type(value).__module__ == "aliquot.sdk.app":
            self._written["aliquot"] = "import aliquot"
            self._written[name] = f"{name} = aliquot.App({value.name!r})"
        elif self._is_own(wrapped := getattr(value, "wrapped", value)):
            self._add_source(name, wrapped)
        elif hasattr(value, "__module__") and hasattr(value, "__name__"):  # imported from a module
            self._written[name] = f"from {value.__module__} import {value.__name__} as {name}"
        else:
            self._written[name] = self._constant(name, value)

    def _is_own(self, value: Any) -> bool:  # noqa: ANN401 - any object of the notebook
        """Return whether a cell defines it."""
        return isinstance(value, FunctionType | type) and value.__module__ == self._module.get("__name__")

    def _add_source(self, name: str, value: Any) -> None:  # noqa: ANN401 - a function or a class
        self._written[name] = ""  # functions may use each other
        node, text = self._source(value)
        for used in _names_in(node):
            self._add(used)
        del self._written[name]  # behind what it uses
        self._written[name] = text

    def _source(self, value: Any) -> tuple[ast.AST, str]:  # noqa: ANN401 - a function or a class
        codes = [value.__code__] if isinstance(value, FunctionType) else list(_codes_of(value))
        for code in codes:
            text = "".join(linecache.getlines(code.co_filename, self._module))
            for node in ast.parse(text).body if text else ():
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == value.__name__:
                    lines = text.splitlines(keepends=True)
                    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                    return node, "".join(lines[first - 1 : node.end_lineno]).rstrip() + "\n"
        raise UsageError(
            f"app {self._app!r}: the source of {value.__name__} cannot be read, because it was typed at the "
            "interactive prompt; use a notebook, or put the app into a .py file and import it"
        )

    def _constant(self, name: str, value: object) -> str:
        text = repr(value) if _is_plain(value) else ""
        if not text or len(text) > _MAX_CONSTANT_CHARACTERS:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise UsageError(
                f"app {self._app!r}: the notebook's function uses {name}, a value of {kind}, which cannot be sent; "
                f"{_ADVICE}"
            )
        return f"{name} = {text}"


def _import(module: str, name: str) -> str:
    if module == name:
        return f"import {module}"
    return f"import {module} as {name}" if "." not in name else f"import {module}"


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition reads, each once. Those of its own variables do no harm."""
    seen: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            seen[part.id] = None
    yield from seen


def _codes_of(value: type) -> Iterator[CodeType]:
    for one in vars(value).values():
        if isinstance(one, FunctionType):
            yield one.__code__


def _is_plain(value: object) -> bool:
    """Return whether `repr` writes a value as Python reads it."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    return type(value) in _PLAIN and repr(value) not in {"nan", "inf", "-inf"}
