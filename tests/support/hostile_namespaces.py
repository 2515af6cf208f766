"""A namespace as an attacker or a victim uses it over HTTP, and what the victim has to hide."""

import httpx

MARK = "the-victims-secret"
PRIVATE = f"def main(args):\n    return {{'mark': '{MARK}'}}"
ECHO = "def main(args):\n    return {'args': args}"
MANAGE = "/api/v1/web/whisk.system/apimgmt"
METHODS = {"createApi": "POST", "getApi": "GET", "deleteApi": "DELETE"}


class Namespace:
    def __init__(self, server, name):
        self.server, self.name = server, name
        self.key = server.create_namespace(name)
        self.auth = tuple(self.key.split(":"))
        self.client = httpx.Client(base_url=f"{server.url}/api/v1/namespaces/_/", auth=self.auth, timeout=60)

    def put(self, path, **body):
        return self.client.put(path, params={"overwrite": "true"}, json=body)

    def action(self, name, code=ECHO, **more):
        self.put(f"actions/{name}", exec={"kind": "python:3.11", "code": code}, **more).raise_for_status()

    def result(self, name, **args):
        answer = self.client.post(f"actions/{name}", params={"blocking": "true", "result": "true"}, json=args)
        return answer.status_code, answer.json()

    def manage(self, name, body):
        return httpx.request(METHODS[name], f"{self.server.url}{MANAGE}/{name}", json=body, auth=self.auth)
