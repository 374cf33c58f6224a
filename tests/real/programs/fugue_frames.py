"""Fugue on Ray as its users write it: a join, a function by group, a shuffle, and Parquet files."""

import sys

import fugue.api as fa
import fugue_ray  # noqa: F401  # makes the engine known
import pandas as pd
import ray


def summed(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["name"]].head(1).assign(sum=orders["id"].sum(), count=len(orders))


def squared(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(square=orders["id"] ** 2)


def fails(orders: pd.DataFrame) -> pd.DataFrame:
    raise ValueError("no such row")


def main(folder):
    orders = pd.DataFrame({"id": range(2_000), "shop": [n % 7 for n in range(2_000)]})
    shops = pd.DataFrame({"shop": range(7), "name": [f"shop {n}" for n in range(7)]})
    with fa.engine_context("ray"):
        joined = fa.inner_join(fa.as_fugue_df(orders), fa.as_fugue_df(shops))
        sums = fa.transform(joined, summed, schema="name:str,sum:long,count:long", partition={"by": "name"})
        print("app:", sorted(fa.as_array(sums)))
        squares = fa.transform(fa.repartition(orders, {"num": 4, "algo": "rand"}), squared, schema="*,square:long")
        fa.save(squares, folder, format_hint="parquet")
        print("app:", fa.count(fa.load(folder, format_hint="parquet")))
        print("app:", fa.as_array(fa.take(fa.load(folder, format_hint="parquet"), 3, presort="id desc")))
        try:
            fa.as_pandas(fa.transform(orders, fails, schema="*", partition={"by": "shop"}))
        except Exception as error:
            print("app:", "no such row" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
