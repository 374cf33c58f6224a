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
    rows = ray.data.range(200, override_num_blocks=2)
    squares = rows.map_batches(Squares, compute=ray.data.ActorPoolStrategy(size=2), num_cpus=0.5, batch_size=50)
    shuffled = squares.random_shuffle(seed=1).materialize()
    print("app:", shuffled.count(), shuffled.sum("square"), sorted(shuffled.schema().names))
    print("app:", sorted(row["square"] for row in shuffled.iter_rows())[:5])
    shuffled.write_parquet(folder)
    print("app:", sum(pq.read_metadata(file).num_rows for file in Path(folder).glob("*.parquet")))
    try:
        rows.map(fails).materialize()
    except ray.exceptions.RayTaskError as error:
        print("app:", type(error).__name__, "no such row" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
