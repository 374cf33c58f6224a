"""ObjectRefs as arguments, keys and results; big arrays; objects that stay in the store."""

import asyncio
import gc

import numpy as np
import ray


@ray.remote
class Data:
    def __init__(self, first=None):
        self.first = first
        self.kept = None

    def value(self, x):
        return x

    def first_one(self):
        return self.first

    def kind(self, x, *more, **named):
        return type(x).__name__, [type(item).__name__ for item in more], sorted(named)

    def nested(self, box):
        ref = box["ref"]
        return isinstance(ref, ray.ObjectRef), ray.get(ref)

    def pass_on(self, other, x):
        return other.value.remote(x)

    def pass_on_nested(self, other, x):
        return {"later": other.value.remote(x)}

    def array(self, n):
        return np.arange(n, dtype=np.float64)

    def look(self, array):
        return array.flags.writeable, array.flags.owndata, float(array.sum())

    def keep(self, box):
        self.kept = box[0]

    def read_kept(self):
        return ray.get(self.kept)

    def put(self, x):
        return ray.put(x)


@ray.remote
def task(x):
    return x * 2


@ray.remote
class Reader:
    async def read(self, box):
        first, second = await asyncio.gather(*box)
        return first + second

    async def read_one(self, box):
        return await box[0]


def main():
    data, other = Data.remote(), Data.remote(ray.put("given to the constructor"))
    get = ray.get
    print("constructor", get(other.first_one.remote()))
    print(
        "top level",
        get(data.value.remote(other.value.remote(7))),
        get(data.kind.remote(ray.put(1), other.value.remote("a"), c=3)),
    )
    print(
        "nested", get(data.nested.remote({"ref": other.value.remote(8)})), get(data.nested.remote({"ref": ray.put(9)}))
    )
    print("task", get(task.remote(data.value.remote(10))), get(data.value.remote(task.remote(11))))
    passed = get(data.pass_on.remote(other, 12))
    print("passed on", isinstance(passed, ray.ObjectRef), get(passed))
    print("passed on", get(get(data.pass_on_nested.remote(other, 13))["later"]))
    print("put", get(get(data.put.remote(14))))

    ref = data.value.remote(1)
    same = ray.get(ray.put([ref]))[0]
    table = {ref: "found"}
    print(
        "keys",
        ref in table,
        table[same],
        same == ref,
        hash(same) == hash(ref),
        ref in [same],
        ref != data.value.remote(1),
    )
    print("keys", ref in {same}, len({ref, same}), type(ref).__name__ if type(ref) is ray.ObjectRef else "ObjectRef")
    print("ids", ref.hex() == same.hex(), ref.binary() == same.binary(), len(ref.task_id().hex()))
    print("future", ref.future().result(60), asyncio.run(awaited(data)))

    big = get(data.array.remote(200_000))
    print("array", big.flags.writeable, big.flags.owndata, float(big.sum()))
    print(
        "array",
        get(data.look.remote(big)),
        get(data.look.remote(ray.put(big))),
        get(data.look.remote(data.array.remote(200_000))),
    )
    print("small array", get(data.array.remote(3)).flags.writeable)

    reader = Reader.remote()
    print(
        "async",
        get(reader.read.remote([data.value.remote(1), other.value.remote(2)])),
        get(reader.read_one.remote([ref])),
    )
    get(data.keep.remote([ray.put(np.zeros(200_000))]))
    gc.collect()
    print("kept", get(data.read_kept.remote()).shape)
    unread = [data.array.remote(200_000) for _ in range(3)]
    print("wait", [len(side) for side in ray.wait(unread, num_returns=3, timeout=60)])


async def awaited(data):
    first = await data.value.remote(20)
    both = await asyncio.gather(data.value.remote(21), data.value.remote(22))
    return first, both


if __name__ == "__main__":
    ray.init()
    main()
