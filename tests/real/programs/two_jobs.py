"""A job beside another one on a cluster: it finds the other's actor by its name, calls it, and is called back."""

import ray


@ray.remote(num_cpus=0.1)
class Own:
    def __init__(self, shared):
        self.shared = shared

    def double(self, n):
        return 2 * n

    def visit(self, name):
        return ray.get(self.shared.visit.remote(name))


@ray.remote(num_cpus=0.1)
def visits(shared, name):
    return ray.get(shared.visit.remote(name))


def main():
    shared = ray.get_actor("shared", namespace="other")
    print("app:", ray.get([shared.visit.remote(n) for n in range(100)])[-1])
    own = Own.remote(shared)
    print("app:", ray.get(own.visit.remote("own")), ray.get(visits.remote(shared, "task")))
    print("app:", [ray.get(shared.call.remote(own, n)) for n in range(5)])
    try:
        ray.get(shared.call.remote(None, 1))
    except AttributeError as error:
        print("app:", type(error).__name__)


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    main()
    print("app:", "the end")
