"""Isolation of namespaces on every route: entities are out of reach for others unless they are published.

The routes come from the server's own OpenAPI page, so a new one is tried without a change here. One that shows what a
namespace has must show it to its owner below: whoever adds such a route adds such a thing to `furnished`.
"""

import hashlib
import itertools
import json
import re
from typing import NamedTuple

import httpx
import pytest

from aliquot.testing.server import LiveServer

MARK = "for-the-owner-alone"
ECHO = f"# {MARK}\ndef main(args): return args"
SECRET = "value-of-a-secret"  # noqa: S105 - which not even its owner reads
PAIRS = [{"key": "mark", "value": MARK}]
READ_FIRST = ("get", "head", "post", "patch", "put", "delete")
# These routes have placeholders, but show no content of a namespace.
SHOW_NOTHING = {
    "/api/v1/namespaces/{namespace}/limits",
    "/api/v1/namespaces/{namespace}/volumes/{volume}/files",  # without a path, which is no placeholder
    "/api/v1/namespaces/{namespace}/limits/{name}",
    "/api/v1/namespaces/{namespace}/activations/{id}/logs",
    "/api/v1/observe/activations/{id}/timeline",  # times and causes alone
    "/api/v1/web/{namespace}/{package}/{name}",
}
# The use of the devices by all, which changes with every call.
CHANGES_BY_ITSELF = {"/api/v1/observe/overview", "/api/v1/observe/slices", "/api/v1/observe/series"}
ENDLESS = {"/api/v1/observe/stream"}  # the same as the overview
# Bodies that name entities of the owner.
REFERRING = {
    "exec": {"kind": "sequence", "components": ["/owner/own", "/owner/box/inner"]},
    "trigger": "/owner/bell",
    "action": "/owner/own",
    "binding": {"namespace": "owner", "name": "box"},
    "status": "inactive",
}


class Route(NamedTuple):
    method: str
    path: str
    flags: tuple[str, ...]


class Owner(NamedTuple):
    client: httpx.Client
    values: dict[str, list[str]]  # by placeholder: what of the owner's may stand there
    secrets: tuple[str, ...]  # that no answer to anybody else may tell


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("data"), "--devices", "host:1") as server:
        yield server


@pytest.fixture(scope="module")
def routes(server):
    found = []
    for path, methods in httpx.get(f"{server.url}/openapi.json").json()["paths"].items():
        for method, operation in ({} if path in ENDLESS else methods).items():
            flags = [one["name"] for one in operation["parameters"] if one["schema"].get("type") == "boolean"]
            found.append(Route(method, path, tuple(flags)))
    assert len(found) > 40
    return sorted(found, key=lambda route: READ_FIRST.index(route.method))


def client_of(server, name):
    key = server.create_namespace(name)
    user, _, secret = key.partition(":")
    return key, httpx.Client(base_url=server.url, auth=(user, secret), timeout=60)


@pytest.fixture(scope="module")
def owner(server):
    owner = furnished(server)
    yield owner
    owner.client.close()


