"""Ray Train without a GPU and without a deep learning library: workers that report, checkpoints, a data set, a failure."""

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop(config):
    rank = train.get_context().get_world_rank()
    weights = np.zeros(3)
    for epoch in range(config["epochs"]):
        for batch in train.get_dataset_shard("train").iter_batches(batch_size=50):
            weights += 0.001 * np.array([batch["id"].mean()] * 3)
        if config.get("fails") and epoch == 1:
            raise ValueError("as told")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, f"{rank}.json").write_text(json.dumps({"epoch": epoch}))
            checkpoint = train.Checkpoint.from_directory(folder) if rank == 0 else None
            train.report({"epoch": epoch, "size": train.get_context().get_world_size()}, checkpoint=checkpoint)


def fit(folder, name, **config):
    trainer = DataParallelTrainer(
        loop,
        train_loop_config={"epochs": 3, **config},
        scaling_config=train.ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 0.5}),
        datasets={"train": ray.data.range(400, override_num_blocks=2)},
        run_config=train.RunConfig(storage_path=folder, name=name),
    )
    return trainer.fit()


def main(folder):
    ray.data.DataContext.get_current().enable_progress_bars = False
    result = fit(folder, "works")
    with result.checkpoint.as_directory() as kept:
        print("app:", result.metrics, sorted(os.listdir(kept))[0])
    try:
        fit(folder, "fails", fails=True)
    except Exception as error:
        print("app:", type(error).__name__, "as told" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
