"""The bodies of requests and answers, as types: they read what comes, and the OpenAPI page is made from them."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

RuleStatus: TypeAlias = Literal["active", "inactive"]
# Told by the page alone: a wrong one is refused in OpenWhisk's own words.
Version: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": r"^(?!0+\.0+\.0+$)\d{1,9}\.\d{1,9}\.\d{1,9}$"})]


class PairPut(Struct):
    """One annotation or parameter."""

    key: Annotated[str, Meta(min_length=1)]
    value: Any = None
    init: bool | None = None  # goes to the environment, not to the arguments


class ExecPut(Struct):
    kind: str | None = None
    code: str | None = None
    main: str | None = None
    image: str | None = None  # of a blackbox
    components: list[str] | None = None  # of a sequence: `/namespace/package/action`


class LimitsPut(Struct):
    timeout: int | None = None  # ms
    memory: int | None = None  # MB
    logs: int | None = None  # MB
    concurrency: int | None = None
    instances: int | None = None  # sandboxes at once


class EntityPut(Struct, kw_only=True):
    """Absent fields keep their old value. Unknown ones are ignored."""

    annotations: list[PairPut] | None = None
    version: Version | None = None
    publish: bool | None = None


class ActionPut(EntityPut, rename="camel"):
    """Annotations are merged with those that are there."""

    exec: ExecPut | None = None
    parameters: list[PairPut] | None = None
    del_annotations: list[str] | None = None
    limits: LimitsPut | None = None


class BindingPut(Struct):
    """The package to bind, `_` in the caller's own namespace; {} in a package that is none."""

    namespace: str | None = None
    name: str | None = None


class PackagePut(EntityPut):
    parameters: list[PairPut] | None = None
    binding: BindingPut | None = None


class TriggerPut(EntityPut):
    parameters: list[PairPut] | None = None


class PathPut(Struct):
    """`{"path": "namespace/package", "name": "action"}`."""

    path: str
    name: str


class RulePut(EntityPut):
    """Names are full: `/namespace/trigger`, `/namespace/package/action`; `_` stands for the caller's namespace."""

    trigger: str | PathPut | None = None
    action: str | PathPut | None = None


class StatusPost(Struct):
    status: RuleStatus


class PairView(Struct):
    key: str
    value: Any
    init: bool | UnsetType = UNSET


class ExecView(Struct):
    """A sequence has components and nothing else."""

    kind: str
    binary: bool | UnsetType = UNSET
    code: str | UnsetType = UNSET
    main: str | UnsetType = UNSET
    image: str | UnsetType = UNSET
    components: list[str] | UnsetType = UNSET


class LimitsView(Struct):
    timeout: int
    memory: int
    logs: int
    concurrency: int
    instances: int | UnsetType = UNSET


class EntityView(Struct, kw_only=True):
    namespace: str  # of an action in a package: `namespace/package`
    name: str
    version: str
    publish: bool
    annotations: list[PairView]
    updated: int  # ms since the epoch


class ActionView(EntityView):
    exec: ExecView
    parameters: list[PairView]
    limits: LimitsView


class ExecItem(Struct):
    binary: bool


class ActionItem(EntityView):
    exec: ExecItem
    limits: LimitsView


class BindingView(Struct):
    """The package that is bound; {} of a package that is none."""

    namespace: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class PackageActionView(Struct):
    name: str
    version: str
    annotations: list[PairView]


class PackageView(EntityView):
    """Whoever reads it gets `actions` and `feeds` too."""

    binding: BindingView
    parameters: list[PairView]
    actions: list[PackageActionView] | UnsetType = UNSET
    feeds: list[PackageActionView] | UnsetType = UNSET


class PackageItem(EntityView):
    binding: bool | BindingView  # false of a package that is none


class TriggerLimitsView(Struct):
    """{}"""


class PathView(Struct):
    path: str
    name: str


class TriggerRuleView(Struct):
    action: PathView
    status: RuleStatus


class TriggerView(EntityView):
    parameters: list[PairView]
    limits: TriggerLimitsView
    rules: dict[str, TriggerRuleView]  # by `namespace/rule`


class RuleItem(EntityView):
    trigger: PathView
    action: PathView


class RuleView(RuleItem):
    status: RuleStatus


class ErrorView(Struct):
    error: str
    code: str


class ActivationId(Struct, rename="camel"):
    activation_id: str


class ActionCount(Struct):
    actions: int


class PackageCount(Struct):
    packages: int


class TriggerCount(Struct):
    triggers: int


class RuleCount(Struct):
    rules: int


class ActivationCount(Struct):
    activations: int


class ResponseView(Struct):
    status: str
    success: bool
    size: int
    result: Any


class LogsView(Struct):
    logs: list[str]


class ActivationView(Struct, rename="camel"):
    namespace: str
    name: str
    version: str
    subject: str
    activation_id: str
    publish: bool
    start: int
    logs: list[str]
    annotations: list[PairView]
    response: ResponseView
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET


class ActivationItem(Struct, rename="camel"):
    """In a list; with `docs` it is the record, which has no `statusCode`."""

    namespace: str
    name: str
    version: str
    publish: bool
    annotations: list[PairView]
    activation_id: str
    start: int
    status_code: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    duration: int | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    subject: str | UnsetType = UNSET
    logs: list[str] | UnsetType = UNSET
    response: ResponseView | UnsetType = UNSET
