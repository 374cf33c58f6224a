"""`docs/wrapping.md`: its actor for two calls at once does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import ray

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "wrapping.md").read_text(encoding="utf-8")


@pytest.mark.ray
def test_two_accounts_that_pay_each_other_at_once_neither_hang_nor_lose_a_coin(ray_cluster: None) -> None:
    (block,) = re.findall(
        r"```python\n(.*?)```", PAGE.partition("### Two calls at once")[2].partition("\n## ")[0], re.DOTALL
    )
    namespace: dict[str, Any] = {"__name__": "the_page"}
    exec(compile(block, "docs/wrapping.md", "exec"), namespace)
    a, b = (namespace["Account"].remote(100) for _ in range(2))
    ray.get([a.transfer.remote(b, 10), b.transfer.remote(a, 3)], timeout=120)
    ray.get([a.deposit.remote(0), b.deposit.remote(0)], timeout=120)
    held = [ray.get(account.__ray_call__.remote(lambda self: self.balance), timeout=120) for account in (a, b)]
    assert held == [93, 107]
