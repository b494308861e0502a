"""One compiled program for all chunks of a study, also when chunks run in several threads."""

import functools
import threading
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def once(make: Callable[P, T]) -> Callable[P, T]:
    """`functools.cache`, but threads that ask at the same time are given one value: two would compile twice."""
    lock = threading.Lock()
    cached = functools.cache(make)

    @functools.wraps(cached)
    def get(*args: P.args, **kwargs: P.kwargs) -> T:
        with lock:
            return cached(*cast(tuple[Hashable, ...], args), **cast(dict[str, Hashable], kwargs))

    return get
