"""What a program sees that looks for a watcher: a line of JSON, by what it looked at."""

import asyncio
import inspect
import json

import ray


class Looking:
    def method(self, x, y=2):
        return x + y

    def seen(self):
        kind = type(self)
        modules = [frame.frame.f_globals["__name__"].partition(".")[0] for frame in inspect.stack()]
        return {
            "the signature of a method, inside the actor": str(inspect.signature(kind.method)),
            "the signature of __ray_ready__": str(inspect.signature(kind.__ray_ready__)),
            "frames on the stack": "ray_snapshot" in modules,
            "the bases of the class": [one.__name__ for one in kind.__mro__],
            "the names in the object": sorted(dir(self)),
            "the attributes of the object": sorted(vars(self)),
        }


async def awaited(ref):
    return await ref


def main():
    looking = ray.remote(num_cpus=0)(Looking)
    actor = looking.remote()
    ref = actor.method.remote(1)
    found = ray.get(actor.seen.remote())
    found["the signature of the class's own function"] = str(inspect.signature(Looking.method))
    found["the type of a ref"] = [str(kind) for kind in type(ref).__mro__]
    found["what is awaited"] = asyncio.run(awaited(ref))
    found["ref.call_site()"] = ref.call_site()
    found["asyncio.wrap_future"] = asyncio.wrap_future.__code__.co_filename.rpartition("/")[2]
    for name in ("get", "wait", "put", "init", "shutdown", "remote"):
        function = getattr(ray, name)
        found[f"ray.{name}"] = [function.__code__.co_filename, str(inspect.signature(function)), sorted(vars(function))]
    print(json.dumps(found))


if __name__ == "__main__":
    ray.init()
    main()
