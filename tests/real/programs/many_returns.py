"""Several results of one call, none at all, refs in refs, a map and reduce over them, and methods with options."""

import threading

import ray


@ray.remote(num_cpus=0.1, num_returns=3)
def parts(numbers):
    return tuple([n for n in numbers if n % 3 == rest] for rest in range(3))


@ray.remote(num_cpus=0.1)
def total(*lists):
    return sum(map(sum, lists))


@ray.remote(num_cpus=0.1)
def nested(refs):
    return [type(ref).__name__ for ref in refs], sum(map(sum, ray.get(refs)))


@ray.remote(num_cpus=0.1)
class Splitter:
    def __init__(self):
        self.calls = 0

    @ray.method(num_returns=2)
    def split(self, text):
        self.calls += 1
        half = len(text) // 2
        return text[:half], text[half:]

    @ray.method(num_returns=0)
    def nothing(self):
        self.calls += 1
        return threading.Lock()  # it cannot be pickled, and goes nowhere

    def count(self):
        return self.calls

    def pass_on(self, n):
        return {"later": total.remote([n])}

    @staticmethod
    def static(n):
        return n + 1

    @classmethod
    def of_class(cls, n):
        return cls.__name__, n

    @property
    def prop(self):
        return "never called"


def main():
    refs = [parts.remote(list(range(100 * n))) for n in range(1, 5)]
    print("app:", ray.get([total.remote(*[one[rest] for one in refs]) for rest in range(3)]))
    print("app:", ray.get(nested.remote(list(refs[0]))))
    print("app:", parts.options(num_returns=0).remote([1]), len(parts.options(num_returns=1).remote([1]).hex()) > 8)
    try:
        ray.get(parts.options(num_returns=2).remote([1]))
    except ValueError as error:
        print("app:", type(error).__name__)
    splitter = Splitter.remote()
    left, right = splitter.split.remote("leftright")
    print("app:", ray.get(left), ray.get(right), splitter.nothing.remote(), ray.get(splitter.count.remote()))
    print("app:", ray.get([splitter.static.remote(1), splitter.of_class.remote(2)]))
    print("app:", ray.get(splitter.split.options(num_returns=1).remote("ab")))
    print("app:", ray.get(ray.get(ray.put([ray.put(1), ray.put(2)]))))
    print("app:", ray.get(ray.get(splitter.pass_on.remote(12))["later"]))
    ref = total.remote([1])
    (same,) = ray.get(ray.put([ref]))
    print("app:", {ref: "found"}[same], same == ref, len({ref, same}), type(ref) is ray.ObjectRef)
    print("app:", ref.hex() == same.hex(), len(ref.task_id().hex()), ref.future().result(60))
    for wrong in ("none_such", "split", "prop"):
        try:
            print("app:", wrong, getattr(splitter, wrong).remote())
        except (AttributeError, TypeError) as error:
            print("app:", type(error).__name__, str(error).splitlines()[0][:60])


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
