"""joblib on Ray: the backend registered, parallel calls, nested ones, and an error."""

import joblib
import ray
from ray.util.joblib import register_ray


def square(n):
    return n * n


def fails(n):
    raise ValueError(f"not {n}")


def nested(n):
    return sum(joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(square)(one) for one in range(n)))


def main():
    register_ray()
    with joblib.parallel_backend("ray", n_jobs=3):
        print("app:", sum(joblib.Parallel()(joblib.delayed(square)(n) for n in range(500))))
        print("app:", joblib.Parallel(batch_size=2)(joblib.delayed(nested)(n) for n in range(6)))
        try:
            joblib.Parallel()(joblib.delayed(fails)(n) for n in range(2))
        except ValueError as error:
            print("app:", type(error).__name__)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
