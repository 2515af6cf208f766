"""Describe in our own words how calls have ended. Records keep OpenWhisk's words, which its clients read."""

import json
from typing import Any

from aliquot.cli.gateway import annotations_of

# By the code of a record, and by OpenWhisk's word for it.
_WORDS = ("ok", "error", "failed", "platform failed")
_OPENWHISK = ("success", "application error", "action developer error", "whisk internal error")
_PLATFORM_FAILED = 3


def describe_status(record: dict[str, Any]) -> str:
    """Return how a call has ended in a few words: ok, error, or what happened to it."""
    code = _code(record)
    if code is None:
        return ""
    return str(annotations_of(record).get("failure") or _WORDS[code])


def describe_failure(record: dict[str, Any]) -> str:
    """Describe the failure of a call: what happened to it, or the error that it has returned."""
    failure = str(annotations_of(record).get("failure", ""))
    result = record.get("response", {}).get("result")
    error = result.get("error", result) if isinstance(result, dict) else result
    text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    if failure:  # the text may say more: interrupted, and why
        return text if text.startswith(failure) else failure
    return f"the platform failed: {text}" if _code(record) == _PLATFORM_FAILED else text


def _code(record: dict[str, Any]) -> int | None:
    if "statusCode" in record:
        return int(record["statusCode"])
    status = record.get("response", {}).get("status")
    return _OPENWHISK.index(status) if status in _OPENWHISK else None
