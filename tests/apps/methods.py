"""Every shape of a method, and every way to call one."""

import ray


class Base:
    """A plain class below an actor class."""

    kind = "base"

    def __init__(self, *parts, scale=1):
        self.parts = parts
        self.scale = scale

    def total(self):
        return sum(self.parts) * self.scale

    def name(self):
        return "base"

    @property
    def size(self):
        return len(self.parts)


@ray.remote
class Methods(Base):
    def __init__(self, *parts, label="none", **more):
        super().__init__(*parts, **more)
        self.label = label
        self.log = []

    def name(self):
        return "over " + super().name()

    def total(self):
        return super().total() + 1

    def indirect(self):
        return self.total() + self.own_helper(1, by=2) + self.size

    def own_helper(self, x, *, by):
        return x * by

    def everything(self, a, b=2, /, c=3, *args, d, e=5, **more):
        return a, b, c, args, d, e, sorted(more.items())

    def only_more(self, **more):
        return sorted(more)

    def log_it(self, text):
        self.log.append(text)
        return list(self.log)

    def what(self):
        return type(self).__name__, type(self).__qualname__, self.__class__.__doc__, Methods is not None

    def __len__(self):
        return 42

    def call_len(self):
        return len(self)


@ray.remote
class Clash:
    """A method and an attribute of one name."""

    def __init__(self):
        self.status = "an attribute"

    def read(self):
        return self.status

    def status(self):
        return "a method"


@ray.remote
class Bare:
    def hello(self):
        return "no constructor"


class Plain:
    def hello(self):
        return "made an actor class later"


def main():
    actor = Methods.options(name="methods", max_concurrency=1).remote(1, 2, 3, label="x", scale=10)
    get = ray.get
    print(get(actor.name.remote()), get(actor.total.remote()), get(actor.indirect.remote()))
    print(get(actor.everything.remote(1, d=4)), get(actor.everything.remote(1, 9, 8, 7, 6, d=4, e=0, z=1, y=2)))
    print(get(actor.only_more.remote(a=1, header=2, self_=3)))
    print(get(actor.call_len.remote()), get(actor.log_it.options(name="logging").remote("text")))
    for wrong in (actor.everything.remote, lambda: actor.name.remote(1), lambda: actor.nowhere):
        try:
            wrong()
        except (TypeError, AttributeError) as error:
            print(type(error).__name__, error)
    try:
        Methods.remote(1, 2, wrong=3)
        Bare.remote(1)
    except TypeError as error:
        print(type(error).__name__, error)

    print(get(Clash.remote().read.remote()))
    print(
        get(Bare.remote().hello.remote()),
        get(ray.remote(num_cpus=0)(Bare.__ray_metadata__.modified_class).remote().hello.remote()),
    )


if __name__ == "__main__":
    ray.init()
    main()
