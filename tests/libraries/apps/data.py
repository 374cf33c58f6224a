"""Ray Data as its users write it: a map with a pool of actors, a shuffle, and Parquet files."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import ray


class Squares:
    def __init__(self):
        self.seen = 0

    def __call__(self, batch):
        self.seen += len(batch["id"])
        batch["square"] = batch["id"] ** 2
        return batch


def fails(row):
    raise ValueError("no such row")


def main(folder):
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = ray.data.range(1_000, override_num_blocks=4)
    squares = rows.map_batches(Squares, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=0.5, batch_size=100)
    shuffled = squares.random_shuffle(seed=1).materialize()
    print(shuffled.count(), shuffled.sum("square"), sorted(shuffled.schema().names))
    print(sorted(row["square"] for row in shuffled.sort("id").take(5)), shuffled.groupby("id").count().count())
    shuffled.write_parquet(folder)
    print(sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet")))
    print(ray.data.read_parquet(folder).sum("id"))
    try:
        rows.map(fails).materialize()
    except ray.exceptions.RayTaskError as error:
        print(type(error).__name__, "no such row" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("the end")
