"""The gateway's settings: limits on requests, and `aliquot up --limit NAME=VALUE`, which sets them."""

from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields, replace

from aliquot.config import parse_assignments, parse_size
from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.catalogue.catalogue import MAX_ENTITIES
from aliquot.live.catalogue.images import RuntimeImage
from aliquot.live.catalogue.secrets import MAX_SECRETS
from aliquot.live.datasets.volumes import MAX_VOLUMES, MAX_VOLUMES_BYTES
from aliquot.live.invocations.rate_limits import RateLimits
from aliquot.live.invocations.sessions.records import SessionSettings
from aliquot.live.invocations.workflows.options import MAX_OPEN_EXECUTIONS
from aliquot.live.invocations.workflows.tasks import MAX_TASKS
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.objects.registry import DEFAULT_NAMESPACE_BYTES, DEFAULT_OBJECT_BYTES
from aliquot.live.store.kept_bytes import DEFAULT_KEPT_BYTES
from aliquot.live.store.write_queue import MAX_BACKLOG_BYTES


class Range(Struct, frozen=True):
    """The values that a limit of an action may have, and its default."""

    minimum: int
    maximum: int
    default: int


class GatewaySettings(Struct, frozen=True):
    """Limits with OpenWhisk's names and texts. Some defaults are larger than OpenWhisk's, because models are large."""

    api_host: str = ""  # the address that functions call back; empty: the host of the request
    nodejs: bool = False  # `node` is installed
    images: tuple[RuntimeImage, ...] = ()  # images that an action of the kind `blackbox` may name

    timeout_ms: Range = Range(100, 3_600_000, 60_000)
    memory_mb: Range = Range(128, 262_144, 256)
    logs_mb: Range = Range(0, 10, 10)
    concurrency: Range = Range(1, 1, 1)

    payload_bytes: int = 64 * MIB
    web_payload_bytes: int = 16 * MIB  # payloads of web actions' callers without a key
    event_bytes: int = MIB  # the body of a fired trigger, which is copied for each of its rules
    # Totals for all namespaces, of which each gets half of what the others leave.
    bodies_bytes: int = 1024 * MIB  # bodies that arrive, and payloads of calls that wait or run
    replies_bytes: int = 1024 * MIB  # large results
    unwritten_bytes: int = MAX_BACKLOG_BYTES  # results that wait for the disk
    calls_in_flight: int = 32_768
    connections: int | None = None  # None: three eighths of the server's descriptors
    event_streams: int = 4096
    unread_bytes: int = 1024 * MIB  # events and other responses that clients have not read yet
    parameters_bytes: int = MIB
    code_bytes: int = 48 * MIB

    blocking_ms: int = 60_000  # default wait of a blocking caller
    blocking_most_ms: int = 60_000  # maximum wait that a blocking caller may ask for
    stream_keep_alive_s: float = 15  # interval of the keep-alive comments in a stream of events
    # Whenever `body_s` has passed, a body must be complete, or must have grown by `body_least_bytes`.
    body_s: float = 30
    body_least_bytes: int = MIB
    answer_s: float = 60  # timeout for a client that does not read its response
    # Limits on a request's head. A path of three escaped names of 256 characters each fits `url_bytes`.
    head_s: float = 5
    head_bytes: int = 65_536
    head_fields: int = 200
    url_bytes: int = 16_384

    # Limits of namespaces without a quota of their own. None means no limit.
    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None
    fires_per_minute: int | None = None
    sequence_length: int = 50
    egress_connections: int = 2048  # of all sandboxes to the outside together
    entities_per_namespace: int = MAX_ENTITIES  # actions, packages, triggers and rules
    alarms_per_namespace: int = 1000
    secrets_per_namespace: int = MAX_SECRETS
    volumes_per_namespace: int = MAX_VOLUMES
    volume_bytes: int | None = MAX_VOLUMES_BYTES  # the sizes of a namespace's volumes together
    sessions_per_namespace: int = 10_000
    object_bytes: int = DEFAULT_OBJECT_BYTES  # of one object or blob
    objects_per_namespace_bytes: int = DEFAULT_NAMESPACE_BYTES
    executions_per_namespace: int = MAX_OPEN_EXECUTIONS  # that have not ended
    workflow_tasks: int = MAX_TASKS  # tasks of all executions that are calls now
    kept_bytes: int | None = DEFAULT_KEPT_BYTES  # on disk for a namespace: entities, code, queued calls, records
    disk_reserve_bytes: int | None = None  # left to small writes; None: a twentieth of the disk, at most 1 GiB
    rules_per_trigger: int = 100
    rules_per_namespace: int = 1000

    # Limits of environments, see `EnvironmentLimits`.
    builds: int = EnvironmentLimits().builds
    builds_waiting: int = EnvironmentLimits().waiting
    build_s: float = EnvironmentLimits().timeout_s
    build_memory_bytes: int = EnvironmentLimits().memory_bytes
    build_processes: int = EnvironmentLimits().processes
    environment_bytes: int = EnvironmentLimits().environment_bytes
    environments_bytes: int = EnvironmentLimits().total_bytes
    environments_tenant_bytes: int = EnvironmentLimits().tenant_bytes
    environments_unused_s: float = EnvironmentLimits().unused_s
    sessions: SessionSettings = SessionSettings()
    metrics_for_operator_only: bool | None = None  # None: if the server listens beyond this machine
    loopback: bool = True  # only this machine reaches the server

    @property
    def metrics_are_operators(self) -> bool:
        """Return whether the metrics are for the operator alone."""
        only = self.metrics_for_operator_only
        return not self.loopback if only is None else only

    @property
    def rate_limits(self) -> RateLimits:
        """The limits of a namespace without a quota of its own."""
        return RateLimits(self.invocations_per_minute, self.concurrent_invocations, self.fires_per_minute)

    @property
    def environments(self) -> EnvironmentLimits:
        """The limits of builds and environments."""
        return EnvironmentLimits(
            builds=max(1, self.builds),
            waiting=self.builds_waiting,
            timeout_s=self.build_s,
            memory_bytes=self.build_memory_bytes,
            processes=self.build_processes,
            environment_bytes=self.environment_bytes,
            total_bytes=self.environments_bytes,
            tenant_bytes=self.environments_tenant_bytes,
            unused_s=self.environments_unused_s,
        )

    @property
    def entity_bytes(self) -> int:
        """The largest body of a PUT with code. JSON escapes at most double the size of usual code."""
        return 2 * self.code_bytes + 2 * self.parameters_bytes + MIB

    @property
    def pairs_bytes(self) -> int:
        """The largest body of a PUT without code, with parameters and annotations."""
        return 4 * self.parameters_bytes + MIB

    def with_memory(self, max_bytes: int) -> "GatewaySettings":
        """Return a copy in which no action's memory limit exceeds so many bytes."""
        memory = self.memory_mb
        most = max(memory.minimum, min(memory.maximum, max_bytes // MIB))
        return replace(self, memory_mb=Range(memory.minimum, most, min(memory.default, most)))


# --- `aliquot up --limit` ------------------------------------------------------------------------------------

# Settings that have an option of their own, are detected, or cannot change: a sandbox runs one call at a time.
_NOT_LIMITS = {"api_host", "nodejs", "images", "sessions", "concurrency", "loopback"}
# Former names of limits, by the name that now stands for them.
_FORMER_NAMES = {"code_per_namespace_bytes": "kept_bytes, which also counts queued calls and records"}
_RANGE_FIELDS = {"least": "minimum", "most": "maximum", "usual": "default"}  # by the words that operators use


def parse_limits(texts: list[str], key: str) -> GatewaySettings:
    """Parse limits such as `payload_bytes=128MiB`, `timeout_ms.most=600000` or `invocations_per_minute=none`.

    Raises `InputError`, in which `key` is the name of the option.
    """
    settings = GatewaySettings()
    known = {field.name: field.type for field in fields(GatewaySettings) if field.name not in _NOT_LIMITS}
    for name, text in parse_assignments(texts, key).items():
        if name in _FORMER_NAMES:
            raise InputError(f"{key}: {name} no longer exists; use {_FORMER_NAMES[name]}")
        field, dot, part = name.partition(".")
        kind = known.get(field)
        if kind is None or (kind is Range) != bool(dot) or (dot and part not in _RANGE_FIELDS):
            raise InputError(f"{key}: there is no {name}; there are {', '.join(_names(known))}")
        if dot:
            changed = {_RANGE_FIELDS[part]: _parse_value(int, text, name, key)}
            value: Any = replace(getattr(settings, field), **changed)
        else:
            value = _parse_value(kind, text, name, key)
        settings = replace(settings, **{field: value})
    for field, kind in known.items():
        if kind is Range:
            _check_order(field, getattr(settings, field), key)
    return settings


def _names(known: dict[str, Any]) -> list[str]:
    parts = ", ".join(_RANGE_FIELDS)
    return [f"{name}.({parts})" if kind is Range else name for name, kind in known.items()]


def _parse_value(kind: Any, text: str, name: str, key: str) -> Any:  # noqa: ANN401 - the setting's own type
    if name.endswith("_bytes") and text != "none":
        return parse_size(text, f"{key}: {name}")

    class Setting(Struct):
        value: kind

    try:
        value = convert({"value": None if text == "none" else text}, Setting, strict=False).value
    except ValidationError as error:
        raise InputError(f"{key}: {name}: '{text}' does not fit: {error}") from error
    if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < float("inf"):
        raise InputError(f"{key}: {name}: '{text}' does not fit: it takes a number from 0 on")
    return value


def _check_order(name: str, limits: Range, key: str) -> None:
    least, usual, most = limits.minimum, limits.default, limits.maximum
    if not least <= usual <= most:
        raise InputError(f"{key}: {name}: least ({least}), usual ({usual}) and most ({most}) are not in order")
