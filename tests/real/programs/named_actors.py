"""Named actors: looked up by tasks and by other actors, made once, detached, in namespaces, killed and missed."""

import ray


@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n):
        self.value += n
        return self.value


@ray.remote(num_cpus=0.1)
def add_by_name(name, n):
    return ray.get(ray.get_actor(name).add.remote(n))


@ray.remote(num_cpus=0.1)
class Finder:
    def find(self, name, namespace=None):
        try:
            return ray.get(ray.get_actor(name, namespace=namespace).add.remote(0))
        except ValueError as error:
            return type(error).__name__


def main():
    first = Counter.options(name="counter").remote(10)
    print("app:", ray.get(add_by_name.remote("counter", 5)), ray.get(ray.get_actor("counter").add.remote(1)))
    again = Counter.options(name="counter", get_if_exists=True).remote(99)
    print("app:", ray.get(again.add.remote(1)), again == first)
    try:
        Counter.options(name="counter").remote()
    except ValueError as error:
        print("app:", type(error).__name__, "already" in str(error) or "taken" in str(error))
    finder = Finder.remote()
    detached = Counter.options(name="stays", lifetime="detached", namespace="other").remote(1)
    print("app:", ray.get(detached.add.remote(1)), ray.get(finder.find.remote("stays", "other")))
    print("app:", ray.get(finder.find.remote("stays")), ray.get(finder.find.remote("nobody")))
    del detached
    print("app:", ray.get(ray.get_actor("stays", namespace="other").add.remote(1)))
    print("app:", sorted(one["name"] for one in ray.util.list_named_actors(all_namespaces=True)))
    ray.kill(ray.get_actor("stays", namespace="other"))
    try:
        ray.get(first.add.remote("text"))
    except TypeError as error:
        print("app:", type(error).__name__)
    print("app:", ray.get(first.add.remote(0)))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
