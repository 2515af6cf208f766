"""Web actions and API routes for the OpenAPI page: what they answer is the actions', so no endpoint's rules hold."""

from aliquot.live.gateway.http.routing import Access, Endpoint, handled_elsewhere

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ANSWERS = {200: None, 202: None, 204: None}
_REFUSALS = (400, 401, 404, 408, 413, 429, 503)


def described() -> list[Endpoint]:
    web, api = "/api/v1/web/{namespace}/{package}/{name}", "/api/{namespace}/{path}"
    summaries = {
        web: "Call a web action; a name may end in .http, .json, .html, .svg or .text, and a path may follow",
        api: "Call an API route of the namespace",
    }
    return [
        Endpoint(method, path, handled_elsewhere, summary, _ANSWERS, Access.ANYONE, statuses=_REFUSALS, any_status=True)
        for path, summary in summaries.items()
        for method in _METHODS
    ]
