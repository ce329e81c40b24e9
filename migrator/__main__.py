"""``python -m migrator``: the same as the ``migrator`` script."""

from __future__ import annotations


def main() -> None:
    """Hand over to the command line, imported only now: importing this file costs nothing."""
    from migrator.cli import main as run

    run()


if __name__ == "__main__":
    main()
