"""Returns the namespace of the key that was used to invoke it."""

import os


def main(args):
    return {"namespace": os.environ["__OW_NAMESPACE"]}
