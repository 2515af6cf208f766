"""Shared parts of the commands for packages, triggers, rules and actions: writing, deleting, showing."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from aliquot.cli.console import say
from aliquot.cli.gateway import WORDS, GatewayClient, qualified
from aliquot.cli.results import clock, print_json, show, table, text
from aliquot.cli.values import as_list, read_pairs, read_params
from aliquot.sdk.calls import entity_path

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Shared: TypeAlias = Annotated[
    bool | None,
    typer.Option("--shared/--private", help="Allow or forbid other namespaces to use it.", show_default=False),
]
_MAX_SHOWN_LENGTH = 2000  # characters of one value


def full_name(name: str) -> str:
    """Return the name with its namespace, where `_` is that of the caller."""
    return name if name.startswith("/") else f"/_/{name}"


def body_of(param: list[str], param_file: str | None, annotation: list[str]) -> dict[str, Any]:
    """Return a body with the given parameters and annotations only. Others stay as they are."""
    body: dict[str, Any] = {}
    if param or param_file is not None:
        body["parameters"] = as_list(read_params(param, param_file))
    if annotation:
        body["annotations"] = as_list(read_pairs(annotation, "--annotation"))
    return body


def put(
    gateway: GatewayClient,
    collection: str,
    name: str,
    body: Mapping[str, Any],
    *,
    overwrite: bool,
) -> dict[str, Any]:
    query = {"overwrite": "true"} if overwrite else {}
    written: dict[str, Any] = gateway.send("PUT", entity_path(collection, name), name, query=query, body=body)
    return written


def print_written(entity: Mapping[str, Any], collection: str, *, as_json: bool) -> None:
    """Print that an entity was written."""
    if as_json:
        print_json(entity)
    else:
        say(f"{WORDS[collection]} {qualified(entity)} {entity['version']}")


def delete_entity(
    gateway: GatewayClient,
    collection: str,
    name: str,
    *,
    yes: bool,
    as_json: bool,
    query: Mapping[str, str | int] | None = None,
    with_it: str = "",
) -> None:
    gateway.entity(collection, name)  # fails before the question if there is none
    confirm(f"delete {name}{with_it}?", yes=yes, as_json=as_json)
    gateway.send("DELETE", entity_path(collection, name), name, query=query)
    say_deleted(name, as_json=as_json)


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    if not yes and not as_json:
        typer.confirm(question, abort=True)


def say_deleted(name: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted": name})
    else:
        say(f"deleted {name}")


def list_entities(entities: list[dict[str, Any]], collection: str, *, as_json: bool) -> None:
    """Print a table of entities: name, version, visibility and time of the last change."""
    word = WORDS[collection]
    if as_json:
        print_json(entities)
    elif not entities:
        say(f"there are no {collection} yet; make one with: aliquot {word} create")
    else:
        bound = any(one.get("binding") for one in entities)
        rows = table("", word, "version", "for", "updated", *(["is"] if bound else []))
        for one in entities:
            binding = one.get("binding") or {}
            of = f"{binding['namespace']}/{binding['name']}" if binding else ""
            public = "everyone" if one.get("publish") else "you"
            cells = (qualified(one), text(one.get("version")), public, clock(one.get("updated", 0)))
            rows.add_row(*cells, *([f"a binding to /{of}" if of else ""] if bound else []))
        show(rows)


def show_entity(entity: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(entity)
        return
    rows = table("", "", "")
    rows.show_header = False
    rows.columns[1].no_wrap = False
    for key, value in _rows(entity):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        rows.add_row(
            key, shown if len(shown) <= _MAX_SHOWN_LENGTH else f"{shown[:_MAX_SHOWN_LENGTH]}… ({len(shown)} characters)"
        )
    show(rows)


def _rows(entity: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in entity.items():
        if key in {"parameters", "annotations"}:
            rows += [(f"{key[:-1]} {pair['key']}", pair.get("value")) for pair in value]
        elif key in {"exec", "limits"}:
            rows += [(inner, part) for inner, part in value.items()]
        elif key == "updated":
            rows.append((key, clock(value)))
        elif value not in ({}, []):
            rows.append((key, value))
    return rows
