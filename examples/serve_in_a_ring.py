"""Two Serve deployments that need each other, as one finds them in the wild: they answer until one is asked by the other.

Each takes so many requests at once (`max_ongoing_requests`). With one, the stock waits for a price, and the price for the
stock, which is busy with the question for the price. Nothing in here knows of us; it needs `ray[serve]`. Try:

    python examples/serve_in_a_ring.py 2                            two requests at once: prints what the tea is worth
    python examples/serve_in_a_ring.py 1                            prints nothing, for ever
    ray-snapshot run --name ring examples/serve_in_a_ring.py 1      and in another terminal: ray-snapshot diagnose ring

What to look at in the diagnosis: "cannot be told", the two replicas, and their threads. Serve runs one's code on the loop of a
thread of its own, and asks a full replica again and again: seen from outside, any of these may go on.
"""

from __future__ import annotations

import sys
from typing import Any

import ray
from ray import serve


@serve.deployment
class Stock:
    """Knows how much there is."""

    async def count(self, item: str) -> int:
        """How many of an item."""
        return {"tea": 3}.get(item, 0)

    async def worth(self, item: str) -> int:
        """What all of them cost."""
        worth: int = await serve.get_deployment_handle("Prices", "prices").of_all.remote(item)
        return worth


@serve.deployment
class Prices:
    """Knows what an item costs, but not how many there are."""

    async def of_all(self, item: str) -> int:
        """What all of an item cost."""
        count: int = await serve.get_deployment_handle("Stock", "stock").count.remote(item)
        return 2 * count


def main(at_once: int) -> None:
    deployments: dict[str, Any] = {"stock": Stock, "prices": Prices}
    for name, deployment in deployments.items():
        serve.run(deployment.options(max_ongoing_requests=at_once).bind(), name=name, route_prefix=None)
    stock = serve.get_deployment_handle("Stock", "stock")
    print("the tea is worth", stock.worth.remote("tea").result())
    serve.shutdown()


if __name__ == "__main__":
    ray.init()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
