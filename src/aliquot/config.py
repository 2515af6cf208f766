"""Parse settings once into frozen records. Every error names the key and the values it accepts."""

import re
from collections.abc import Mapping
from math import inf
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields

from aliquot.core.errors import InputError
from aliquot.core.units import GIB, KIB, MIB

P = TypeVar("P", bound=Struct)

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 2**40, "B": 1}
MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6  # outside of this range virtual times are not exact enough
_MAX_BYTES = 2**60
QUEUEING_DEFAULT = "fair_resident"
PACKING_DEFAULT = "first_fit"


class PolicySettings(Struct, frozen=True):
    """The policies to run, and their parameters. None leaves the choice to the queueing policy."""

    queueing: str
    keepalive: str | None = None
    eviction: str | None = None
    params: dict[str, dict[str, str]] = {}  # by policy name, as the user wrote them
    seed: int = 0
    sharing: str = "hard"
    packing: str = PACKING_DEFAULT
    prefetching: str = "threshold"
    pool_slots: int | None = None  # maximum number of sandboxes per device; 0 means no limit
    node_wait_s: float = 300  # that calls wait for a node on which they fit, after the last one was lost
    admission: str = "accept_all"
    batching: str = "target"
    provisioning: str = "none"


def parse_size(text: str, key: str) -> int:
    """Parse a size such as `16GiB`, `512 MB` or a number of bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(match[2].upper()) if match else None
    size = float(match[1]) * unit if match and unit else inf
    if size > _MAX_BYTES:
        raise InputError(f"{key}: '{text}' is not a size, such as 16GiB, 512MB or a number of bytes")
    return round(size)


def parse_assignments(texts: list[str], key: str, *, may_be_empty: bool = False) -> dict[str, str]:
    """Parse `name=value` texts into a dictionary, and refuse a name that is given twice."""
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not (value or may_be_empty):
            raise InputError(f"{key}: '{text}' is not of the form name=value")
        if name in values:
            raise InputError(f"{key}: {name} is given twice")
        values[name] = value
    return values


def parse_policy_params(texts: list[str], key: str) -> dict[str, dict[str, str]]:
    """Parse `policy.parameter=value` texts into parameters by policy."""
    params: dict[str, dict[str, str]] = {}
    for name, value in parse_assignments(texts, key).items():
        policy, dot, parameter = name.partition(".")
        if not dot or not parameter:
            raise InputError(f"{key}: '{name}={value}' is not of the form policy.parameter=value")
        params.setdefault(policy, {})[parameter] = value
    return params


def parse_weights(texts: list[str], key: str) -> dict[str, float]:
    weights = {}
    for name, value in parse_assignments(texts, key).items():
        try:
            weights[name] = float(value)
        except ValueError:
            weights[name] = 0.0
        if not MIN_WEIGHT <= weights[name] <= MAX_WEIGHT:
            takes = f"it takes a number from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
            raise InputError(f"{key}: the weight of {name} is '{value}'; {takes}")
    return weights


def make_params(kind: type[P], policy: str, values: Mapping[str, Any]) -> P:
    """Make the parameters of a policy from user input, in which numbers and booleans may be texts."""
    known = {field.encode_name: field for field in fields(kind)}
    for name, value in values.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{policy}.{name}: {policy} has no such parameter; {has}")
        try:
            convert({name: value}, kind, strict=False)
        except ValidationError as error:
            raise InputError(f"{policy}.{name}: '{value}' does not fit: {error}") from error
    params = convert(dict(values), kind, strict=False)
    for name, field in known.items():
        number = getattr(params, field.name)
        if isinstance(number, int | float) and not 0 <= number < float("inf"):
            raise InputError(f"{policy}.{name}: {number} does not fit: it takes a number from 0 on")
        if name == "pool_slots" and number is not None and number < 1:
            raise InputError(f"{policy}.{name}: {number} does not fit: it takes 1 or more")
    return params