def furnished(server):
    """A namespace with one of everything, and the mark in all of it but in what is published."""
    key, client = client_of(server, "owner")
    base = "/api/v1/namespaces/_"

    def put(path, **body):
        client.put(f"{base}/{path}", json=body).raise_for_status()

    code = {"kind": "python:3.11", "code": ECHO}
    put("packages/box", parameters=PAIRS, annotations=PAIRS)
    put("packages/open", publish=True)
    put("actions/own", exec=code, parameters=PAIRS, annotations=PAIRS)
    put("actions/box/inner", exec=code, parameters=PAIRS, annotations=PAIRS)
    put("actions/open/shared", exec={**code, "code": "def main(args): return args"})
    put("actions/chain", exec={"kind": "sequence", "components": ["/_/own"]}, annotations=PAIRS)
    definition = {"StartAt": MARK, "States": {MARK: {"Type": "Pass", "End": True}}}
    put("actions/flow", exec={"kind": "workflow", "code": json.dumps(definition)}, annotations=PAIRS)
    put("actions/box/packed", exec={"kind": "workflow", "code": json.dumps(definition)}, annotations=PAIRS)
    put("triggers/bell", parameters=PAIRS, annotations=PAIRS)
    put("rules/rings", trigger="/_/bell", action="/_/own", annotations=PAIRS)
    put("alarms/bell", cron="0 0 1 1 *", payload={"mark": MARK})
    put(f"secrets/{MARK}", variables={"TOKEN": SECRET})
    put(f"volumes/{MARK}", size=2**20)
    put(f"volumes/{MARK}/files?path={MARK}", text=SECRET)
    digest = hashlib.sha256(MARK.encode()).hexdigest()
    for path in (f"blobs/{digest}", f"objects/{MARK}"):
        client.put(f"{base}/{path}", content=MARK.encode()).raise_for_status()
    action = {"name": "own", "namespace": "_", "backendMethod": "GET", "backendUrl": "x", "secureKey": MARK}
    route = {"gatewayBasePath": "/shop", "gatewayPath": "/own", "gatewayMethod": "get", "action": action}
    client.post("/api/v1/web/whisk.system/apimgmt/createApi", json={"apidoc": route}).raise_for_status()
    ran = client.post(f"{base}/actions/own", params={"blocking": "true"}, json={})
    activation = ran.raise_for_status().json()["activationId"]
    session = client.post("/api/v1/sessions", json={"name": MARK, "metadata": {"mark": MARK}}).raise_for_status()
    headers = {"authorization": f"Bearer {server.operator}"}
    dataset = {"url": "/srv/files", "namespaces": ["owner"]}
    where = f"{server.url}/operator/v1/datasets/{MARK}"
    httpx.put(where, params={"check": "false"}, headers=headers, json=dataset).raise_for_status()
    begun = {"name": MARK, "input": {"mark": MARK}}
    execution = client.post(f"{base}/workflows/flow/executions", json=begun).raise_for_status().json()["executionId"]
    ids = [activation, session.json()["sessionId"], execution]
    values = {
        "namespace": ["owner"],
        "name": ["own", "inner", "shared", "chain", "flow", "packed", "box", "open", "bell", "rings", "owner"],
        "package": ["box", "open", "own"],
        "trigger": ["bell"],
        "dataset": [MARK],
        "sha256": [digest],
        "key": [MARK],
        "secret": [MARK],
        "volume": [MARK],
        "path": ["shop/own", "shop"],
        "id": ids,
        "uuid": [key.partition(":")[0]],
    }
    return Owner(client, values, (MARK, SECRET, key.partition(":")[2], *ids))


def filled(path, values):
    """The path with everything in its places that may stand there."""
    places = re.findall(r"{(\w+)}", path)
    unknown = set(places) - set(values)
    assert not unknown, f"{path}: say in `furnished` what of the owner's stands for {unknown}"
    for chosen in itertools.product(*(values[place] for place in places)):
        yield path.format(**dict(zip(places, chosen, strict=True)))


def seen_by(owner, routes):
    """All that the owner reads of its own, by address."""
    seen = {}
    for route in routes:
        if route.method == "get" and route.path.startswith("/api/v1/"):
            for path, flag in itertools.product(filled(route.path, owner.values), ("", *route.flags)):
                answer = owner.client.get(path, params={flag: "true"} if flag else {})
                is_json = answer.headers.get("content-type", "").startswith("application/json")
                shown = answer.json() if is_json else answer.text
                seen[path, flag] = answer.status_code, {} if answer.status_code >= 400 else shown
    return seen


def test_the_owner_sees_what_others_must_not(owner, routes):
    seen = seen_by(owner, routes)
    assert SECRET not in str(seen)
    for route in routes:
        if route.method == "get" and "{" in route.path and route.path.startswith("/api/v1/"):
            paths = set(filled(route.path, owner.values))
            shown = str([answer for (path, _), answer in seen.items() if path in paths])
            assert MARK in shown or route.path in SHOW_NOTHING, f"{route.path} shows nothing: see `furnished`"


