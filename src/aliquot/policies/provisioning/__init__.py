"""The table of provisioning policies, which decide what is held for forecast demand."""

from aliquot.core.provisioning.policy import Provisioning
from aliquot.policies.provisioning.forecast import Forecast
from aliquot.policies.provisioning.none import HoldNothing
from aliquot.policies.provisioning.reactive import Reactive

PROVISIONING: dict[str, type[Provisioning]] = {
    "forecast": Forecast,
    "none": HoldNothing,
    "reactive": Reactive,
}
