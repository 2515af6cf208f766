"""Hold nothing for forecasts. Sandboxes start for calls, or as keep-alive and `warm` want."""

from aliquot.core.provisioning.policy import Provisioning


class HoldNothing(Provisioning):
    pass
