"""Frames on Ray as users of Fugue and Modin write them: a join, groups, a sort, Parquet files, an error."""

import sys

import pandas as pd
import ray


def summed(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["name"]].head(1).assign(sum=orders["id"].sum(), count=len(orders))


def squared(orders: pd.DataFrame) -> pd.DataFrame:
    return orders.assign(square=orders["id"] ** 2)


def fails(orders: pd.DataFrame) -> pd.DataFrame:
    raise ValueError("no such row")


def made(kind):
    orders = kind.DataFrame({"id": range(2_000), "shop": [n % 7 for n in range(2_000)]})
    return orders, kind.DataFrame({"shop": range(7), "name": [f"shop {n}" for n in range(7)]})


def fugue(folder):
    import fugue.api as fa
    import fugue_ray  # noqa: F401  # makes the engine known

    orders, shops = made(pd)
    with fa.engine_context("ray"):
        joined = fa.inner_join(fa.as_fugue_df(orders), fa.as_fugue_df(shops))
        sums = fa.transform(joined, summed, schema="name:str,sum:long,count:long", partition={"by": "name"})
        print("app:", sorted(fa.as_array(sums)))
        squares = fa.transform(fa.repartition(orders, {"num": 4, "algo": "rand"}), squared, schema="*,square:long")
        fa.save(squares, folder, format_hint="parquet")
        print("app:", fa.count(fa.load(folder, format_hint="parquet")))
        print("app:", fa.as_array(fa.take(fa.load(folder, format_hint="parquet"), 3, presort="id desc")))
        fa.as_pandas(fa.transform(orders, fails, schema="*", partition={"by": "shop"}))


def modin(folder):
    import modin.pandas

    orders, shops = made(modin.pandas)
    print("app:", orders.merge(shops, on="shop").groupby("name")["id"].agg(["sum", "count"]).to_dict())
    orders["square"] = orders["id"].apply(lambda n: n * n)
    print("app:", orders.sort_values(["shop", "square"], ascending=False)["id"].head(3).tolist())
    orders.to_parquet(folder)
    print("app:", int(modin.pandas.read_parquet(folder)["square"].sum()))
    orders.apply(lambda row: row["no such row"], axis=1).sum()


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    try:
        globals()[sys.argv[1]](sys.argv[2])
    except Exception as error:
        print("app:", "no such row" in str(error), "ray_snapshot" in str(error))
    print("app:", "the end")
