"""Packages, bindings and their actions over HTTP, with exact responses."""

import pytest
from gateway_client import ACTIONS, ELSEWHERE, EXISTS, GONE, PACKAGES, PUT, gateway, on_a_loop

LIB = "/api/v1/namespaces/lib"


def pairs(items):
    return {item["key"]: item["value"] for item in items}


def forbidden(name):
    return 403, f"The supplied authentication is not authorized to access '{name}'."


async def with_library(g):
    """Return a client of a namespace that publishes `utils` and does not publish `secret`, each with an `echo`."""
    lib = await g.beside("lib")
    parameters = [{"key": "a", "value": 1}, {"key": "b", "value": 1}]
    for name, publish in (("utils", True), ("secret", False)):
        await lib.put(f"{PACKAGES}/{name}", json={"publish": publish, "parameters": parameters})
        await lib.put(f"{ACTIONS}/{name}/echo", json={**PUT, "parameters": [{"key": "c", "value": 1}]})
    return lib


@on_a_loop
async def test_a_package_is_created_updated_read_and_deleted():
    async with gateway() as g:
        body = {"parameters": [{"key": "p", "value": 1}], "annotations": [{"key": "a", "value": 1}], "name": "x"}
        status, package = await g.say("PUT", f"{PACKAGES}/p", json=body)
        assert (status, package.pop("updated") > 0) == (200, True)
        assert package == {
            "namespace": "guest",
            "name": "p",
            "version": "0.0.1",
            "publish": False,
            "binding": {},
            "parameters": [{"key": "p", "value": 1}],
            "annotations": [{"key": "a", "value": 1}],
        }
        assert await g.say("PUT", f"{PACKAGES}/p", json={}) == EXISTS
        _, changed = await g.say("PUT", f"{PACKAGES}/p?overwrite=true", json={"publish": True})
        changed.pop("updated")
        assert changed == {**package, "version": "0.0.2", "publish": True}
        _, read = await g.say("GET", f"{PACKAGES}/p")
        read.pop("updated")
        assert read == {**changed, "actions": [], "feeds": []}
        status, gone = await g.say("DELETE", f"{PACKAGES}/p")
        assert (status, gone["name"]) == (200, "p")
        assert await g.say("DELETE", f"{PACKAGES}/p") == GONE
        assert await g.say("GET", f"{PACKAGES}/p") == (404, "The requested resource 'guest/p' does not exist.")


@on_a_loop
async def test_an_update_replaces_annotations_and_parameters_of_a_package():
    async with gateway() as g:
        some = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
        await g.put(f"{PACKAGES}/p", json={"annotations": some, "parameters": some})
        change = {"annotations": some[:1], "parameters": some[1:]}
        _, package = await g.say("PUT", f"{PACKAGES}/p?overwrite=true", json=change)
        assert (package["annotations"], package["parameters"]) == (some[:1], some[1:])


@on_a_loop
async def test_default_is_reserved_and_packages_have_no_post():
    async with gateway() as g:
        assert await g.say("PUT", f"{PACKAGES}/default", json={}) == (400, "Package name 'default' is reserved.")
        text = "HTTP method not allowed, supported methods: PUT, GET, DELETE"
        assert await g.say("POST", f"{PACKAGES}/p", json={}) == (405, text)


@on_a_loop
async def test_a_package_with_contents_is_deleted_only_by_force():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{ACTIONS}/p/one", json=PUT)
        text = "Package not empty (contains {}). Set force param or delete package contents."
        assert await g.say("DELETE", f"{PACKAGES}/p") == (409, text.format("1 entity"))
        await g.put(f"{ACTIONS}/p/two", json=PUT)
        assert await g.say("DELETE", f"{PACKAGES}/p?force=false") == (409, text.format("2 entities"))
        assert (await g.say("DELETE", f"{PACKAGES}/p?force=true"))[0] == 200
        assert (await g.say("GET", f"{PACKAGES}/p"))[0] == 404
        assert await g.say("GET", f"{ACTIONS}/p/one") == GONE
        assert set(g.platform.deployed) == {("guest", "echo")}
        assert [document.name for document in await g.store.scan("actions")] == ["echo"]


@on_a_loop
async def test_when_the_store_refuses_a_package_and_its_contents_both_stay():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{ACTIONS}/p/one", json=PUT)
        g.store.fail("the disk is full")
        assert await g.say("DELETE", f"{PACKAGES}/p?force=true") == (503, "the disk is full")
        assert (await g.say("GET", f"{ACTIONS}/p/one"))[0] == 200
        assert ("guest", "p/one") in g.platform.deployed


