"""Reasons for which an environment is not there.

    RequirementsError           the requirements cannot be installed; the text quotes the installer
      BuildLimitError           the build took too much time, memory or disk space
      BuildsWaitingError        the tenant has too many builds that wait
      EnvironmentsFullError     the environments take more space than they may

The texts are answers to callers. They say what to do.
"""


class RequirementsError(Exception):
    """The requirements cannot be installed. The text quotes the installer."""


class BuildLimitError(RequirementsError):
    """A build exceeded one of its limits and was ended."""


class BuildsWaitingError(RequirementsError):
    """A tenant has as many waiting builds as it may."""


class EnvironmentsFullError(RequirementsError):
    """The environments of a tenant, or of all tenants, take as much space as they may."""
