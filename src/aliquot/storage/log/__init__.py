"""The access log: every open of a file, bounded on disk, and read back as sessions."""

from aliquot.storage.log.access_log import AccessLog, LogLimits
from aliquot.storage.log.sessions import LoggedSession

__all__ = ["AccessLog", "LogLimits", "LoggedSession"]
