"""Returns the URL of an action or a trigger."""

import os

EXTENSIONS = (".json", ".text", ".html", ".http")


def main(args):
    host, namespace = os.environ["__OW_API_HOST"], os.environ["__OW_NAMESPACE"]
    path, extension = args.get("path") or "", args.get("ext")
    trigger, web = args.get("trigger") is True, args.get("web") is True
    if web and trigger:
        return {"error": "triggers are not allowed for web actions."}
    if web and extension and extension not in EXTENSIONS:
        return {"error": 'extension for web action must be one of [".json", ".text", ".html", ".http"].'}
    if trigger and "/" in path:
        return {"error": "triggers are not allowed in packages."}
    if web:
        base = f"{host}/api/v1/web/{namespace}"
        path = path if "/" in path or not path else f"default/{path}"
        path = path and path + (extension or ".json")
    else:
        base = f"{host}/api/v1/namespaces/{namespace}/{'triggers' if trigger else 'actions'}"
    return {"url": f"{base}/{path}" if path else base}
