"""Libraries whose workers need what their own caller holds: `held_up.py LIBRARY [HANG]`.

trials   after modin-project/modin#5245: a trial of Tune waits for Modin's tasks, and they for the one CPU of its group.
rewards  after ray-project/ray#26468: an environment of RLlib calls a remote function, and env runners have all CPUs.
asked    after ray-project/ray#3307: an actor waits for a frame of Daft, and a UDF of it for the actor.
"""

import sys

import ray


def modin(hangs):
    from ray import tune

    def scaled(config):
        import modin.pandas

        frame = modin.pandas.DataFrame({"n": range(1_000)})
        tune.report({"sum": int(frame["n"].apply(lambda n: n * config["factor"]).sum())})  # HANG trials

    needs = tune.PlacementGroupFactory([{"CPU": 1}] if hangs else [{"CPU": 1}, {"CPU": 1}])
    space = {"factor": tune.grid_search([1, 2])}
    results = tune.Tuner(tune.with_resources(scaled, needs), param_space=space).fit()  # HANG trials
    return sorted(result.metrics["sum"] for result in results)


@ray.remote
def reward(steps):
    return 1.0


def rllib(hangs):
    import gymnasium
    from ray.rllib.algorithms.ppo import PPOConfig

    class Walk(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, config):
            self.steps = 0

        def reset(self, *, seed=None, options=None):
            self.steps = 0
            return self.observation_space.low, {}

        def step(self, action):
            self.steps += 1
            gained = ray.get(reward.remote(self.steps))  # HANG rewards
            return self.observation_space.high, gained, self.steps == 5, False, {}

    config = PPOConfig().environment(Walk).env_runners(num_env_runners=4 if hangs else 2, sample_timeout_s=None)
    algorithm = config.training(train_batch_size=64, minibatch_size=32, num_epochs=1).build_algo()
    return algorithm.train()["env_runners"]["episode_return_max"]  # HANG rewards


@ray.remote(num_cpus=0)
class Owner:
    def factor(self):
        return 3

    def sum(self, me):
        import daft

        daft.set_runner_ray()

        @daft.udf(return_dtype=daft.DataType.int64(), concurrency=1)
        class Scaled:
            def __init__(self):
                pass

            def __call__(self, numbers):
                factor = ray.get(me.factor.remote())  # HANG asked
                return [factor * number for number in numbers.to_pylist()]

        frame = daft.from_pydict({"n": list(range(100))}).with_column("scaled", Scaled(daft.col("n")))
        return sum(frame.to_pydict()["scaled"])  # HANG asked


def daft(hangs):
    owner = Owner.options(max_concurrency=1 if hangs else 2).remote()
    return ray.get(owner.sum.remote(owner))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    print("app:", globals()[sys.argv[1]](sys.argv[2:]))
    print("app:", "the end")
