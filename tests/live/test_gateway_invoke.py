"""Invocation through the gateway: who gets which status, body and header."""

import asyncio

from gateway_client import PUT, gateway


def test_a_blocking_call_answers_with_the_whole_record():
    async def check():
        async with gateway() as g:
            answer = await g.post("/api/v1/namespaces/_/actions/echo?blocking=true", json={"a": 1})
            assert answer.status_code == 200
            record = answer.json()
            assert record["response"] == {"status": "success", "success": True, "result": {"a": 1}, "size": 7}
            assert record["activationId"] == answer.headers["x-openwhisk-activation-id"] == g.platform.calls[0].id
            assert {**record, "annotations": [], "activationId": "", "response": {}, "start": 0, "end": 0} == {
                "namespace": "guest", "name": "echo", "version": "0.0.1", "subject": "guest", "activationId": "",
                "start": 0, "end": 0, "duration": 1, "publish": False, "logs": [], "annotations": [], "response": {},
            }  # fmt: skip
            stored = await g.get(f"/api/v1/namespaces/_/activations/{record['activationId']}")
            assert stored.json() == record

    asyncio.run(check())


def test_result_asks_for_the_bare_result():
    async def check():
        async with gateway() as g:
            answer = await g.post("/api/v1/namespaces/guest/actions/echo?blocking=true&result=true", json={"a": 1})
            assert (answer.status_code, answer.json()) == (200, {"a": 1})

    asyncio.run(check())


def test_without_blocking_the_id_comes_back_once_the_call_is_durable():
    async def check():
        async with gateway() as g:
            g.platform.hold = True
            answer = await g.post("/api/v1/namespaces/_/actions/echo", json={})
            assert answer.status_code == 202
            assert answer.json() == {"activationId": g.platform.calls[0].id}
            assert [accepted.id for accepted in await g.store.unfinished()] == [g.platform.calls[0].id]

    asyncio.run(check())


def test_an_action_lives_from_put_to_delete():
    async def check():
        async with gateway() as g:
            path = "/api/v1/namespaces/_/actions/new"
            created = await g.put(path, json=PUT)
            assert created.status_code == 200
            assert (await g.get(path)).json() == created.json()
            assert (await g.delete(path)).json() == created.json()
            assert (await g.get(path)).status_code == 404

    asyncio.run(check())