@on_a_loop
async def test_actions_can_be_in_packages_only():
    async with gateway() as g:
        assert await g.say("PUT", f"{ACTIONS}/p/one", json=PUT) == GONE
        assert await g.say("PUT", f"{ACTIONS}/echo/one", json=PUT) == ELSEWHERE
        await g.put(f"{PACKAGES}/p", json={"parameters": [{"key": "x", "value": 1}, {"key": "y", "value": 1}]})
        body = {**PUT, "parameters": [{"key": "y", "value": 2}]}
        status, action = await g.say("PUT", f"{ACTIONS}/p/one", json=body)
        assert (status, action["namespace"], action["name"]) == (200, "guest/p", "one")
        assert pairs(action["parameters"]) == {"y": 2}
        _, read = await g.say("GET", f"{ACTIONS}/p/one?code=false")
        assert pairs(read["parameters"]) == {"x": 1, "y": 2}
        assert "code" not in read["exec"]
        for verb in ("GET", "DELETE"):
            assert await g.say(verb, f"{ACTIONS}/p/two") == GONE
            assert await g.say(verb, f"{ACTIONS}/q/two") == GONE
            assert await g.say(verb, f"{ACTIONS}/echo/two") == ELSEWHERE
        _, package = await g.say("GET", f"{PACKAGES}/p")
        assert package["actions"] == [{"name": "one", "version": "0.0.1", "annotations": action["annotations"]}]
        assert (await g.say("DELETE", f"{ACTIONS}/p/one"))[0] == 200
        assert await g.say("GET", f"{ACTIONS}/p/one") == GONE


@on_a_loop
async def test_feeds_are_actions_with_the_annotation_feed():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        for name, value in (("action", None), ("feed", True), ("odd", False)):
            annotations = [] if value is None else [{"key": "feed", "value": value}]
            await g.put(f"{ACTIONS}/p/{name}", json={**PUT, "annotations": annotations})
        _, package = await g.say("GET", f"{PACKAGES}/p")
        assert [action["name"] for action in package["actions"]] == ["action"]
        assert [action["name"] for action in package["feeds"]] == ["feed", "odd"]


@on_a_loop
async def test_names_are_shared_by_all_collections():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        for path in (f"{PACKAGES}/echo", f"{ACTIONS}/p"):
            for verb in ("GET", "DELETE"):
                assert await g.say(verb, path) == ELSEWHERE
        assert await g.say("PUT", f"{PACKAGES}/echo", json={}) == ELSEWHERE
        assert await g.say("PUT", f"{ACTIONS}/p?overwrite=true", json=PUT) == ELSEWHERE
        assert await g.say("POST", f"{ACTIONS}/p") == ELSEWHERE


@on_a_loop
async def test_the_actions_of_one_package_are_listed_beneath_its_name():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{ACTIONS}/p/one", json=PUT)
        await g.put(f"{ACTIONS}/p/echo", json=PUT)
        listed = await g.say("GET", f"{ACTIONS}/p/")
        assert [(item["namespace"], item["name"]) for item in listed[1]] == [("guest/p", "echo"), ("guest/p", "one")]
        assert await g.say("GET", f"{ACTIONS}/p/?count=true") == (200, {"actions": 2})
        assert [item["name"] for item in (await g.say("GET", f"{ACTIONS}/p/?limit=1&skip=1"))[1]] == ["one"]
        every = [(item["namespace"], item["name"]) for item in (await g.say("GET", ACTIONS))[1]]
        assert every == [("guest/p", "echo"), ("guest/p", "one"), ("guest", "echo")]
        assert await g.say("GET", f"{ACTIONS}/q/") == GONE
        assert await g.say("POST", f"{ACTIONS}/p/") == GONE
        assert await g.say("GET", f"{ACTIONS}/echo/") == ELSEWHERE
        assert (await g.say("GET", f"{ACTIONS}/echo"))[1]["namespace"] == "guest"


@on_a_loop
async def test_packages_are_listed_newest_first_and_counted():
    async with gateway() as g:
        for name in ("one", "two", "three"):
            await g.put(f"{PACKAGES}/{name}", json={})
        await g.put(f"{PACKAGES}/bound", json={"binding": {"namespace": "_", "name": "one"}})
        _, listed = await g.say("GET", PACKAGES)
        assert [item["name"] for item in listed] == ["bound", "three", "two", "one"]
        bound = listed[0]
        assert isinstance(bound.pop("updated"), int)
        binding = {"namespace": "guest", "name": "one"}
        assert bound == {
            "namespace": "guest",
            "name": "bound",
            "version": "0.0.1",
            "publish": False,
            "binding": binding,
            "annotations": [{"key": "binding", "value": binding}],
        }
        assert listed[1]["binding"] is False
        assert await g.say("GET", f"{PACKAGES}?count=true&skip=1") == (200, {"packages": 3})
        text = (
            "The query parameter 'limit' was malformed:\nThe value '201' is not in the range of 0 to 200 for packages."
        )
        assert await g.say("GET", f"{PACKAGES}?limit=201") == (400, text)


