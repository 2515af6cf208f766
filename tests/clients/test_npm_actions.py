"""The npm client's verbs on actions."""

import pytest
from archives import zipped
from npm_client import ClientError, buffer, needs_node

pytestmark = needs_node

HELLO = "function main(params) { return { hello: params.name || 'nobody' } }"
ECHO = "def main(args): return args"


def annotations(entity):
    return {entry["key"]: entry["value"] for entry in entity["annotations"]}


@pytest.fixture
def action(client):
    client.actions.create({"name": "hello", "action": HELLO})
    yield "hello"
    client.actions.delete("hello")


def test_create_answers_with_the_whole_action(client):
    made = client.actions.create({"name": "whole", "action": HELLO})
    updated = made.pop("updated")
    assert annotations(made) == {"exec": "nodejs:20", "provide-api-key": False}
    del made["annotations"]
    limits = made.pop("limits")
    assert made == {
        "namespace": "guest",
        "name": "whole",
        "version": "0.0.1",
        "publish": False,
        "parameters": [],
        "exec": {"kind": "nodejs:20", "code": HELLO, "binary": False},
    }
    assert {"timeout": 60000, "memory": 256, "logs": 10, "concurrency": 1}.items() <= limits.items()
    assert updated > 1_600_000_000_000
    assert client.actions.delete({"name": "whole"})["name"] == "whole"
    with pytest.raises(ClientError) as error:
        client.actions.get("whole")
    assert (error.value.status, error.value.text) == (404, "The requested resource does not exist.")


def test_what_exists_is_not_created_again(client, action):
    with pytest.raises(ClientError) as error:
        client.actions.create({"name": action, "action": HELLO})
    assert (error.value.status, error.value.text) == (409, "resource already exists")
    assert error.value.name == "OpenWhiskError"
    assert 'Returned HTTP 409 (Conflict) --> "resource already exists"' in str(error.value)


def test_update_keeps_what_it_does_not_name(client, action):
    changed = client.actions.update({"name": action, "params": {"name": "you"}, "limits": {"timeout": 5000}})
    assert changed["version"] == "0.0.2"
    assert changed["parameters"] == [{"key": "name", "value": "you"}]
    assert (changed["limits"]["timeout"], changed["limits"]["memory"]) == (5000, 256)
    assert changed["exec"]["code"] == HELLO
    assert client.actions.invoke({"name": action, "blocking": True, "result": True}) == {"hello": "you"}
    again = client.actions.update({"name": action, "params": {"other": 1}, "limits": {"memory": 512}})
    assert again["parameters"] == [{"key": "other", "value": 1}]
    assert (again["limits"]["timeout"], again["limits"]["memory"]) == (5000, 512)


def test_annotations_merge_and_can_be_taken_away(client, action):
    client.actions.update({"name": action, "annotations": {"colour": "red", "shape": "round"}})
    changed = client.actions.update({"name": action, "annotations": {"colour": "blue"}})
    assert annotations(changed) == {
        "exec": "nodejs:20",
        "provide-api-key": False,
        "colour": "blue",
        "shape": "round",
    }
    body = {"exec": {"kind": "nodejs:default", "code": HELLO}, "delAnnotations": ["shape"]}
    changed = client.actions.update({"name": action, "action": body})
    assert annotations(changed) == {"exec": "nodejs:20", "provide-api-key": False, "colour": "blue"}


def test_a_version_may_be_given(client):
    assert client.actions.create({"name": "versioned", "action": HELLO, "version": "1.2.3"})["version"] == "1.2.3"
    assert client.actions.update({"name": "versioned", "action": HELLO})["version"] == "1.2.4"
    client.actions.delete("versioned")


def test_get_leaves_the_code_out_when_asked(client, action):
    assert client.actions.get(action)["exec"] == {"kind": "nodejs:20", "code": HELLO, "binary": False}
    assert client.actions.get({"name": action, "code": False})["exec"] == {"kind": "nodejs:20", "binary": False}
    assert client.actions.get({"actionName": f"/guest/{action}"})["name"] == action


def test_lists_are_paged_and_counted_newest_first(client):
    names = ["one", "two", "three"]
    for name in names:
        client.actions.create({"name": name, "action": HELLO})
    listed = client.actions.list()
    assert [item["name"] for item in listed] == names[::-1]
    for item in listed:
        assert {"namespace", "name", "version", "publish", "annotations", "limits", "exec", "updated"} == set(item)
        assert item["exec"] == {"binary": False}
    assert [item["name"] for item in client.actions.list({"limit": 1, "skip": 1})] == ["two"]
    assert client.actions.list({"count": True}) == {"actions": 3}
    with pytest.raises(ClientError) as error:
        client.actions.list({"limit": 201})
    assert error.value.status == 400
    deleted = client.actions.delete([{"name": name} for name in names])
    assert [item["name"] for item in deleted] == names
    assert client.actions.list() == []


