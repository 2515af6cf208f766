"""Functions and methods that an expression may call.

Each function gets the budget and its arguments. It returns a new value and changes none of its arguments. Lists stand
for Python's lists, tuples and iterators, because the values of a workflow are JSON.
"""

from collections.abc import Callable

from aliquot.expressions.budget import MAX_SIZE, Budget, EvaluationError, Value, measure

Function = Callable[..., Value]
MAX_PAD = 1000


def _items(budget: Budget, value: Value) -> list[Value]:
    if isinstance(value, list):
        items = value
    elif isinstance(value, dict | str):
        items = list(value)
    else:
        raise EvaluationError(f"a {type(value).__name__} cannot be iterated over", "TypeError")
    budget.spend(len(items))
    return items


def _len(budget: Budget, value: Value) -> int:
    return len(value)


def _sum(budget: Budget, values: Value, start: Value = 0) -> Value:
    total = start
    for value in _items(budget, values):
        if isinstance(value, str | list | dict) or value is None:
            raise EvaluationError(f"sum adds numbers, not a {type(value).__name__}", "TypeError")
        total += value
    return total


def _pick(pick: Function) -> Function:
    def call(budget: Budget, *values: Value, default: Value = ()) -> Value:
        found = _items(budget, values[0]) if len(values) == 1 else list(values)
        budget.spend(measure(found) >> 4)
        return pick(found) if default == () else pick(found, default=default)

    return call


def _sorted(budget: Budget, values: Value, *, reverse: bool = False) -> list[Value]:
    found = _items(budget, values)
    budget.spend(len(found) * len(found).bit_length() + (measure(found) >> 4))
    return sorted(found, reverse=bool(reverse))


def _range(budget: Budget, *bounds: int) -> list[int]:
    found = range(*bounds)
    budget.spend(len(found))
    return list(found)


def _zip(budget: Budget, *values: Value) -> list[list[Value]]:
    return [list(row) for row in zip(*[_items(budget, value) for value in values], strict=False)]


def _enumerate(budget: Budget, values: Value, start: int = 0) -> list[list[Value]]:
    return [[number, value] for number, value in enumerate(_items(budget, values), start)]


def _str(budget: Budget, value: Value = "") -> str:
    budget.built(value)
    return str(value)


def _int(budget: Budget, value: Value = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > MAX_PAD:
        raise EvaluationError(f"int() reads at most {MAX_PAD} characters")
    return int(value, base) if isinstance(value, str) else int(value)


def _round(budget: Budget, value: Value, digits: int | None = None) -> Value:
    return round(value, digits) if digits is not None else round(value)


def _dict(budget: Budget, pairs: Value = (), **named: Value) -> dict[str, Value]:
    found = dict(pairs) if isinstance(pairs, dict) else dict(_items(budget, list(pairs)))
    return {**found, **named}


FUNCTIONS: dict[str, Function] = {
    "abs": lambda budget, value: abs(value),
    "all": lambda budget, values: all(_items(budget, values)),
    "any": lambda budget, values: any(_items(budget, values)),
    "bool": lambda budget, value=False: bool(value),
    "dict": _dict,
    "enumerate": _enumerate,
    "float": lambda budget, value=0.0: float(value),
    "int": _int,
    "len": _len,
    "list": lambda budget, values=(): list(_items(budget, list(values) if values == () else values)),
    "max": _pick(max),
    "min": _pick(min),
    "range": _range,
    "reversed": lambda budget, values: list(_items(budget, values))[::-1],
    "round": _round,
    "sorted": _sorted,
    "str": _str,
    "sum": _sum,
    "tuple": lambda budget, values=(): list(_items(budget, list(values) if values == () else values)),
    "zip": _zip,
}


def _plain(name: str) -> Function:
    """Return a method of text whose result is not longer than the text."""

    def call(budget: Budget, text: str, *arguments: Value) -> Value:
        budget.spend(len(text) >> 4)
        found = getattr(text, name)(*arguments)
        return list(found) if isinstance(found, tuple) else found

    return call


def _replace(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    budget.spend(len(text) >> 4)
    if len(text) + max(0, len(new) - len(old)) * text.count(old) > MAX_SIZE:
        raise EvaluationError(f"replace builds text of more than {MAX_SIZE} characters", "MemoryError")
    return text.replace(old, new, count)


def _join(budget: Budget, text: str, values: Value) -> str:
    found = _items(budget, values)
    if sum(map(len, found)) + len(text) * len(found) > MAX_SIZE:
        raise EvaluationError(f"join builds text of more than {MAX_SIZE} characters", "MemoryError")
    return text.join(found)


def _zfill(budget: Budget, text: str, width: int) -> str:
    return text.zfill(min(width, MAX_PAD))


TEXT_METHODS: dict[str, Function] = {
    **{
        name: _plain(name)
        for name in (
            *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit"),
            *("islower", "isspace", "isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
            *("rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip"),
            *("swapcase", "title", "upper"),
        )
    },
    "join": _join,
    "replace": _replace,
    "zfill": _zfill,
}


def _counted(name: str) -> Function:
    def call(budget: Budget, values: list[Value], *arguments: Value) -> Value:
        budget.spend(measure(values) >> 4)
        return getattr(values, name)(*arguments)

    return call


LIST_METHODS: dict[str, Function] = {"count": _counted("count"), "index": _counted("index")}

DICT_METHODS: dict[str, Function] = {
    "get": lambda budget, values, key, default=None: values.get(key, default),
    "items": lambda budget, values: [list(pair) for pair in values.items()],
    "keys": lambda budget, values: list(values),
    "values": lambda budget, values: list(values.values()),
}

METHODS: dict[type, dict[str, Function]] = {str: TEXT_METHODS, list: LIST_METHODS, dict: DICT_METHODS}
METHOD_NAMES = frozenset(name for table in METHODS.values() for name in table)