@on_a_loop
async def test_a_binding_shows_its_package_with_overridden_parameters():
    async with gateway() as g:
        await with_library(g)
        binding = {"namespace": "lib", "name": "utils"}
        body = {"binding": binding, "parameters": [{"key": "b", "value": 2}], "annotations": [{"key": "binding"}]}
        _, bound = await g.say("PUT", f"{PACKAGES}/mine", json=body)
        assert (bound["binding"], pairs(bound["parameters"])) == (binding, {"b": 2})
        assert bound["annotations"] == [{"key": "binding", "value": binding}]
        _, read = await g.say("GET", f"{PACKAGES}/mine")
        assert (read["namespace"], read["name"], read["binding"]) == ("guest", "mine", binding)
        assert pairs(read["parameters"]) == {"a": 1, "b": 2}
        assert [action["name"] for action in read["actions"]] == ["echo"]
        _, action = await g.say("GET", f"{ACTIONS}/mine/echo")
        assert (action["namespace"], pairs(action["parameters"])) == ("lib/utils", {"a": 1, "b": 2, "c": 1})
        assert [item["namespace"] for item in (await g.say("GET", f"{ACTIONS}/mine/"))[1]] == ["lib/utils"]
        _, ran = await g.say("POST", f"{ACTIONS}/mine/echo?blocking=true&result=true", json={"c": 3})
        assert ran == {"a": 1, "b": 2, "c": 3}
        assert (await g.say("DELETE", f"{PACKAGES}/mine"))[0] == 200


@on_a_loop
async def test_nothing_is_written_through_a_binding():
    async with gateway() as g:
        await with_library(g)
        await g.put(f"{PACKAGES}/mine", json={"binding": {"namespace": "lib", "name": "utils"}})
        refused = (400, "Operation not permitted on package binding.")
        assert await g.say("PUT", f"{ACTIONS}/mine/new", json=PUT) == refused
        assert await g.say("PUT", f"{ACTIONS}/mine/echo?overwrite=true", json=PUT) == refused
        assert await g.say("DELETE", f"{ACTIONS}/mine/echo") == refused


@on_a_loop
async def test_an_invalid_binding_is_refused():
    async with gateway() as g:
        await with_library(g)
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{PACKAGES}/b", json={"binding": {"namespace": "_", "name": "p"}})

        async def bind(namespace, name, to="new"):
            binding = {"binding": {"namespace": namespace, "name": name}}
            return await g.say("PUT", f"{PACKAGES}/{to}?overwrite=true", json=binding)

        assert await bind("_", "none") == (400, "Binding references a package that does not exist.")
        assert await bind("guest", "echo") == (409, "Cannot bind to a resource that is not a package.")
        assert await bind("guest", "b") == (400, "Cannot bind to another package binding.")
        assert await bind("guest", "b", to="b") == (400, "Cannot bind to another package binding.")
        assert await bind("lib", "secret") == forbidden("lib/secret")
        assert await bind("lib", "none") == forbidden("lib/none")
        refused = (409, "Resource is a package and cannot be converted into a binding.")
        assert await bind("lib", "utils", to="p") == refused
        assert (await bind("lib", "utils", to="b"))[1]["binding"] == {"namespace": "lib", "name": "utils"}
        malformed = "The request content was malformed:\nbinding: it takes a namespace and the name of a package"
        assert await bind("lib", "a/b") == (400, malformed)


@on_a_loop
async def test_a_binding_keeps_its_package_when_an_update_names_none():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={})
        await g.put(f"{PACKAGES}/b", json={"binding": {"namespace": "_", "name": "p"}})
        update = {"binding": {}, "annotations": [{"key": "a", "value": 1}]}
        _, bound = await g.say("PUT", f"{PACKAGES}/b?overwrite=true", json=update)
        assert bound["binding"] == {"namespace": "guest", "name": "p"}
        assert [pair["key"] for pair in bound["annotations"]] == ["a", "binding"]


@on_a_loop
async def test_a_binding_of_an_unpublished_package_is_forbidden():
    async with gateway() as g:
        lib = await with_library(g)
        await g.put(f"{PACKAGES}/mine", json={"binding": {"namespace": "lib", "name": "utils"}})
        await lib.put(f"{PACKAGES}/utils?overwrite=true", json={"publish": False})
        assert await g.say("GET", f"{PACKAGES}/mine") == forbidden("guest/mine")
        assert await g.say("GET", f"{ACTIONS}/mine/echo") == forbidden("guest/mine")
        assert await g.say("POST", f"{ACTIONS}/mine/echo") == forbidden("guest/mine")
        assert (await g.say("DELETE", f"{PACKAGES}/mine"))[0] == 200


