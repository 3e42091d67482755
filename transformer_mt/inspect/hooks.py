"""Hooks that know the name of the module that calls them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import nn


@contextmanager
def hooked(modules: Iterable[tuple[str, nn.Module]], hook: Callable[..., None], before: bool = False) -> Iterator[None]:
    """While inside, each of these modules calls `hook` when it returns: with its name, itself, its inputs as a tuple
    and its output. `before` calls it when the module is called, without an output.
    """
    with ExitStack() as hooks:
        for name, module in modules:
            register = module.register_forward_pre_hook if before else module.register_forward_hook
            hooks.enter_context(register(partial(hook, name)))
        yield
