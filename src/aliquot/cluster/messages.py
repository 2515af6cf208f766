"""The messages between head and agents, as msgpack arrays whose first entry is the kind.

    head ▶ agent   Challenge, then Joined | Welcome | Refused, then commands and Ping
    agent ▶ head   Join | Hello | OpenRelay, then reports and Pong

Commands and reports are numbered and arrive once and in order (`delivery.py`). Payloads and results are bytes that
nobody on the way decodes. A change that an older peer does not understand raises `PROTOCOL`.
"""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from aliquot.core.model import DeviceSpec
from aliquot.live.device.records import DeviceUsage
from aliquot.live.node.base import Launch, SandboxUsage, Status
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.network.messages import RelaySettings

PROTOCOL = 1
OLDEST_PROTOCOL = 1  # that this version works with
PORT = 3235


class _Message(Struct, frozen=True, array_like=True, tag_field="kind", gc=False):
    """A message on the connection."""


# --- greetings -----------------------------------------------------------------------------------------------------


class Challenge(_Message, frozen=True, tag=1):
    """The head's first message. The agent checks the authority against its token, or against what it has stored."""

    protocol: int
    version: str
    head: str  # this process, which is another after a restart
    epoch: int
    nonce: bytes
    authority: bytes  # certificate in PEM; empty without TLS


class Join(_Message, frozen=True, tag=2):
    """An agent wants a certificate, or without TLS to be known. It proves that it has the token's secret."""

    node: str
    identity: str  # random text that the agent has made for itself
    proof: bytes
    request: bytes  # certificate signing request in PEM; empty without TLS


class Joined(_Message, frozen=True, tag=3):
    certificate: bytes  # PEM; empty without TLS


class Hello(_Message, frozen=True, tag=4):
    """An agent that has joined is there, for the first time or again."""

    protocol: int
    version: str
    node: str
    identity: str
    proof: bytes  # without TLS; otherwise the certificate proves more
    instance: str  # this process of the agent
    received: int  # commands of this head so far
    devices: tuple[DeviceSpec, ...]
    host_memory_bytes: int
    max_sandbox_bytes: int  # the largest memory limit of a sandbox
    bandwidth_bytes_s: float | None = None


class AgentSettings(Struct, frozen=True):
    """The settings of the head that hold on every node."""

    relay: RelaySettings
    result_bytes: int
    replies_bytes: int
    environments: EnvironmentLimits
    ping_s: float
    lose_s: float


class Welcome(_Message, frozen=True, tag=5):
    received: int  # reports of this agent so far
    settings: AgentSettings


class Refused(_Message, frozen=True, tag=6):
    """The head does not take this agent. The reason is for people."""

    reason: str
    again: bool  # a new process of the agent may try again


class OpenRelay(_Message, frozen=True, tag=7):
    """The connection carries the bytes of one connection to the platform's API from now on."""

    node: str
    identity: str
    proof: bytes


class AgentGone(_Message, frozen=True, tag=9):
    """The process that looks after an agent says that the agent has ended, however it did."""

    node: str
    identity: str
    proof: bytes
    instance: str


class RelayOpened(_Message, frozen=True, tag=8):
    """The head takes the bytes of the connection to the API, and nothing else from now on."""


# --- without a number ----------------------------------------------------------------------------------------------


class Ping(_Message, frozen=True, tag=10):
    sent_s: float
    received: int  # reports so far
    epoch: int


class Pong(_Message, frozen=True, tag=11):
    sent_s: float  # of the ping
    received: int  # commands so far


class Usage(_Message, frozen=True, tag=12):
    """The usage of the node's sandboxes, once a second. The next message makes up for one that is lost."""

    sandboxes: list[SandboxUsage]
    devices: list[DeviceUsage]


# --- commands: methods of `Node` -----------------------------------------------------------------------------------


class Start(_Message, frozen=True, tag=20):
    """Start a sandbox. Code is named by digest, and asked for with `CodeWanted` where it is not on the node's disk."""

    sandbox: int
    launch: Launch  # without code
    code: str  # digest
    members: tuple[str, ...] = ()  # digests


