"""Resolution of names: access, packages, bindings, inherited parameters, and the flow that runs the action."""

import asyncio

import pytest
from msgspec.structs import replace

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.entities import Entities
from aliquot.live.catalogue.resolving import full_name, resolve_action
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import Action, Exec, FullName, Package, Pair, Rule, Trigger
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore

CODE = Exec("python:3.11", "x")
UTILS = Package(namespace="lib", name="utils", version="0.0.1", publish=True, parameters=(Pair("a", 1), Pair("b", 1)))
ECHO = Action("lib", "utils/echo", "0.0.1", CODE, revision="r", parameters=(Pair("c", 1),))
BOUND = Package("me", "mine", "0.0.1", FullName("lib", "utils"), parameters=(Pair("b", 2), Pair("c", 2)))


@pytest.fixture
def entities():
    entities = Entities()
    for entity in (UTILS, ECHO, BOUND, Action("me", "own", "0.0.1", CODE), Action("lib", "hidden", "0.0.1", CODE)):
        entities.add(entity)
    return entities


def resolved(entities, name, caller="me"):
    return resolve_action(entities, caller, full_name(caller, name))


def values(found):
    return {pair.key: pair.value for pair in found.action.parameters}


def test_an_action_of_ones_own_is_reached_as_it_is(entities):
    found = resolved(entities, "own")
    assert (found.tenant, found.function, found.binding) == ("me", "own", None)


def test_a_published_one_runs_in_the_callers_flow_with_its_packages_parameters_beneath_its_own(entities):
    found = resolved(entities, "/lib/utils/echo")
    assert (found.tenant, found.function, found.action.namespace) == ("me", "/lib/utils/echo", "lib")
    assert values(found) == {"a": 1, "b": 1, "c": 1}


def test_a_bindings_parameters_lie_between_the_packages_and_the_actions(entities):
    found = resolved(entities, "mine/echo")
    assert (found.function, found.binding) == ("mine/echo", FullName("me", "mine"))
    assert values(found) == {"a": 1, "b": 2, "c": 1}
    assert found.action.full_name == FullName("lib", "utils/echo")


@pytest.mark.parametrize("name", ["/lib/hidden", "/lib/nowhere/echo", "/lib/secret/echo", "/nobody/p/a"])
def test_what_another_has_not_published_is_refused_whether_it_exists_or_not(entities, name):
    entities.add(Package("lib", "secret", "0.0.1"))
    entities.add(replace(ECHO, name="secret/echo"))
    with pytest.raises(AccessDeniedError):
        resolved(entities, name)


@pytest.mark.parametrize("name", ["nothing", "nothing/echo", "mine/nothing", "/lib/utils/nothing"])
def test_what_is_not_there_is_missing(entities, name):
    with pytest.raises(NotFoundError):
        resolved(entities, name)


def test_a_binding_to_what_is_no_longer_published_is_refused(entities):
    entities.add(replace(UTILS, publish=False))
    with pytest.raises(AccessDeniedError):
        resolved(entities, "mine/echo")


def test_bindings_that_came_to_point_at_each_other_lead_nowhere(entities):
    entities.add(Package("me", "other", "0.0.1", FullName("me", "mine")))
    entities.add(Package("me", "mine", "0.0.1", FullName("me", "other")))
    with pytest.raises(NotFoundError):
        resolved(entities, "mine/echo")


def test_only_an_inherited_environment_makes_another_sandbox(entities):
    assert resolved(entities, "mine/echo").action.revision == "r"
    entities.add(replace(BOUND, parameters=(Pair("TOKEN", "x", init=True),)))
    assert resolved(entities, "mine/echo").action.revision != "r"


def test_a_rule_is_tied_to_the_very_trigger_it_was_made_for(entities):
    trigger = Trigger("me", "t", "0.0.1", identity="1")
    rule = Rule("me", "r", "0.0.1", FullName("me", "t"), FullName("me", "own"), tied="1")
    entities.add(trigger)
    entities.add(rule)
    assert entities.rules_of(trigger) == [rule]
    assert entities.is_active(rule)
    entities.add(replace(trigger, identity="2"))
    assert not entities.is_active(rule)
    entities.remove("me", "t")
    assert not entities.is_active(rule)


async def catalogue_with(*entities):
    store = MemoryStore()
    platform = FakePlatform(store)
    catalogue = Catalogue(store, platform)
    await catalogue.create_namespace("me")
    await catalogue.create_namespace("lib")
    for entity in entities:
        async with catalogue.writing(entity.namespace):
            await catalogue.put(entity)
    return catalogue, platform


def test_the_platform_hears_of_a_borrowed_function_when_it_is_reached_and_when_it_is_gone():
    async def scenario():
        catalogue, platform = await catalogue_with(UTILS, ECHO, BOUND)
        assert set(platform.deployed) == {("lib", "utils/echo")}
        catalogue.resolve("me", FullName("me", "mine/echo"))
        catalogue.resolve("me", FullName("lib", "utils/echo"))
        borrowed = {("me", "mine/echo"), ("me", "/lib/utils/echo")}
        assert set(platform.deployed) == {("lib", "utils/echo")} | borrowed
        async with catalogue.writing("lib"):
            newer = await catalogue.put(ECHO)
        assert {platform.deployed[key].revision for key in borrowed} == {newer.revision}
        async with catalogue.writing("lib"):
            await catalogue.put(replace(UTILS, publish=False))
        assert set(platform.deployed) == {("lib", "utils/echo")}

    asyncio.run(scenario())


def test_a_deleted_namespace_takes_its_published_functions_from_those_who_borrowed_them():
    async def scenario():
        catalogue, platform = await catalogue_with(UTILS, ECHO)
        catalogue.resolve("me", FullName("lib", "utils/echo"))
        await catalogue.delete_namespace("lib")
        assert platform.deployed == {}
        assert catalogue.entities.everything("lib") == []

    asyncio.run(scenario())
