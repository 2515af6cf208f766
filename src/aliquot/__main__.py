"""`python -m aliquot` is `aliquot`."""

from aliquot.cli import main

if __name__ == "__main__":
    main()