class Code(_Message, frozen=True, tag=21):
    digest: str
    body: bytes


class RunCommand(_Message, frozen=True, tag=22):
    sandbox: int
    invocation: str
    payload: bytes
    pickled: bool
    env: dict[str, str]
    timeout_ms: int
    logs_bytes: int
    takes_parts: bool = False
    share: bool = False
    handed: bool = False
    hand_on: bool = False
    defaults: bytes = b""  # JSON
    items: bytes = b""  # JSON
    buffer: bytes | None = None  # contents of the shared buffer with pickled arguments
    objects: tuple[bytes, ...] | None = None


class Stop(_Message, frozen=True, tag=23):
    sandbox: int


class SetSliceCommand(_Message, frozen=True, tag=24):
    sandbox: int
    share: float
    ceiling: float


class SetWeight(_Message, frozen=True, tag=25):
    tenant: str
    weight: float


class Unload(_Message, frozen=True, tag=26):
    sandbox: int


class Load(_Message, frozen=True, tag=27):
    sandbox: int


class PartTaken(_Message, frozen=True, tag=28):
    """The caller has taken a part of a result. The function may go on, or shall stop."""

    sandbox: int
    goes_on: bool


class Leave(_Message, frozen=True, tag=29):
    """The agent ends now: nothing runs there any more."""


# --- reports: methods of `NodeListener` ----------------------------------------------------------------------------


class Ready(_Message, frozen=True, tag=40):
    """The agent takes commands."""

    enforced: tuple[str, ...]  # devices on which slices are enforced
    missing: tuple[str, ...]  # what the machine lacks, for people


class Started(_Message, frozen=True, tag=41):
    sandbox: int
    init_s: float
    logs: tuple[str, ...]


class Ended(Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a run, or of a start that failed."""

    status: Status
    result: bytes
    run_s: float
    logs: tuple[str, ...] = ()
    pickled: bytes | None = None
    timed_out: bool = False
    buffer: bytes | None = None
    outer: tuple[tuple[str, ...], ...] = ()
    inside_s: float = 0.0
    failure: str = ""


class Finished(_Message, frozen=True, tag=42):
    sandbox: int
    ended: Ended


class SandboxGone(_Message, frozen=True, tag=43):
    sandbox: int
    ended: Ended


class StartRefused(_Message, frozen=True, tag=44):
    sandbox: int


class Loaded(_Message, frozen=True, tag=45):
    sandbox: int


class DeviceGone(_Message, frozen=True, tag=46):
    device: str
    why: str


class Printed(_Message, frozen=True, tag=47):
    """Lines that a run has printed so far and that were not sent yet."""

    sandbox: int
    lines: list[str]


class CodeWanted(_Message, frozen=True, tag=48):
    sandbox: int
    digest: str


class Part(_Message, frozen=True, tag=49):
    """A part of a result, which is JSON."""

    sandbox: int
    data: bytes


class Leaving(_Message, frozen=True, tag=50):
    """The agent was told to stop: give it no more work, and let it go when nothing runs."""

    grace_s: float


Greeting: TypeAlias = Join | Hello | OpenRelay | AgentGone
Answer: TypeAlias = Challenge | Joined | Welcome | Refused | RelayOpened
Command: TypeAlias = Start | Code | RunCommand | Stop | SetSliceCommand | SetWeight | Unload | Load | PartTaken | Leave
Report: TypeAlias = (
    Ready
    | Started
    | Finished
    | SandboxGone
    | StartRefused
    | Loaded
    | DeviceGone
    | Printed
    | CodeWanted
    | Part
    | Leaving
)
FromHead: TypeAlias = Answer | Ping | Command
FromAgent: TypeAlias = Greeting | Pong | Usage | Report

encode = msgspec.msgpack.Encoder().encode
decode_from_head = msgspec.msgpack.Decoder(FromHead).decode
decode_from_agent = msgspec.msgpack.Decoder(FromAgent).decode
UNNUMBERED = (Challenge, Joined, Welcome, Refused, RelayOpened, Join, Hello, OpenRelay, AgentGone, Ping, Pong, Usage)
