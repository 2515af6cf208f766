"""The access log: who opened which file and when, bounded on disk, read back as sessions."""

from aliquot.storage.log.access_log import AccessLog, LogLimits
from aliquot.storage.log.sessions import LoggedSession

__all__ = ["AccessLog", "LogLimits", "LoggedSession"]
