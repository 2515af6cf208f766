"""Documents that clients send to the API gateway, and where they send them."""

MANAGE = "/api/v1/web/whisk.system/apimgmt"
METHODS = {"createApi": "POST", "getApi": "GET", "deleteApi": "DELETE"}
ECHO = "def main(args):\n    return {'args': args}"
WEB = [{"key": "web-export", "value": True}]


def apidoc(action="echo", base="/club", path="/books", verb="GET", **more):
    """Return a document as today's npm client sends it."""
    name = action.rpartition("/")[2] if action.startswith("/") else action
    said = {"name": name, "namespace": "_", "backendMethod": "GET", "authkey": "uuid:verysecret"}
    said |= {"backendUrl": f"http://host/api/v1/web/_/default/{name}.http"} | more.pop("said", {})
    doc = {"namespace": "_", "gatewayBasePath": base, "gatewayPath": path, "gatewayMethod": verb}
    return {"apidoc": doc | {"id": f"API:_:{base}", "action": said} | more}


def swagger(base="/", host="host", key="s3cret"):
    """Return a document as serverless-openwhisk sends it."""
    target = f"https://{host}/api/v1/web/guest/default/echo.json"
    header = {"set": "message.headers.X-Require-Whisk-Auth", "value": key}
    case = {"operations": ["get-/hi/{name}"]}
    case["execute"] = [
        {"set-variable": {"actions": [header]}},
        {"invoke": {"target-url": f"{target}$(request.path)", "verb": "keep"}},
    ]
    operation = {"operationId": "get-/hi/{name}", "responses": {"200": {"description": "A successful response"}}}
    operation["x-openwhisk"] = {"action": "echo", "namespace": "guest", "package": "default", "url": target}
    operation["parameters"] = [{"name": "name", "in": "path", "required": True, "type": "string"}]
    return {
        "swagger": "2.0",
        "basePath": base,
        "info": {"title": "service", "version": "1.0"},
        "paths": {"/hi/{name}": {"get": operation}},
        "x-ibm-configuration": {
            "cors": {"enabled": True},
            "assembly": {"execute": [{"operation-switch": {"case": [case]}}]},
        },
    }
