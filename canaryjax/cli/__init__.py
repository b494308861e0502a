"""The command line; heavy imports happen inside the commands."""

from canaryjax.cli.app import main

__all__ = ["main"]
