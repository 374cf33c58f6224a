"""Tests that are coroutines: each is given something that is made on its event loop, as no fixture is."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

Scenario = Callable[..., Coroutine[Any, Any, None]]
Play = Callable[[dict[str, Any], Callable[[Any], Coroutine[Any, Any, None]]], Any]
"""Given the fixtures of a test, and the scenario with these, it runs the scenario on what it makes."""


def played_by(play: Play, made: str, *needs: str) -> Callable[[Scenario], Callable[..., None]]:
    """A decorator that makes a test of a scenario with an argument called `made`; `play` needs the fixtures `needs`, too."""

    def decorate(scenario: Scenario) -> Callable[..., None]:
        own = [one for name, one in inspect.signature(scenario).parameters.items() if name != made]
        names = {one.name for one in own}
        more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in needs if name not in names]

        @functools.wraps(scenario)
        def test(**fixtures: Any) -> None:
            given = {name: fixtures[name] for name in names}
            play(fixtures, lambda found: scenario(**{made: found}, **given))

        vars(test)["__signature__"] = inspect.Signature([*own, *more])
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would ask that one for its arguments
        return test

    return decorate
