"""Placement groups: actors and tasks in bundles, children that are captured, a group that waits until another is removed."""

import ray
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Member:
    def __init__(self, number):
        self.number = number

    def told(self):
        return self.number, get_current_placement_group() is not None

    def child(self):
        return ray.get(inside.options(num_cpus=0).remote())


@ray.remote(num_cpus=1)
def inside():
    return get_current_placement_group() is not None


def within(group, bundle=-1, capture=False):
    return PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=bundle, placement_group_capture_child_tasks=capture
    )


def main():
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="PACK", name="pair")
    print("app:", group.wait(60), ray.get(group.ready()) is not None, group.bundle_count)
    members = [Member.options(scheduling_strategy=within(group, n, capture=True)).remote(n) for n in range(2)]
    print("app:", ray.get([member.told.remote() for member in members]), ray.get(members[0].child.remote()))
    print("app:", ray.get(inside.remote()), ray.util.get_placement_group("pair") == group)
    second = placement_group([{"CPU": 2}, {"CPU": 1}])
    print("app:", second.wait(0.5))
    for member in members:
        ray.kill(member)
    remove_placement_group(group)
    print("app:", second.wait(60), ray.get(inside.options(scheduling_strategy=within(second, 0)).remote()))
    remove_placement_group(second)
    try:
        placement_group([{"CPU": 1}], strategy="NONE SUCH")
    except ValueError as error:
        print("app:", str(error)[:30])


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
