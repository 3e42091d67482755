"""Python's collector of garbage, while a command begins.

Imports make a million objects, all of which stay. The collector looks through them again and again: for a quarter of
a second, a sixth of a short `tmt translate`. So the command line lets it rest until the first computation, and then has
it leave alone for good what is there.
"""

import gc

_RESTING = (100_000, 10, 10)  # objects more than before, until it looks again; Python begins with 700
_usual: list[tuple[int, int, int]] = []


def rest() -> None:
    """Collect hardly any garbage from here on. It is for a process that is all ours."""
    if not _usual:
        _usual.append(gc.get_threshold())
        gc.set_threshold(*_RESTING)


def work() -> None:
    """Collect as before `rest`, without what is there now. Nothing where the collector does not rest."""
    if _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())
