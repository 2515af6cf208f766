"""Logging of the server and its storage agent: lines of key=value on stderr."""

import logging
import sys

import structlog


def set_up_logs() -> None:
    """Configure structlog and the standard library's logging."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="timestamp=%(asctime)s level=%(levelname)s %(message)s"
    )
