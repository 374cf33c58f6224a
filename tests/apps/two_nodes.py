"""Two actors that `ray.get` each other, on nodes that have these resources: `python two_nodes.py first second`."""

import sys

import ray


@ray.remote
class Account:
    def meet(self, other):
        self.other = other

    def transfer(self):
        return ray.get(self.other.deposit.remote())

    def both(self):
        return ray.get(self.other.transfer.remote())

    def deposit(self):
        return "done"

    def where(self):
        return ray.get_runtime_context().get_node_id()


def main(*places):
    a, b = (Account.options(resources={place: 1}).remote() for place in places)
    ray.get([a.meet.remote(b), b.meet.remote(a)])
    print(len(set(ray.get([a.where.remote(), b.where.remote()]))), "nodes", flush=True)
    return ray.get(b.both.remote())


if __name__ == "__main__":
    print("start", flush=True)
    ray.init()
    main(*sys.argv[1:])
