"""Runs the command line: `python -m costmodel`."""

from costmodel.cli import main

main()
