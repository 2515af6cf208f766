"""Fixed time to live, as on many serverless platforms: stop a sandbox that was idle for a fixed time."""

from aliquot.core.clock import after
from aliquot.core.interfaces import Expiry, ExpiryAction, KeepAlive, Params
from aliquot.core.view import SandboxView


class FixedTtlParams(Params, frozen=True):
    ttl_s: float = 600


class FixedTtl(KeepAlive):
    params_type = FixedTtlParams

    def __init__(self, params: FixedTtlParams) -> None:
        super().__init__(params)
        self._ttl_s = params.ttl_s

    def sandbox_idled(self, sandbox: SandboxView, *, now: float) -> Expiry:
        return Expiry(after(now, self._ttl_s), ExpiryAction.STOP)
