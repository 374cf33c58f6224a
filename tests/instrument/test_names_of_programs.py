"""What `ray-snapshot run` calls the system of a program that was given no name."""

import pytest

from ray_snapshot.instrument.running import system_name
from ray_snapshot.names import check_system_name


@pytest.mark.parametrize(
    ("script", "module", "name"),
    [
        ("apps/job_queue.py", None, "job_queue"),
        ("apps/Job Queue.v2.py", None, "job-queue.v2"),
        ("2048.py", None, "app-2048"),
        (None, "orders", "orders"),
        (None, "shop.orders", "orders"),
        (None, "shop.back_office.orders", "orders"),
        (None, "shop.__main__", "shop"),
    ],
)
def test_a_program_is_named_by_its_file_or_the_last_part_of_its_module(
    script: str | None, module: str | None, name: str
) -> None:
    assert system_name(script, module) == check_system_name(name)