@on_a_loop
async def test_published_packages_of_others_can_be_read_and_invoked_but_not_written():
    async with gateway() as g:
        lib = await with_library(g)
        await lib.put(f"{PACKAGES}/bound", json={"publish": True, "binding": {"namespace": "_", "name": "utils"}})
        assert [item["name"] for item in (await g.say("GET", f"{LIB}/packages"))[1]] == ["utils"]
        assert await g.say("GET", f"{LIB}/packages?count=true") == (200, {"packages": 1})
        assert await g.say("GET", "/api/v1/namespaces/nobody/packages") == (200, [])
        _, package = await g.say("GET", f"{LIB}/packages/utils")
        assert [action["name"] for action in package["actions"]] == ["echo"]
        _, action = await g.say("GET", f"{LIB}/actions/utils/echo")
        assert pairs(action["parameters"]) == {"a": 1, "b": 1, "c": 1}
        assert [item["name"] for item in (await g.say("GET", f"{LIB}/actions/utils/"))[1]] == ["echo"]
        _, ran = await g.say("POST", f"{LIB}/actions/utils/echo?blocking=true&result=true", json={"a": 2})
        assert ran == {"a": 2, "b": 1, "c": 1}
        for name in ("secret", "bound", "none"):
            assert await g.say("GET", f"{LIB}/packages/{name}") == forbidden(f"lib/{name}")
            assert await g.say("GET", f"{LIB}/actions/{name}/echo") == forbidden(f"lib/{name}")
            assert await g.say("GET", f"{LIB}/actions/{name}/") == forbidden(f"lib/{name}")
            assert await g.say("POST", f"{LIB}/actions/{name}/echo") == forbidden(f"lib/{name}")
        for verb, path in (
            ("PUT", "packages/utils"),
            ("DELETE", "packages/utils"),
            ("PUT", "actions/utils/echo"),
            ("DELETE", "actions/utils/echo"),
        ):
            name = path.partition("/")[2]
            assert await g.say(verb, f"{LIB}/{path}?overwrite=true", json=PUT) == forbidden(f"lib/{name}")


@pytest.mark.parametrize("name", ["a b ", "", ".x", "a" * 257])
@on_a_loop
async def test_names_of_packages_are_checked(name):
    async with gateway() as g:
        status, text = await g.say("PUT", f"{PACKAGES}/{name}", json={})
        if not name:
            assert (status, text) == GONE
        elif len(name) > 256:
            assert (status, text) == (400, "Name segement longer than allowed: 257 > 256.")
        else:
            assert (status, text) == (400, "The name of the entity contains illegal characters.")


@pytest.mark.parametrize("verb", ["PUT", "POST", "DELETE", "PATCH"])
@on_a_loop
async def test_the_list_of_a_package_is_read_only(verb):
    async with gateway() as g:
        refused = (405, "HTTP method not allowed, supported methods: GET") if verb == "PATCH" else GONE
        assert await g.say(verb, f"{ACTIONS}/echo/", json=PUT) == refused
        assert await g.say(verb, f"{ACTIONS}/", json=PUT) == refused


@on_a_loop
async def test_inherited_parameters_may_be_final():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={"parameters": [{"key": "x", "value": 1}]})
        await g.put(f"{ACTIONS}/p/fixed", json={**PUT, "annotations": [{"key": "final", "value": True}]})
        refused = (400, "Request defines parameters that are not allowed (e.g., reserved properties).")
        assert await g.say("POST", f"{ACTIONS}/p/fixed?blocking=true", json={"x": 2}) == refused
        assert await g.say("POST", f"{ACTIONS}/p/fixed?blocking=true&result=true", json={"y": 2}) == (
            200,
            {"x": 1, "y": 2},
        )


@on_a_loop
async def test_a_change_of_a_packages_parameters_is_seen_by_the_next_call():
    async with gateway() as g:
        await g.put(f"{PACKAGES}/p", json={"parameters": [{"key": "x", "value": 1}]})
        await g.put(f"{ACTIONS}/p/a", json=PUT)
        for value in (1, 2):
            await g.put(f"{PACKAGES}/p?overwrite=true", json={"parameters": [{"key": "x", "value": value}]})
            assert await g.say("POST", f"{ACTIONS}/p/a?blocking=true&result=true") == (200, {"x": value})
