"""Logging of the server and of its processes: lines of key=value or of JSON on stderr."""

import logging
import os
import sys
from typing import Any

import structlog

from aliquot.core.errors import InputError

LOGFMT, JSON = "logfmt", "json"
FORMATS = (LOGFMT, JSON)
_VARIABLE = "ALIQUOT_LOG_FORMAT"  # passes the choice on to other processes of the server
_KEY_ORDER = ["timestamp", "level", "event"]


def choose_log_format(name: str) -> None:
    """Choose the format for this process and for those that it starts. Raises `InputError`."""
    if name not in FORMATS:
        raise InputError(f"--log-format: '{name}' is no format; it takes {' or '.join(FORMATS)}")
    os.environ[_VARIABLE] = name


def set_up_logs() -> None:
    """Configure structlog and the standard library's logging."""
    as_json = os.environ.get(_VARIABLE) == JSON
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _in_order if as_json else _unchanged,
            structlog.processors.JSONRenderer(default=str)
            if as_json
            else structlog.processors.LogfmtRenderer(key_order=_KEY_ORDER),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="timestamp=%(asctime)s level=%(levelname)s %(message)s"
    )
    if as_json:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_JsonFormatter())


class _JsonFormatter(logging.Formatter):
    """Formats records of the standard library as the others are."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "level": record.levelname.lower(), "event": record.getMessage(), "logger": record.name
        }  # fmt: skip
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)(None, "", line)
        return str(structlog.processors.JSONRenderer(default=str)(None, "", _in_order(None, "", stamped)))


def _in_order(_logger: object, _name: str, line: Any) -> Any:  # noqa: ANN401 - structlog's own type
    """Put the keys that every line has first."""
    return {**{key: line[key] for key in _KEY_ORDER if key in line}, **line}


def _unchanged(_logger: object, _name: str, line: Any) -> Any:  # noqa: ANN401
    return line
