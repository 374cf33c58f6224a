"""What Ray tells a program of itself: ids and names in tasks and actors, resources, nodes, signatures, pickled functions."""

import inspect
import pickle

import ray
from ray import cloudpickle


@ray.remote(num_cpus=0.5, name="a task of its own")
def task():
    context = ray.get_runtime_context()
    return context.get_task_name(), context.get_assigned_resources().get("CPU"), context.get_actor_id() is None


@ray.remote(num_cpus=0.5)
class Actor:
    """The documentation of an actor."""

    def __init__(self, name: str = "none") -> None:
        self.name = name

    def told(self, n: int = 0, *, key: str = "k"):
        """The documentation of a method."""
        context = ray.get_runtime_context()
        return context.get_actor_name(), context.get_task_name(), context.get_assigned_resources().get("CPU"), n, key

    def of_class(self):
        kind = type(self)
        return kind.__name__, kind.__doc__, kind.__module__ == "__main__", [one.__name__ for one in kind.__mro__]


@ray.remote(num_cpus=0.1, max_calls=1)
def process():
    return ray.get_runtime_context().get_worker_id()


class Heir(Actor.__ray_metadata__.modified_class):
    def more(self):
        return self.name * 2


def main():
    print("app:", ray.get(task.remote()), ray.get(task.options(name="another").remote())[0])
    actor = Actor.options(name="told").remote("x")
    print("app:", ray.get(actor.told.remote(1, key="v")), ray.get(actor.told.options(name="named call").remote())[1])
    print("app:", ray.get(actor.of_class.remote()))
    print("app:", ray.get(ray.remote(Heir).remote("ab").more.remote()), sorted(ray.available_resources())[:1])
    print("app:", len({ray.get(process.remote()) for _ in range(2)}), type(actor).__name__, type(task).__name__)
    print("app:", [name for name in dir(actor) if not name.startswith("_")])
    print("app:", ray.get(ray.remote(cloudpickle.loads(cloudpickle.dumps(task._function))).remote())[1])
    print("app:", inspect.iscoroutinefunction(Actor.method) if hasattr(Actor, "method") else Actor.__ray_actor_class__)
    ref = ray.put(pickle.dumps({"a": 1}))
    print("app:", pickle.loads(ray.get(ref)), type(ref).__name__, len(ref.hex()), ray.is_initialized())
    print("app:", [one["name"] for one in ray.util.list_named_actors(all_namespaces=True)])


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
