"""Parse query strings. A wrong parameter is refused with a 400 that names it."""

from urllib.parse import parse_qsl

from msgspec import Struct

from aliquot.live.gateway.http.refusal import Refusal, malformed_query
from aliquot.live.gateway.settings import GatewaySettings

MAX_LIST_LENGTH = 200
DEFAULT_LIST_LENGTH = 30
_MAX_FIELDS = 100
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
MAX_SKIP = 2**31 - 1  # the largest Int of OpenWhisk's Scala
_INTEGERS = range(-MAX_SKIP - 1, MAX_SKIP + 1)
_EPOCHS = range(-(2**63), 2**63)


def fields_of(query: bytes) -> dict[str, str]:
    """Parse a query. The first value of a repeated name counts."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise Refusal(400, f"The query has more than {_MAX_FIELDS} parameters.") from error
    return dict(reversed(pairs))


def flag(fields: dict[str, str], name: str, *, default: bool = False) -> bool:
    text = fields.get(name)
    if text is None:
        return default
    if text.lower() not in _TRUE + _FALSE:
        raise malformed_query(name, f"'{text}' is not a valid Boolean value")
    return text.lower() in _TRUE


def number(text: str) -> int | None:
    """Parse a plain decimal integer. `int` alone would also accept underscores, blanks and other digits."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None  # noqa: PLR2004


class InvokeOptions(Struct, frozen=True):
    """The options of an invocation, from its query."""

    blocking: bool
    result: bool
    timeout_s: float | None  # None: the default wait
    session: str = ""


def invoke_options(query: bytes, settings: GatewaySettings) -> InvokeOptions:
    """Parse the options of an invocation. `check_timeout` checks the timeout against the action's limit."""
    fields = fields_of(query)
    timeout_s = None
    if (text := fields.get("timeout")) is not None:
        timeout_ms = number(text)
        if timeout_ms is None or timeout_ms < 1:
            raise _bad_timeout(settings.blocking_most_ms)
        timeout_s = timeout_ms / 1000
    return InvokeOptions(flag(fields, "blocking"), flag(fields, "result"), timeout_s, fields.get("session", ""))


def check_timeout(timeout_s: float, limit_ms: int, settings: GatewaySettings) -> None:
    """Raise a 400 if the caller wants to wait longer than `blocking_most_ms` and the action's own time limit."""
    max_ms = max(settings.blocking_most_ms, limit_ms)
    if timeout_s * 1000 > max_ms:
        raise _bad_timeout(max_ms)


def _bad_timeout(max_ms: int) -> Refusal:
    return malformed_query("timeout", f"Timeout must be number of milliseconds up to {max_ms}.")


class Page(Struct, frozen=True):
    """The part of a list that a request wants."""

    limit: int
    skip: int
    count: bool


def page_of(fields: dict[str, str], collection: str) -> Page:
    limit = _integer(fields, "limit", collection, DEFAULT_LIST_LENGTH)
    if not 0 <= limit <= MAX_LIST_LENGTH:
        why = f"The value '{limit}' is not in the range of 0 to {MAX_LIST_LENGTH} for {collection}."
        raise malformed_query("limit", why)
    skip = _integer(fields, "skip", collection, 0)
    if skip < 0:
        raise malformed_query("skip", f"The value '{skip}' is not greater than or equal to 0 for {collection}.")
    return Page(limit or MAX_LIST_LENGTH, skip, flag(fields, "count"))


def epoch(fields: dict[str, str], name: str) -> int | None:
    if (text := fields.get(name)) is None:
        return None
    value = number(text)
    if value is None or value not in _EPOCHS:
        raise malformed_query(name, f"Parameter is not a valid value for epoch seconds: {text}")
    return value


def _integer(fields: dict[str, str], name: str, collection: str, default: int) -> int:
    if (text := fields.get(name)) is None:
        return default
    value = number(text)
    if value is None or value not in _INTEGERS:
        raise malformed_query(name, f"The value '{text}' is not an integer for {collection}.")
    return value
