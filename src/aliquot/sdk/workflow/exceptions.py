"""Names of errors: the classes of `except` and `raise`, as the rules of a definition know them."""

import builtins
from typing import Any

ALL = "States.ALL"

# Errors of the platform that a class of Python stands for.
PLATFORM_ERRORS: dict[type[BaseException], tuple[str, ...]] = {
    TimeoutError: ("States.Timeout", "Function.Timeout"),
    MemoryError: ("States.DataLimitExceeded",),
}


def names_of(classes: tuple[type[BaseException], ...], module: str = "builtins") -> tuple[str, ...]:
    """Return the names of errors that a handler of these classes takes: their own, and those of their subclasses.

    Subclasses count if they are Python's own, of the module of the workflow, or of the module of the class.
    """
    if any(issubclass(Exception, kind) for kind in classes):
        return (ALL,)
    found: dict[str, None] = {}
    for kind in classes:
        known = {"builtins", module, kind.__module__}
        for one in (kind, *[one for one in _subclasses(kind) if one.__module__ in known]):
            found[one.__name__] = None
            found.update(dict.fromkeys(PLATFORM_ERRORS.get(one, ())))
    return tuple(found)


def _subclasses(kind: type[BaseException]) -> list[type[BaseException]]:
    made: dict[type[BaseException], None] = {}
    work = [kind]
    while work:
        for one in work.pop().__subclasses__():
            if one not in made:
                made[one] = None
                work.append(one)
    return list(made)


def is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def class_of(name: str, module: dict[str, Any]) -> type[Exception] | None:
    """Return the class of an error that ended an execution: one of the app's module, or of Python."""
    found = module.get(name, getattr(builtins, name, None))
    return found if isinstance(found, type) and issubclass(found, Exception) else None
