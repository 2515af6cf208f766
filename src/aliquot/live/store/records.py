"""The records that the store keeps: namespaces, entities and activations.

Field names are OpenWhisk's where OpenWhisk has one, so that the JSON of an entity is the record itself.
"""

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

PYTHON = "python:3.11"
NODEJS = "nodejs:20"
SEQUENCE = "sequence"
WORKFLOW = "workflow"
KERNEL = "kernel:1"  # a kernel graph in the first version of its format
BLACKBOX = "blackbox"
SYSTEM = "whisk.system"  # the namespace of the packages that come with the platform; it has no keys


class Key(Struct, frozen=True):
    """A credential of a namespace. The key itself is `uuid:secret`, and only its owner has the secret."""

    uuid: str
    digest: str  # SHA-256 of the secret in hex. Secrets are long and random, so no slow hash is needed.


class Quota(Struct, frozen=True):
    """The limits of one namespace. None means no limit."""

    invocations_per_minute: int | None = None
    concurrent_invocations: int | None = None
    fires_per_minute: int | None = None
    kept_bytes: int | None = None  # on disk: entities, code, queued calls and records
    volume_bytes: int | None = None  # the sizes of its volumes together


class Namespace(Struct, frozen=True):
    """A tenant with its keys, weight and quota."""

    name: str
    keys: tuple[Key, ...] = ()
    weight: float = 1  # share in the scheduler, set by the operator
    quota: Quota = Quota()
    created: int = 0  # epoch ms
    # The owner of its records. It differs from that of an earlier namespace of the same name, whatever the clock said.
    owner: str = ""

    def __post_init__(self) -> None:
        if not self.owner:  # a namespace from before owners were stored
            force_setattr(self, "owner", self.name)


def name_of_owner(owner: str) -> str:
    """Return the name of the namespace that owns, or owned, records. An owner is `name` or `name:identity`."""
    return owner.partition(":")[0]


class Pair(Struct, frozen=True, omit_defaults=True):
    """An annotation or a parameter. An `init` parameter goes to the environment, not to the arguments."""

    key: str
    value: Any = None
    init: bool = False


class FullName(Struct, frozen=True, order=True):
    """An entity's name with its namespace: `/namespace/name`, or `/namespace/package/name` for an action in one."""

    namespace: str
    name: str  # `name`, or `package/name`

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.name}"

    @property
    def package(self) -> str:
        """The package's name, or an empty text."""
        return self.name.rpartition("/")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def path(self) -> str:
        """The part before the last name: `namespace`, or `namespace/package`."""
        return f"{self.namespace}/{self.package}" if self.package else self.namespace


class Exec(Struct, frozen=True, omit_defaults=True):
    kind: str
    code: str = ""
    binary: bool = False
    main: str | None = None
    image: str | None = None  # container image of a blackbox action
    components: tuple[FullName, ...] = ()  # actions of a sequence


class Limits(Struct, frozen=True):
    timeout: int = 60_000  # ms, for init and run separately
    memory: int = 256  # MB
    logs: int = 10  # MB
    concurrency: int = 1
    instances: int | UnsetType = UNSET  # sandboxes at once; if unset, as many as the devices hold


class _Entity(Struct, frozen=True, kw_only=True):
    """The common fields of all entities. Names are unique within a namespace, across all kinds of entities."""

    parameters: tuple[Pair, ...] = ()
    annotations: tuple[Pair, ...] = ()
    publish: bool = False
    updated: int = 0  # epoch ms

    def annotation(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - whatever JSON holds
        return next((pair.value for pair in self.annotations if pair.key == key), default)


def is_truthy(value: object) -> bool:
    """Return the truth value of an annotation, as in JavaScript: empty lists and objects are true."""
    return value not in (None, False, 0, "") or isinstance(value, list | dict)


class Action(_Entity, frozen=True):
    """A function as its owner deployed it, or a sequence of them."""

    namespace: str
    name: str  # `name`, or `package/name`
    version: str
    exec: Exec
    limits: Limits = Limits()
    revision: str = ""  # new with every write; a sandbox serves exactly one revision

    @property
    def full_name(self) -> FullName:
        return FullName(self.namespace, self.name)


class Package(_Entity, frozen=True):
    """A set of actions with common parameters, or a binding: another package under a new name, with own parameters."""

    namespace: str
    name: str
    version: str
    binding: FullName | None = None


class Trigger(_Entity, frozen=True):
    """A named source of events. Rules say which actions an event invokes."""

    namespace: str
    name: str
    version: str
    identity: str = ""  # unique, so that rules and alarms do not pass to a later trigger of the same name


class Rule(_Entity, frozen=True):
    """A rule invokes an action whenever a trigger fires."""

    namespace: str
    name: str
    version: str
    trigger: FullName
    action: FullName
    active: bool = True
    tied: str = ""  # identity of its trigger; with a later trigger of the same name the rule is inactive


Entity: TypeAlias = Action | Package | Trigger | Rule


class Activation(Struct, frozen=True, gc=False):
    """The record of one invocation in stored form. What lists show is separate from what may be large."""

    id: str  # 32 lower-case hexadecimal digits
    owner: str  # `Namespace.owner` of the caller
    name: str  # name of the action in lists: `name` or `package/name`
    start: int  # epoch ms
    end: int
    summary: bytes  # JSON object: the list item, `statusCode` included
    response: bytes  # JSON object: status, success, result, size
    logs: bytes  # JSON array of lines
    pickled: bytes | memoryview | None = None  # the pickled result, if the SDK's client asked for it
    session: str | None = None
    # A result too large to be copied. `response` then ends where the result belongs, and a brace must follow it.
    large: bytes | memoryview | None = None


class Accepted(Struct, frozen=True, gc=False):
    """An invocation that was acknowledged before it ran. It is in the queue until its activation is stored."""

    id: str
    owner: str  # `Namespace.owner` of the caller
    name: str  # name of the flow in the caller's namespace
    accepted: int  # epoch ms
    payload: bytes | memoryview  # as the sandbox gets it
    pickled: bool = False  # the payload is a pickle of the SDK, not JSON
    rerun: int = 0  # how often it may run again after a crash
    started: int = 0
    cause: str = ""  # id of the activation that it is part of
    session: str = ""
    starts: int = 0  # of sandboxes for it, since it last began to run or the server stopped in order
    # Id of the fired event whose body is its payload. The body is stored once for all calls of the event, and the
    # action's parameters are merged with it when the call runs.
    event: str = ""
