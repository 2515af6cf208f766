"""Entities of two namespaces, driven at random over HTTP against a small model of them."""

import itertools
import json

import httpx
import pytest
from entities_model import ACTIONS, COLLECTIONS, OK, PACKAGES, RULES, TRIGGERS, Model
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from aliquot.testing.waiting import wait_until

ECHO = {"kind": "python:3.11", "code": "def main(args): return args"}
WHO = st.sampled_from([0, 1])
NAMES = st.sampled_from(["alpha", "beta", "gamma"])
PATHS = st.one_of(NAMES, st.tuples(NAMES, NAMES).map("/".join))
PARAMETERS = st.none() | st.dictionaries(st.sampled_from("pqr"), st.integers(0, 9), max_size=2)
FLAG = st.booleans()
_numbers = itertools.count()


def pairs(values):
    return {} if values is None else {"parameters": [{"key": key, "value": value} for key, value in values.items()]}


class Entities(RuleBasedStateMachine):
    server = None  # the test's

    def __init__(self):
        super().__init__()
        number = next(_numbers)
        self.spaces = [f"ann-{number}", f"bob-{number}"]
        self.model = Model()
        self.clients = []
        for name in self.spaces:
            user, _, secret = self.server.create_namespace(name).partition(":")
            base = f"{self.server.url}/api/v1/namespaces/"
            self.clients.append(httpx.Client(base_url=base, auth=(user, secret), timeout=60))
            self.model.activations[name] = 0

    def teardown(self):
        operator = {"authorization": f"Bearer {self.server.operator}"}
        for name, client in zip(self.spaces, self.clients, strict=True):
            client.close()
            url = f"{self.server.url}/operator/v1/namespaces/{name}"
            assert httpx.delete(url, headers=operator).status_code < 300

    def ask(self, method, who, path, expected, *, whose=None, **more):
        """Return the answer's body. Its status must be an expected one."""
        space = self.spaces[who if whose is None else whose]
        answer = self.clients[who].request(method, f"{space}/{path}", **more)
        assert answer.status_code in expected, (method, path, answer.status_code, answer.text, expected)
        body = answer.json() if answer.content else None
        if answer.status_code >= 400:
            assert set(body) == {"error", "code"}, body
        return body

    def put(self, who, collection, name, expected, body, *, overwrite):
        made = self.ask("PUT", who, f"{collection}/{name}", expected, json=body, params={"overwrite": overwrite})
        if expected == OK:
            thing = self.model.things[self.spaces[who], name]
            assert made["version"] == f"0.0.{thing.version}"
            assert made["name"] == name.rpartition("/")[2]
        return made

    @rule(who=WHO, name=NAMES, values=PARAMETERS, published=st.none() | FLAG, overwrite=FLAG)
    def put_package(self, who, name, values, published, overwrite):
        space = self.spaces[who]
        expected = self.model.put_package(space, name, overwrite=overwrite, parameters=values, published=published)
        body = pairs(values) | ({} if published is None else {"publish": published})
        self.put(who, PACKAGES, name, expected, body, overwrite=overwrite)

    @rule(who=WHO, name=NAMES, whose=WHO, bound=NAMES, values=PARAMETERS, overwrite=FLAG)
    def bind_package(self, who, name, whose, bound, values, overwrite):
        space, binding = self.spaces[who], (self.spaces[whose], bound)
        expected = self.model.put_package(space, name, overwrite=overwrite, parameters=values, binding=binding)
        body = pairs(values) | {"binding": {"namespace": binding[0], "name": bound}}
        made = self.put(who, PACKAGES, name, expected, body, overwrite=overwrite)
        if expected == OK:
            assert made["binding"] == body["binding"]

    @rule(who=WHO, path=PATHS, values=PARAMETERS, overwrite=FLAG)
    def put_action(self, who, path, values, overwrite):
        expected = self.model.put_action(self.spaces[who], path, overwrite=overwrite, parameters=values)
        self.put(who, ACTIONS, path, expected, pairs(values) | {"exec": ECHO}, overwrite=overwrite)

    @rule(who=WHO, name=NAMES, values=PARAMETERS, overwrite=FLAG)
    def put_trigger(self, who, name, values, overwrite):
        expected = self.model.put(TRIGGERS, self.spaces[who], name, overwrite=overwrite, parameters=values)
        self.put(who, TRIGGERS, name, expected, pairs(values), overwrite=overwrite)

    @rule(who=WHO, name=NAMES, trigger=NAMES, action=PATHS, overwrite=FLAG)
    def put_rule(self, who, name, trigger, action, overwrite):
        space = self.spaces[who]
        expected = self.model.put_rule(space, name, trigger=trigger, action=action, overwrite=overwrite)
        body = {"trigger": f"/{space}/{trigger}", "action": f"/_/{action}"}
        made = self.put(who, RULES, name, expected, body, overwrite=overwrite)
        if expected == OK:
            assert made["status"] == self.status(space, name)
            assert made["trigger"] == {"path": space, "name": trigger}

    @rule(who=WHO, collection=st.sampled_from(COLLECTIONS), path=PATHS, force=FLAG)
    def delete(self, who, collection, path, force):
        if collection != ACTIONS:
            path = path.rpartition("/")[2]
        expected = self.model.delete(collection, self.spaces[who], path, force=force)
        self.ask("DELETE", who, f"{collection}/{path}", expected, params={"force": force})

    @rule(who=WHO, whose=WHO, path=PATHS)
    def get_action(self, who, whose, path):
        resolved = self.model.reach(self.spaces[who], self.spaces[whose], path)
        expected = OK if resolved else self.model.why_not(self.spaces[who], self.spaces[whose], path)
        got = self.ask("GET", who, f"{ACTIONS}/{path}", expected, whose=whose)
        if resolved:
            assert {pair["key"]: pair["value"] for pair in got["parameters"]} == resolved["parameters"]

    @rule(who=WHO, whose=WHO, path=PATHS, payload=st.dictionaries(st.sampled_from("pqs"), st.integers(), max_size=2))
    def invoke(self, who, whose, path, payload):
        resolved = self.model.reach(self.spaces[who], self.spaces[whose], path)
        expected = OK if resolved else self.model.why_not(self.spaces[who], self.spaces[whose], path)
        query = {"blocking": True}
        record = self.ask("POST", who, f"{ACTIONS}/{path}", expected, whose=whose, json=payload, params=query)
        if resolved:
            self.model.activations[self.spaces[who]] += 1
            assert record["response"]["result"] == resolved["parameters"] | payload
            assert record["namespace"] == self.spaces[who]
            self.ask("GET", who, f"activations/{record['activationId']}", OK)

    @rule(who=WHO, whose=WHO, name=NAMES)
    def get_package(self, who, whose, name):
        found = self.model.packages(self.spaces[who], self.spaces[whose], name)
        got = self.ask("GET", who, f"{PACKAGES}/{name}", found if isinstance(found, set) else OK, whose=whose)
        if not isinstance(found, set):
            inside = [path.partition("/")[2] for path in self.model.inside(*found[0])]
            assert sorted(item["name"] for item in got["actions"]) == inside

    @rule(who=WHO, name=NAMES)
    def get_rule(self, who, name):
        space = self.spaces[who]
        found = self.model.find(RULES, space, name)
        got = self.ask("GET", who, f"{RULES}/{name}", OK if found else {self.model.missing(RULES, space, name)})
        if found:
            assert got["status"] == self.status(space, name)
            assert got["trigger"]["name"] == found.trigger

    @rule(who=WHO, name=NAMES)
    def get_trigger(self, who, name):
        space = self.spaces[who]
        found = self.model.find(TRIGGERS, space, name)
        got = self.ask("GET", who, f"{TRIGGERS}/{name}", OK if found else {self.model.missing(TRIGGERS, space, name)})
        if found:
            shown = {key.rpartition("/")[2]: value["status"] for key, value in got.get("rules", {}).items()}
            assert shown == {link: "active" if active else "inactive" for link, active in found.links.items()}

    @rule(who=WHO, name=NAMES, active=FLAG)
    def set_status(self, who, name, active):
        expected = self.model.set_status(self.spaces[who], name, active=active)
        self.ask("POST", who, f"{RULES}/{name}", expected, json={"status": "active" if active else "inactive"})

    @rule(who=WHO, name=NAMES)
    def fire(self, who, name):
        space = self.spaces[who]
        expected, active = self.model.fire(space, name)
        fired = self.ask("POST", who, f"{TRIGGERS}/{name}", expected, json={"s": 1})
        if active:
            self.model.activations[space] += 1 + sum(active.values())
            record = self.wait_for(who, fired["activationId"], len(active))
            lines = map(json.loads, record["logs"])
            assert {line["rule"].rpartition("/")[2]: line["success"] for line in lines} == active

    @rule(who=WHO, collection=st.sampled_from([ACTIONS, TRIGGERS, RULES]), name=NAMES, verb=st.sampled_from("GPDL"))
    def what_is_anothers_is_out_of_reach(self, who, collection, name, verb):
        path = collection if verb == "L" else f"{collection}/{name}"
        method = {"G": "GET", "P": "PUT", "D": "DELETE", "L": "GET"}[verb]
        more = {"json": {"exec": ECHO}} if verb == "P" else {}
        self.ask(method, who, path, {403}, whose=1 - who, **more)

    @rule(who=WHO)
    def published_packages_are_listed(self, who):
        other = self.spaces[1 - who]
        names = [name for name in self.model.names(PACKAGES, other) if self.model.things[other, name].published]
        listed = self.ask("GET", who, PACKAGES, OK, whose=1 - who)
        assert sorted(item["name"] for item in listed) == names

    @rule(who=WHO, collection=st.sampled_from(COLLECTIONS), limit=st.integers(1, 3), skip=st.integers(0, 3))
    def lists_have_everything_newest_first(self, who, collection, limit, skip):
        listed = self.ask("GET", who, collection, OK)
        space = self.spaces[who]
        paths = [f"{item['namespace']}/{item['name']}".partition("/")[2] for item in listed]
        assert sorted(paths) == self.model.names(collection, space)
        assert [item["updated"] for item in listed] == sorted((item["updated"] for item in listed), reverse=True)
        assert self.ask("GET", who, collection, OK, params={"count": True}) == {collection: len(listed)}
        assert self.ask("GET", who, collection, OK, params={"limit": limit, "skip": skip}) == listed[skip:][:limit]

    @rule(who=WHO)
    def every_activation_is_counted_once(self, who):
        expected = {"activations": self.model.activations[self.spaces[who]]}
        wait_until(
            lambda: self.ask("GET", who, "activations", OK, params={"count": True}),
            lambda counted: counted == expected,
            what=f"the count {expected}",
        )

    @invariant()
    def the_server_lives(self):
        assert self.server.process.poll() is None

    def status(self, space, name):
        return "active" if self.model.is_active(space, name) else "inactive"

    def wait_for(self, who, id_, lines):
        """The trigger's record, once each rule has its line."""
        return wait_until(
            lambda: self.ask("GET", who, f"activations/{id_}", {200, 404}),
            lambda record: "logs" in record and len(record["logs"]) == lines,
            what=f"a record with {lines} lines",
        )


class RestartedEntities(Entities):
    """The same, by a server that stops and starts again now and then."""

    @rule(one_in_eight=st.integers(0, 7))
    def restart(self, one_in_eight):
        if one_in_eight == 0:
            self.server.stop()
            self.server.start()
            for client in self.clients:
                client.base_url = f"{self.server.url}/api/v1/namespaces/"


def drive(machine, server, **how):
    machine.server = server
    run_state_machine_as_test(machine, settings=settings(**how))


def test_entities_behave_as_their_model(server):
    drive(Entities, server, max_examples=12, stateful_step_count=40)


@pytest.mark.long
def test_entities_behave_as_their_model_for_long(server):
    drive(Entities, server, max_examples=200, stateful_step_count=80, derandomize=False)


@pytest.mark.long
def test_entities_outlive_restarts(server):
    drive(RestartedEntities, server, max_examples=30, stateful_step_count=60, derandomize=False)
