"""The gateway's settings: how much may be asked for, and how long one may take to ask."""

from msgspec import Struct

from aliquot.core.units import MIB
from aliquot.live.catalogue.images import Image
from aliquot.live.invocations.rate_limits import RateLimits
from aliquot.live.invocations.sessions.records import SessionSettings


class Range(Struct, frozen=True):
    """What a limit of an action may be, and what it is when nobody says."""

    least: int
    most: int
    usual: int


class GatewaySettings(Struct, frozen=True):
    """OpenWhisk's names and texts; roomier where a model needs the room."""

    api_host: str = ""  # what functions are told to call back; empty: where they were reached
    nodejs: bool = False  # whether `node` is installed
    images: tuple[Image, ...] = ()  # that an action of the kind `blackbox` may name

    timeout_ms: Range = Range(100, 3_600_000, 60_000)
    memory_mb: Range = Range(128, 262_144, 256)
    logs_mb: Range = Range(0, 10, 10)
    concurrency: Range = Range(1, 1, 1)

    payload_bytes: int = 64 * MIB
    web_payload_bytes: int = 16 * MIB  # the same, of web actions' callers without a key
    event_bytes: int = MIB  # of a fired trigger: each of its rules may have a copy
    bodies_bytes: int = 1024 * MIB  # all large payloads that are on their way in, and large bodies that are kept
    parameters_bytes: int = MIB
    code_bytes: int = 48 * MIB

    blocking_ms: int = 60_000  # how long a blocking caller waits unless it says
    blocking_most_ms: int = 60_000  # how long it may ask to wait
    stream_keep_alive_s: float = 15  # how often a stream of events says that it is still there
    # A request's body must be whole, or must have come on by so much, whenever this time has passed.
    body_s: float = 30
    body_least_bytes: int = MIB
    answer_s: float = 60  # how long an answer is kept for a caller that takes nothing of it
    # The same for its head, in all; a path of three names of 256 characters each, escaped, fits its bound.
    head_s: float = 5
    head_bytes: int = 65_536
    head_fields: int = 200
    url_bytes: int = 16_384

    # For namespaces without a quota of their own. None means no limit.
    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None
    fires_per_minute: int | None = None
    sequence_length: int = 50
    sessions: SessionSettings = SessionSettings()
    metrics_for_operator_only: bool = False  # they name namespaces and actions

    @property
    def rate_limits(self) -> RateLimits:
        """The limits of a namespace without a quota of its own."""
        return RateLimits(self.invocations_per_minute, self.concurrent_invocations, self.fires_per_minute)

    @property
    def entity_bytes(self) -> int:
        """The largest body of a PUT: code grows by escapes in JSON, at most twofold in what people write."""
        return 2 * self.code_bytes + 2 * self.parameters_bytes + MIB

    @property
    def pairs_bytes(self) -> int:
        """The largest body of a PUT without code: parameters and annotations."""
        return 4 * self.parameters_bytes + MIB
