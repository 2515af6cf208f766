"""Nests all arguments under the property that `$fieldName` names."""


def main(args):
    parent = args.pop("$fieldName", None)
    if not isinstance(parent, str):
        return {"error": "Expected an argument '$fieldName' of type 'string'."}
    return {parent: args}
