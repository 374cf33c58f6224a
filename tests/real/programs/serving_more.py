"""Ray Serve: replicas that come with the load, an async constructor, answers in pieces, batches, multiplexed models."""

import asyncio
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import ray
from ray import serve
from starlette.responses import StreamingResponse

SCALING = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1, "upscale_delay_s": 0.2}


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Model:
    async def __init__(self, factor):
        await asyncio.sleep(0)
        self.factor = factor

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.01)
    async def times(self, numbers):
        return [n * self.factor for n in numbers]

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id):
        return f"model {model_id}"

    async def multiplexed(self, _):
        return await self.load(serve.get_multiplexed_model_id())

    async def count(self, upto):
        for n in range(upto):
            yield n


@serve.deployment(ray_actor_options={"num_cpus": 0}, autoscaling_config=SCALING, max_ongoing_requests=4)
class Front:
    def __init__(self, model):
        self.model = model

    async def pieces(self, upto):
        async for n in self.model.options(stream=True).count.remote(upto):
            yield f"{n};"

    async def __call__(self, request):
        asked = await request.json()
        if asked.get("stream"):
            return StreamingResponse(self.pieces(asked["stream"]), media_type="text/plain")
        await asyncio.sleep(0.05)
        return await self.model.times.remote(asked["n"])


def ask(port, asked):
    body = json.dumps(asked).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body, timeout=60) as answer:
        return answer.read().decode()


def main(port):
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    serve.run(Front.bind(Model.bind(3)), name="more")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: ask(port, {"n": n}), range(200)))
    print("app:", sum(map(int, answers)), ask(port, {"stream": 6}))
    model = serve.get_deployment_handle("Model", "more")
    print("app:", [model.options(multiplexed_model_id=one).multiplexed.remote(0).result() for one in "aba"])
    print("app:", list(model.options(stream=True).count.remote(4)))
    print(
        "app:", {name: one.status.value for name, one in serve.status().applications["more"].deployments.items()} != {}
    )
    serve.shutdown()


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(int(sys.argv[1]))
    print("app:", "the end")
