"""A machine whose module has imported clocks and chance by name."""

import datetime as dates
from datetime import date, datetime
from random import random as chance
from time import time
from typing import Any

import ray_snapshot as rs


class Named(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.value: Any = None

    def throw(self) -> None:
        self.value = chance() < 0.5

    def ask(self) -> None:
        self.value = time() > 5

    def now(self) -> float:
        return 3.0

    def read(self) -> None:
        self.value = datetime.now().year

    def read_day(self) -> None:
        self.value = date.today().year

    def read_whole(self) -> None:
        self.value = dates.datetime.now(dates.UTC).year

    def count(self) -> None:
        self.value = datetime(2026, 11, 26).year
