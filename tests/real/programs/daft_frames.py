"""Daft on Ray as its users write it: a join, groups, a shuffle, a model in actors of its own, and Parquet files."""

import sys

import daft
import ray
from daft import col


@daft.udf(return_dtype=daft.DataType.int64(), concurrency=2)
class Score:
    def __init__(self):
        self.factor = 3

    def __call__(self, numbers):
        return [self.factor * number for number in numbers.to_pylist()]


@daft.udf(return_dtype=daft.DataType.int64())
def fails(numbers):
    raise ValueError("no such row")


def main(folder):
    orders = daft.from_pydict({"id": list(range(2_000)), "shop": [n % 7 for n in range(2_000)]}).into_partitions(4)
    shops = daft.from_pydict({"shop": list(range(7)), "name": [f"shop {n}" for n in range(7)]})
    joined = orders.join(shops, on="shop")
    sums = joined.groupby("name").agg(col("id").sum().alias("sum"), col("id").count().alias("count"))
    print("app:", sums.sort("name").to_pydict())
    scored = orders.with_column("score", Score(col("id"))).repartition(3, "shop").collect()
    print("app:", scored.agg(col("score").sum()).to_pydict())
    scored.write_parquet(folder)
    print("app:", daft.read_parquet(f"{folder}/*.parquet").sort("score", desc=True).limit(3).to_pydict())
    try:
        orders.select(fails(col("id"))).collect()
    except Exception as error:
        print("app:", "no such row" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    daft.set_runner_ray()
    main(sys.argv[1])
    print("app:", "the end")
