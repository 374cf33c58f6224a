"""A grid of actors, each with a strip of a game of life; neighbours exchange borders in every generation. Over ten seconds."""

import ray

WIDTH, HEIGHT, STRIPS = 60, 24, 4


@ray.remote(num_cpus=0.1)
class Strip:
    def __init__(self, number):
        self.rows = [[int((x * 7 + (y + number * HEIGHT) * 13) % 5 == 0) for x in range(WIDTH)] for y in range(HEIGHT)]
        self.above = self.below = None

    def meet(self, above, below):
        self.above, self.below = above, below

    def borders(self):
        return self.rows[0], self.rows[-1]

    def step(self, above, below):
        rows = [above[1], *self.rows, below[0]]
        self.rows = [[self.cell(rows, x, y) for x in range(WIDTH)] for y in range(1, HEIGHT + 1)]

    @staticmethod
    def cell(rows, x, y):
        around = sum(rows[y + dy][(x + dx) % WIDTH] for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dx, dy) != (0, 0))
        return int(around == 3 or (around == 2 and rows[y][x]))

    def count(self):
        return sum(map(sum, self.rows))


def main():
    strips = [Strip.remote(number) for number in range(STRIPS)]
    for generation in range(401):
        if generation % 100 == 0:
            print("app:", generation, ray.get([strip.count.remote() for strip in strips]))
        borders = [strip.borders.remote() for strip in strips]
        ray.get(
            [strip.step.remote(borders[(n - 1) % STRIPS], borders[(n + 1) % STRIPS]) for n, strip in enumerate(strips)]
        )


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
