"""Errors that are the caller's to fix."""


class UserError(ValueError):
    """A mistake in what the user gave: exit status 2, one line, no traceback.

    The message says what was expected, what was found, and what to do.
    """


class InvalidScore(UserError):
    """A log-prob or loss that is not finite: the pair or policy it belongs to is marked invalid and counted."""
