"""Modin on Ray as its users write it: pandas under another name, with a merge, groups, a sort, and Parquet files."""

import sys

import ray


def main(folder):
    import modin.pandas as pd

    orders = pd.DataFrame({"id": range(2_000), "shop": [n % 7 for n in range(2_000)]})
    shops = pd.DataFrame({"shop": range(7), "name": [f"shop {n}" for n in range(7)]})
    joined = orders.merge(shops, on="shop")
    print("app:", joined.groupby("name")["id"].agg(["sum", "count"]).to_dict())
    orders["square"] = orders["id"].apply(lambda n: n * n)
    print("app:", orders.sort_values(["shop", "square"], ascending=False)["id"].head(3).tolist())
    orders.to_parquet(folder)
    print("app:", int(pd.read_parquet(folder)["square"].sum()))
    try:
        orders.apply(lambda row: row["no such column"], axis=1).sum()
    except Exception as error:
        print("app:", "no such column" in str(error), "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
