"""Classes, actors and methods with names that nobody expects."""

import ray

NAMES = ["with space", "with:colon:app", "with/slash", "dotted.name/0/x", "ümlaut 名", "new\nline", "driver", "x" * 300]


class Template:
    def __init__(self, other=None):
        self.count = 0
        self.other = other

    def add(self, n):
        self.count += n
        return self.count if self.other is None else ray.get(self.other.add.remote(n))


def main():
    kinds = [ray.remote(num_cpus=0)(type(name, (Template,), dict(vars(Template)))) for name in NAMES]
    last = kinds[0].options(name="a name/with #2: all").remote()
    actors = [kind.options(name=f"{kind.__ray_metadata__.class_name}!").remote(last) for kind in kinds[1:]]
    print(ray.get([actor.add.remote(1) for actor in actors for _ in range(20)]).count(None))
    print(ray.get([ray.get_actor(f"{name}!").add.remote(0) for name in NAMES[1:]]))
    print([repr(actor).partition(",")[0] for actor in (last, *actors)])


if __name__ == "__main__":
    ray.init()
    main()
