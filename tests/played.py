"""Ray actors, played: what is called of one are functions of a test."""

import asyncio
from collections.abc import Callable
from typing import Any


class Remote:
    """A method of an actor: `.remote(...)` calls a function."""

    def __init__(self, act: Callable[..., Any]) -> None:
        self.remote = act


class Played:
    """An actor whose methods are functions."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        self.__dict__.update({name: Remote(act) for name, act in methods.items()})


class Silent:
    """An actor that takes every call and never answers."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()
