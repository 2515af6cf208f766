"""An OpenWhisk action: a dictionary in, a dictionary out."""


def main(args):
    print("echo of", sorted(args))
    return {"echo": args}