def answers_to(client, owner, routes):
    """Every route with everything of the owner's in its places, by its name and in one's own namespace."""
    for route in routes:
        for namespace in ("owner", "_") if "{namespace}" in route.path else ("",):
            for path in filled(route.path, {**owner.values, "namespace": [namespace]}):
                for flags in ({}, dict.fromkeys(route.flags, "true")) if route.flags else ({},):
                    for body in (REFERRING, {}) if route.method in {"post", "put", "patch"} else (None,):
                        url = f"{client.base_url}{path}"
                        yield route, path, client.request(route.method.upper(), url, params=flags, json=body)


def is_published(route, path):
    """The list of another's packages, and what can be read and run of the one that is open."""
    if route.method == "get" and path.endswith(("/owner/packages", "/owner/packages/open", "/actions/open/")):
        return True
    return route.method in {"get", "post"} and path.endswith("/owner/actions/open/shared")


@pytest.mark.parametrize("known", [True, False], ids=["another namespace", "nobody"])
def test_nothing_of_the_owners_is_reached_or_changed_by_others(server, owner, routes, known):
    before = seen_by(owner, routes)
    thief = client_of(server, "thief")[1] if known else httpx.Client(base_url=server.url, timeout=60)
    with thief:
        for route, path, answer in answers_to(thief, owner, routes):
            told = [secret for secret in owner.secrets if secret in answer.text and secret not in path]
            assert not told, f"{route.method} {path} told {told}"
            if "/namespaces/owner" in path and not (known and is_published(route, path)):
                assert answer.status_code in {401, 403, 404, 405, 415}, f"{route.method} {path}: {answer.status_code}"
            if set(owner.values["id"] + owner.values["uuid"]) & set(path.split("/")):
                assert answer.status_code in {400, 401, 403, 404}, f"{route.method} {path}: {answer.status_code}"
    own = [route for route in routes if route.path not in CHANGES_BY_ITSELF]
    assert seen_by(owner, own) == {
        place: answer for place, answer in before.items() if place[0] not in CHANGES_BY_ITSELF
    }


def test_a_published_package_shows_itself_and_no_other(server, owner):
    _, reader = client_of(server, "reader")
    with reader:
        listed = reader.get("/api/v1/namespaces/owner/packages").json()
        assert [item["name"] for item in listed] == ["open"]
        shown = reader.get("/api/v1/namespaces/owner/packages/open").json()
        assert [item["name"] for item in shown["actions"]] == ["shared"]
        query = {"blocking": "true", "result": "true"}
        ran = reader.post("/api/v1/namespaces/owner/actions/open/shared", params=query, json={"x": 1})
        assert ran.json() == {"x": 1}
        mine = reader.get("/api/v1/namespaces/_/activations").json()
        assert [item["name"] for item in mine] == ["shared"]
    activations = owner.client.get("/api/v1/namespaces/_/activations", params={"docs": "true"}).json()
    assert [record["name"] for record in activations] == ["flow", "own"]


@pytest.mark.parametrize("path", ["default/own", "default/own.json", "box/inner.http", "open/shared.json"])
def test_what_is_not_exported_is_no_web_action(server, owner, path):
    for get in (owner.client.get, httpx.get):
        answer = get(f"{server.url}/api/v1/web/owner/{path}")
        assert (answer.status_code, MARK in answer.text) == (404, False)


def test_a_session_of_anothers_cannot_be_used(server, owner):
    _, thief = client_of(server, "pretender")
    with thief:
        base = "/api/v1/namespaces/_/actions/mine"
        thief.put(
            base, json={"exec": {"kind": "python:3.11", "code": "def main(args): return args"}}
        ).raise_for_status()
        for session in owner.values["id"]:
            answer = thief.post(base, params={"blocking": "true"}, headers={"x-aliquot-session": session}, json={})
            assert answer.status_code in {400, 404}
    (item,) = owner.client.get("/api/v1/sessions").json()
    assert item["invocations"] == 0
