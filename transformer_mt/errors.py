"""The one exception that a user can cause."""


class UserError(Exception):
    """Something that the user can put right: one sentence on what is wrong, one on what to do.

    The command line prints the message without a traceback and exits with status 2.
    """


class LineError(UserError):
    """One line of many is at fault: what was made of the lines before it stays, and the others can follow."""


class ToldElsewhereError(UserError):
    """Ends a process of several after another one has said, or says, what is wrong: it is not said twice."""