def test_invoke_has_three_ways_to_answer(client, action):
    started = client.actions.invoke({"name": action})
    assert set(started) == {"activationId"}
    assert len(started["activationId"]) == 32
    record = client.actions.invoke({"name": action, "blocking": True, "params": {"name": "Ann"}})
    assert record["response"]["result"] == {"hello": "Ann"}
    assert (record["response"]["status"], record["response"]["success"]) == ("success", True)
    assert "statusCode" not in record["response"]
    assert (record["namespace"], record["name"], record["version"]) == ("guest", action, "0.0.1")
    assert record["logs"] == []
    assert record["end"] - record["start"] == record["duration"]
    assert annotations(record)["path"] == f"guest/{action}"
    assert annotations(record)["kind"] == "nodejs:20"
    asked = {"actionName": action, "blocking": True, "result": True, "params": {"name": "Bob"}}
    assert client.actions.invoke(asked) == {"hello": "Bob"}


def test_several_are_invoked_at_once(client, action):
    started = client.actions.invoke([{"name": action}, {"name": action}])
    assert len({answer["activationId"] for answer in started}) == 2


def test_an_application_error_is_a_502_with_its_record(client):
    client.actions.create({"name": "no", "action": "function main() { return { error: 'not today', more: 1 } }"})
    with pytest.raises(ClientError) as error:
        client.actions.invoke({"name": "no", "blocking": True})
    assert error.value.status == 502
    assert error.value.body["response"]["status"] == "application error"
    assert error.value.body["response"]["result"] == {"error": "not today"}
    assert '--> "not today"' in str(error.value)
    client.actions.delete("no")


def test_a_developer_error_is_a_502_too(client):
    client.actions.create({"name": "broken", "action": "function nope() {"})
    with pytest.raises(ClientError) as error:
        client.actions.invoke({"name": "broken", "blocking": True})
    assert error.value.status == 502
    assert error.value.body["response"]["status"] == "action developer error"
    client.actions.delete("broken")


def test_a_python_zip_runs(client):
    code = zipped(__main___dot_py="import near\ndef main(args): return {'sum': near.add(args)}", near_dot_py=PART)
    made = client.actions.create({"name": "pyzip", "action": buffer(code), "kind": "python:default"})
    assert (made["exec"]["kind"], made["exec"]["binary"]) == ("python:3.11", True)
    asked = {"name": "pyzip", "blocking": True, "result": True, "params": {"a": 1, "b": 2}}
    assert client.actions.invoke(asked) == {"sum": 3}
    client.actions.delete("pyzip")


PART = "def add(args): return args['a'] + args['b']\n"


def test_a_node_package_runs(client):
    code = zipped(
        package_dot_json='{"name": "part", "main": "start.js"}',
        start_dot_js="exports.main = args => Promise.resolve({ sum: require('./near').add(args) })",
        near_dot_js="exports.add = args => args.a + args.b",
    )
    made = client.actions.create({"name": "nodezip", "action": buffer(code)})
    assert (made["exec"]["kind"], made["exec"]["binary"]) == ("nodejs:20", True)
    asked = {"name": "nodezip", "blocking": True, "result": True, "params": {"a": 1, "b": 2}}
    assert client.actions.invoke(asked) == {"sum": 3}
    client.actions.delete("nodezip")


def test_the_old_name_of_pythons_kind_is_known(client):
    made = client.actions.create({"name": "old", "action": ECHO, "kind": "python:3", "exec": {"main": "main"}})
    assert made["exec"] == {"kind": "python:3.11", "code": ECHO, "binary": False, "main": "main"}
    assert client.actions.invoke({"name": "old", "blocking": True, "result": True, "params": {"x": [1]}}) == {"x": [1]}
    client.actions.delete("old")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"kind": "cobol:1"}, "The specified runtime 'cobol:1' is not supported by this platform. Valid values are: "),
        ({"limits": {"timeout": 10}}, "duration 10 milliseconds below allowed threshold of 100 milliseconds"),
        ({"annotations": {"gpu-share": "lots"}}, "gpu-share"),
        ({"name": "/guest/nowhere/refused"}, "The requested resource does not exist."),
        ({"name": "a/b/c/../d"}, "Invalid resource identifier from options."),
    ],
)
def test_what_cannot_be_is_refused_in_words(client, body, text):
    with pytest.raises(ClientError) as error:
        client.actions.create({"name": "refused", "action": HELLO, **body})
    assert text in str(error.value)


