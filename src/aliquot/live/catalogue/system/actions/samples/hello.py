"""Greets whoever is named."""


def main(args):
    greeting = f"Hello {args.get('name') or 'stranger'}!"
    print(greeting)
    return {"greeting": greeting}
