"""Ray Tune: a scheduler that stops the bad trials early, tasks and actors inside of trials, checkpoints."""

import json
import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler


@ray.remote(num_cpus=0)
def inner(x, step):
    return x * step


@ray.remote(num_cpus=0)
class Shared:
    def __init__(self):
        self.seen = set()

    def note(self, x):
        self.seen.add(x)

    def told(self):
        return sorted(self.seen)


def trial(config, shared):
    ray.get(shared.note.remote(config["x"]))
    for step in range(1, 9):
        score = ray.get(inner.remote(config["x"], step))
        with tune_folder(config["x"]) as folder:
            Path(folder, "state.json").write_text(json.dumps({"step": step}))
            tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory(folder))


def tune_folder(_):
    import tempfile

    return tempfile.TemporaryDirectory()


def main(folder):
    shared = Shared.remote()
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(trial, shared=shared), {"cpu": 1}),
        param_space={"x": tune.grid_search([1, 2, 3, 4])},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=ASHAScheduler(grace_period=2, max_t=8), max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(
            storage_path=folder, name="asha", verbose=0, checkpoint_config=tune.CheckpointConfig(num_to_keep=1)
        ),
    )
    results = tuner.fit()
    best = results.get_best_result()
    with best.checkpoint.as_directory() as kept:
        print("app:", best.config, best.metrics["score"], json.loads(Path(kept, "state.json").read_text()))
    print("app:", len(results), results.num_errors, ray.get(shared.told.remote()))
    again = tune.Tuner.restore(f"{folder}/asha", trainable=tune.with_parameters(trial, shared=shared))
    print("app:", again.get_results().get_best_result().config)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
