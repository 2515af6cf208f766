"""The npm client's verbs on packages, bindings and namespaces."""

import pytest
from npm_client import ClientError, needs_node

pytestmark = needs_node

ECHO = {"action": "def main(args): return args", "kind": "python:3.11"}


def parameters(**values):
    return [{"key": key, "value": value} for key, value in values.items()]


@pytest.fixture
def box(client):
    """A package with an action and a feed."""
    client.packages.create({"name": "box", "package": {"parameters": parameters(a="package", b="package")}})
    client.actions.create({"name": "box/echo", **ECHO, "params": {"b": "action", "c": "action"}})
    client.actions.create({"name": "box/source", **ECHO, "annotations": {"feed": True}})
    yield "box"
    client.actions.delete(["box/echo", "box/source"])
    client.packages.delete("box")


def test_a_package_is_created_read_changed_and_deleted(client):
    made = client.packages.create({"name": "plain", "annotations": {"colour": "red"}})
    assert made.pop("updated") > 1_600_000_000_000
    made.pop("actions", None)
    made.pop("feeds", None)
    assert made == {
        "namespace": "guest",
        "name": "plain",
        "version": "0.0.1",
        "publish": False,
        "annotations": [{"key": "colour", "value": "red"}],
        "parameters": [],
        "binding": {},
    }
    got = client.packages.get("plain")
    assert (got["actions"], got["feeds"], got["binding"]) == ([], [], {})
    with pytest.raises(ClientError) as error:
        client.packages.create({"packageName": "plain"})
    assert (error.value.status, error.value.text) == (409, "resource already exists")
    changed = client.packages.update({"name": "plain", "package": {"publish": True, "parameters": parameters(x=1)}})
    assert (changed["version"], changed["publish"], changed["parameters"]) == ("0.0.2", True, parameters(x=1))
    assert client.packages.update({"name": "plain"})["parameters"] == parameters(x=1)
    assert client.packages.delete({"packageName": "plain"})["name"] == "plain"
    with pytest.raises(ClientError) as error:
        client.packages.get("plain")
    assert error.value.status == 404


def test_packages_are_listed_and_counted(client):
    for name in ("one", "two", "three"):
        client.packages.create({"name": name})
    listed = client.packages.list()
    assert [item["name"] for item in listed] == ["three", "two", "one"]
    assert all(item["binding"] is False for item in listed)
    assert [item["name"] for item in client.packages.list({"skip": 1, "limit": 1})] == ["two"]
    assert client.packages.list({"count": True}) == {"packages": 3}
    client.packages.delete(["one", "two", "three"])


def test_a_package_shows_its_actions_and_feeds(client, box):
    got = client.packages.get(box)
    assert [item["name"] for item in got["actions"]] == ["echo"]
    assert [item["name"] for item in got["feeds"]] == ["source"]
    assert {"name", "version", "annotations"} <= set(got["actions"][0])
    assert {item["namespace"] for item in client.actions.list()} == {"guest/box"}


def test_parameters_are_inherited_and_overridden(client, box):
    asked = {"name": "box/echo", "blocking": True, "result": True, "params": {"c": "payload"}}
    assert client.actions.invoke(asked) == {"a": "package", "b": "action", "c": "payload"}
    shown = {entry["key"]: entry["value"] for entry in client.actions.get("box/echo")["parameters"]}
    assert shown == {"a": "package", "b": "action", "c": "action"}


def test_a_package_with_contents_is_kept(client, box):
    with pytest.raises(ClientError) as error:
        client.packages.delete(box)
    assert error.value.status == 409
    text = "Package not empty (contains 2 entities). Set force param or delete package contents."
    assert error.value.text == text


