"""Run the `aliquot` command as `python -m aliquot`."""

from aliquot.cli import main

if __name__ == "__main__":
    main()
