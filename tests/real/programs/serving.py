"""Ray Serve as its users write it: composed deployments, called over HTTP and by handles."""

import json
import sys
import urllib.error
import urllib.request

import ray
from ray import serve


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0})
class Doubler:
    def __init__(self, factor):
        self.factor = factor

    def double(self, n):
        return n * self.factor

    async def slowly(self, n):
        return n * self.factor


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Adder:
    async def __call__(self, n, m):
        if n < 0:
            raise ValueError("negative")
        return n + m


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Front:
    def __init__(self, doubler, adder):
        self.doubler = doubler
        self.adder = adder

    async def __call__(self, request):
        n = int((await request.json())["n"])
        doubled = await self.doubler.double.remote(n)
        return {"n": n, "doubled": doubled, "sum": await self.adder.remote(n, await self.doubler.slowly.remote(n))}


def ask(port, n):
    body = json.dumps({"n": n}).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/front", body, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()[:40]


def main(port):
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    app = Front.bind(Doubler.bind(2), Adder.bind())
    handle = serve.run(app, name="composed", route_prefix="/front")
    print("app:", [ask(port, n) for n in range(5)], ask(port, -1))
    print("app:", type(handle).__name__, sorted(serve.status().applications["composed"].deployments))
    adder = serve.get_deployment_handle("Adder", "composed")
    print("app:", adder.remote(1, 2).result(timeout_s=60))
    try:
        adder.remote(-1, 2).result(timeout_s=60)
    except ValueError as error:
        print("app:", type(error).__name__, "negative" in str(error), "ray_snapshot" in str(error))
    serve.delete("composed")
    print("app:", sorted(serve.status().applications))
    serve.shutdown()


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(int(sys.argv[1]))
    print("app:", "the end")
