"""Returns a friendly greeting."""


def main(args):
    print("params:", args)
    name = args.get("name") or args.get("payload") or "stranger"
    place = args.get("place") or "somewhere"
    return {"payload": f"Hello, {name} from {place}!"}