def test_a_binding_stands_for_its_package(client, stranger, box):
    client.packages.update({"name": box, "package": {"publish": True}})
    binding = {"namespace": "guest", "name": box}
    made = stranger.packages.create(
        {"name": "bound", "package": {"binding": binding, "parameters": parameters(a="binding")}}
    )
    assert made["binding"] == binding
    assert {"key": "binding", "value": binding} in made["annotations"]
    (listed,) = stranger.packages.list()
    assert listed["binding"] == binding
    got = stranger.packages.get("bound")
    assert [item["name"] for item in got["actions"]] == ["echo"]
    record = stranger.actions.invoke({"name": "bound/echo", "blocking": True, "params": {"c": "payload"}})
    assert record["response"]["result"] == {"a": "binding", "b": "action", "c": "payload"}
    notes = {entry["key"]: entry["value"] for entry in record["annotations"]}
    assert notes["path"] == "guest/box/echo"
    assert "binding" in notes
    assert record["namespace"] == "stranger"
    with pytest.raises(ClientError) as error:
        stranger.actions.create({"name": "bound/more", **ECHO})
    assert (error.value.status, error.value.text) == (400, "Operation not permitted on package binding.")
    stranger.packages.delete("bound")


def test_a_binding_needs_a_package(client, box):
    with pytest.raises(ClientError) as error:
        client.packages.create({"name": "loose", "package": {"binding": {"namespace": "_", "name": "nothing"}}})
    assert (error.value.status, error.value.text) == (400, "Binding references a package that does not exist.")
    client.packages.create({"name": "bound", "package": {"binding": {"namespace": "_", "name": box}}})
    with pytest.raises(ClientError) as error:
        client.packages.create({"name": "twice", "package": {"binding": {"namespace": "_", "name": "bound"}}})
    assert error.value.status == 400
    with pytest.raises(ClientError) as error:
        client.packages.update({"name": box, "package": {"binding": {"namespace": "_", "name": "bound"}}})
    assert error.value.status in {400, 409}
    client.packages.delete("bound")


def test_a_published_package_is_everyones_to_use_and_its_owners_to_change(client, stranger, box):
    with pytest.raises(ClientError) as error:
        stranger.packages.get(f"/guest/{box}")
    assert error.value.status == 403
    with pytest.raises(ClientError) as error:
        stranger.actions.invoke({"name": f"/guest/{box}/echo", "blocking": True})
    assert error.value.status == 403
    assert stranger.packages.list({"namespace": "guest"}) == []
    client.packages.update({"name": box, "package": {"publish": True}})
    assert [item["name"] for item in stranger.packages.list({"namespace": "guest"})] == [box]
    assert stranger.packages.get(f"/guest/{box}")["name"] == box
    asked = {"name": f"/guest/{box}/echo", "blocking": True, "result": True}
    assert stranger.actions.invoke(asked) == {"a": "package", "b": "action", "c": "action"}
    for resource, verb, name in (("packages", "delete", box), ("actions", "delete", f"{box}/echo")):
        with pytest.raises(ClientError) as error:
            getattr(getattr(stranger, resource), verb)(f"/guest/{name}")
        assert error.value.status == 403


def test_every_namespace_has_the_systems_packages(client):
    names = {item["name"] for item in client.packages.list({"namespace": "whisk.system"})}
    assert {"utils", "alarms"} <= names
    asked = {"name": "/whisk.system/utils/echo", "blocking": True, "result": True, "params": {"x": 1}}
    assert client.actions.invoke(asked) == {"x": 1}
    asked = {"name": "/whisk.system/utils/split", "blocking": True, "result": True}
    result = client.actions.invoke({**asked, "params": {"payload": "a,b", "separator": ","}})
    assert result["lines"] == ["a", "b"]
    asked = {"name": "/whisk.system/utils/sort", "blocking": True, "result": True}
    assert client.actions.invoke({**asked, "params": {"lines": ["b", "a"]}})["lines"] == ["a", "b"]


def test_a_namespace_is_the_callers_own(client, stranger, box):
    assert client.namespaces.list() == ["guest"]
    assert stranger.namespaces.list() == ["stranger"]
    got = client.namespaces.get({"namespace": "guest"})
    assert set(got) == {"actions", "packages", "triggers", "rules"}
    assert [item["name"] for item in got["packages"]] == [box]
    assert {item["name"] for item in got["actions"]} == {"echo", "source"}
    assert (got["triggers"], got["rules"]) == ([], [])