def test_names_may_have_blanks_and_packages(client):
    client.packages.create({"name": "box"})
    for name in ("two words", "box/inner"):
        made = client.actions.create({"name": name, "action": HELLO})
        assert made["name"] == name.rpartition("/")[2]
        assert client.actions.invoke({"name": name, "blocking": True, "result": True}) == {"hello": "nobody"}
    full = {"name": "/guest/box/inner", "blocking": True, "params": {"name": "full"}}
    record = client.actions.invoke(full)
    assert record["response"]["result"] == {"hello": "full"}
    assert annotations(record)["path"] == "guest/box/inner"
    assert client.actions.get("box/inner")["namespace"] == "guest/box"
    client.actions.delete(["two words", "box/inner"])
    client.packages.delete("box")


def test_a_sequence_hands_results_on(client):
    client.actions.create({"name": "double", "action": "def main(a): return {'n': a['n'] * 2}", "kind": "python:3.11"})
    made = client.actions.create({"name": "thrice", "sequence": ["/_/double", "/guest/double", "/_/double"]})
    assert made["exec"]["kind"] == "sequence"
    assert made["exec"]["components"] == ["/guest/double"] * 3
    assert made["parameters"] == [{"key": "_actions", "value": ["/guest/double"] * 3}]
    assert annotations(made)["exec"] == "sequence"
    record = client.actions.invoke({"name": "thrice", "blocking": True, "params": {"n": 1}})
    assert record["response"]["result"] == {"n": 8}
    assert len(record["logs"]) == 3
    assert annotations(record)["kind"] == "sequence"
    assert annotations(record)["topmost"] is True
    for id_ in record["logs"]:
        part = client.activations.get(id_)
        assert part["cause"] == record["activationId"]
        assert annotations(part)["causedBy"] == "sequence"
    assert client.actions.invoke({"name": "thrice", "blocking": True, "result": True, "params": {"n": 2}}) == {"n": 16}
    client.actions.delete(["thrice", "double"])


@pytest.mark.parametrize(
    ("components", "text"),
    [
        (["/_/missing"], "Sequence component does not exist."),
        (["/_/selfish"], "Sequence may not refer to itself."),
    ],
)
def test_a_sequence_of_nothing_is_refused(client, components, text):
    with pytest.raises(ClientError) as error:
        client.actions.create({"name": "selfish", "sequence": components})
    assert (error.value.status, error.value.text) == (400, text)


def test_a_sequence_may_not_come_to_hold_itself(client, action):
    client.actions.create({"name": "loop", "sequence": [f"/_/{action}"]})
    with pytest.raises(ClientError) as error:
        client.actions.update({"name": "loop", "sequence": ["/_/loop"]})
    assert (error.value.status, error.value.text) == (400, "Sequence may not refer to itself.")
    client.actions.delete("loop")


def test_final_parameters_cannot_be_given(client):
    client.actions.create({"name": "firm", "action": HELLO, "params": {"name": "set"}, "annotations": {"final": True}})
    with pytest.raises(ClientError) as error:
        client.actions.invoke({"name": "firm", "blocking": True, "params": {"name": "other"}})
    assert error.value.status == 400
    assert error.value.text == "Request defines parameters that are not allowed (e.g., reserved properties)."
    client.actions.delete("firm")


def test_a_stranger_reaches_none_of_it(client, stranger, action):
    for verb, options in (
        ("get", {"name": f"/guest/{action}"}),
        ("invoke", {"name": f"/guest/{action}", "blocking": True}),
        ("update", {"name": f"/guest/{action}", "action": HELLO}),
        ("delete", {"name": f"/guest/{action}"}),
        ("list", {"namespace": "guest"}),
    ):
        with pytest.raises(ClientError) as error:
            getattr(stranger.actions, verb)(options)
        assert error.value.status == 403, verb
    assert client.actions.get(action)["version"] == "0.0.1"


def test_a_workflow_is_created_and_started_as_any_action(client):
    definition = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "ResultPath": "$.seen", "Result": 1, "End": true}}}'
    client.actions.create({"name": "flow", "action": definition, "kind": "workflow"})
    asked = {"name": "flow", "blocking": True, "result": True, "params": {"n": 2}}
    assert client.actions.invoke(asked) == {"n": 2, "seen": 1}
    client.actions.delete("flow")
