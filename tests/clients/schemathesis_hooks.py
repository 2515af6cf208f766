"""Hooks for schemathesis: cases that name existing entities, and a check for answers with status 502.

`alpha` and `beta` come and go, with a prefix for each collection, as names are shared by all of them. `gamma` stands
for what the test has put there; nobody takes it away.
"""

import json
import re
import zlib

import schemathesis

PASSING, STAYING = ("alpha", "beta"), "gamma"
KNOWN = re.compile(r"[aprtw]-(alpha|beta|gamma)")
PREFIXES = {"actions": "a", "packages": "p", "triggers": "t", "rules": "r", "alarms": "t", "workflows": "w"}
EXECS = [
    {"kind": "python:3.11", "code": "def main(args): return args"},
    {"kind": "python:3", "code": "def main(args): return {'error': 'no'}"},
    {"kind": "python:default", "code": "def main(args): return [1]"},
    {"kind": "python:3.11", "code": "def main(args: return 1"},
    {"kind": "sequence", "components": ["/whisk.system/utils/echo", "/_/a-gamma"]},
]
ENDS = {"trigger": "/_/t-gamma", "action": "/_/a-gamma"}
ROUTE = "/api/{namespace}/{path}"
WEB = {"namespace": "guest", "package": "default"}


def chance(case, of):
    """Return a number below `of` that depends on the request alone, so that a failure can be repeated."""
    return zlib.crc32(json.dumps([case.path_parameters, case.body], sort_keys=True, default=repr).encode()) % of


@schemathesis.hook
def before_call(_, case, **__):
    """Make most valid requests name entities that exist."""
    _spare_what_stays(case)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.path.startswith("/api/v1/web/") and chance(case, 4):
        case.path_parameters = WEB | {"name": ("a-gamma.json", "a-gamma.http", "a-gamma")[chance(case, 3)]}
    elif case.path == ROUTE and chance(case, 4):
        case.path_parameters = {"namespace": "guest", "path": STAYING}
    elif found := re.search(r"/namespaces/{namespace}/(\w+)/{", case.path):
        _meet_names(case, found[1])
        if case.method == "PUT" and isinstance(case.body, dict):
            _meet_bodies(case, found[1])


def _spare_what_stays(case):
    """Rename deletions of the entities that must stay. Schemathesis has learned their names from lists."""
    if case.method in {"PUT", "DELETE"} and str(case.path_parameters.get("name")).endswith(STAYING):
        case.path_parameters["name"] = case.path_parameters["name"].replace(STAYING, PASSING[0])


def _meet_names(case, collection):
    """A name of the gateway's own stays as it is: a link has brought it. One in eight of the others does, too."""
    if chance(case, 8) == 0:
        return
    names = (*PASSING, STAYING, STAYING) if case.method in {"GET", "POST"} else PASSING
    for place, value in case.path_parameters.items():
        prefix = "p" if place == "package" else PREFIXES.get(collection)
        if place == "namespace":
            case.path_parameters[place] = "_"
        elif prefix and not KNOWN.fullmatch(str(value)):
            case.path_parameters[place] = f"{prefix}-{names[chance(case, len(names))]}"


def _meet_bodies(case, collection):
    if chance(case, 3):
        case.query = {**(case.query or {}), "overwrite": "true"}
    if collection == "actions" and (pick := chance(case, 7)) < len(EXECS):
        case.body = {**case.body, "exec": EXECS[pick], "annotations": [], "limits": {}}
    elif collection == "rules" and chance(case, 4):
        case.body = {**case.body, **ENDS}
    elif collection == "alarms" and chance(case, 4):
        case.body = {"cron": "0 0 29 2 *"}


@schemathesis.hook
def filter_failure(_, failure, case, __):
    """Ignore failures where DELETE removes nothing: it cancels an activation, or it calls a web action."""
    stays = "/activations/" in case.path or case.path.startswith("/api/v1/web/") or case.path == ROUTE
    return not (stays and type(failure).__name__ == "UseAfterFree")


@schemathesis.check
def a_502_has_its_activation(_, response, __):
    """A 502 is the only allowed 5xx answer, and its activation can be looked up."""
    if response.status_code == 502:
        assert "x-openwhisk-activation-id" in response.headers, "a 502 without an activation"
