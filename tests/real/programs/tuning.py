"""Ray Tune as its users write it: a function and a class, with a trial that fails."""

import sys

import ray
from ray import tune


def function(config):
    if config["x"] == 3:
        raise ValueError("no three")
    for step in range(2):
        tune.report({"score": config["x"] * 10 + step})


class Climber(tune.Trainable):
    def setup(self, config):
        self.x = config["x"]

    def step(self):
        self.x += 1
        return {"score": self.x, "done": self.x >= 5}

    def save_checkpoint(self, folder):
        return {"x": self.x}

    def load_checkpoint(self, state):
        self.x = state["x"]


def fit(trainable, folder, name):
    config = tune.RunConfig(storage_path=folder, name=name, verbose=0)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 0.5}),
        param_space={"x": tune.grid_search([1, 2, 3])},
        tune_config=tune.TuneConfig(metric="score", mode="max", max_concurrent_trials=2),
        run_config=config,
    )
    results = tuner.fit()
    scores = sorted(result.metrics["score"] for result in results if result.error is None)
    errors = [
        (type(error).__name__, "no three" in str(error), "ray_snapshot" in str(error)) for error in results.errors
    ]
    print("app:", name, scores, errors, results.get_best_result().config)


def main(folder):
    fit(function, folder, "function")
    fit(Climber, folder, "class")


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
