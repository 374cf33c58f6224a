"""Ray Data: a stream split among actors, groups, joins of columns, sorting, batches in a loop, and statistics."""

import ray


@ray.remote(num_cpus=0.1)
class Reader:
    def read(self, part):
        return sum(int(batch["id"].sum()) for batch in part.iter_batches(batch_size=40))

    def twice(self, part):
        return [sum(int(row["id"]) for row in part.iter_rows()) for _ in range(2)]


def main():
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.range(1_000, override_num_blocks=4)
    readers = [Reader.remote() for _ in range(2)]
    parts = rows.streaming_split(2, equal=True)
    print("app:", sum(ray.get([reader.read.remote(part) for reader, part in zip(readers, parts, strict=True)])))
    parts = rows.streaming_split(2, equal=True)
    twice = ray.get([reader.twice.remote(part) for reader, part in zip(readers, parts, strict=True)])
    print("app:", [sum(one) for one in zip(*twice, strict=True)])
    grouped = rows.map(lambda row: {"key": row["id"] % 3, "value": row["id"]}).groupby("key").sum("value")
    print("app:", sorted((row["key"], row["sum(value)"]) for row in grouped.take_all()))
    evens = rows.filter(lambda row: row["id"] % 2 == 0).sort("id", descending=True)
    print("app:", [row["id"] for row in evens.take(3)], evens.count())
    zipped = rows.zip(rows.map(lambda row: {"square": row["id"] ** 2}))
    print("app:", zipped.take(2), zipped.max("square"))
    print("app:", sum(len(batch["id"]) for batch in rows.repartition(3).iter_batches(batch_size=100)))
    left, right = rows.train_test_split(0.25)
    print("app:", left.count(), right.count(), rows.limit(7).count())
    print("app:", [len(one.take_all()) for one in rows.split(2)], rows.union(rows).count())


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
