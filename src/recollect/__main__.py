"""Run the `recollect` command with `python -m recollect`."""

from recollect.cli import main

main()
