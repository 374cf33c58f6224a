"""The programs of `tests/real/programs`, what each uses, and how it is to be started."""

from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class Hang:
    """A hang that a program has in it, chosen by its first argument; its lines in the source are marked `# HANG NAME`."""

    name: str
    after: str
    """The public report: OWNER/REPOSITORY#NUMBER."""
    cause: tuple[str, ...]
    """What an answer must name besides one of the marked lines, as patterns."""
    grade: str = "proven"
    """What the answer says of a deadlock: proven, suspected, cannot be told, or none."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program, as a user would start it."""

    name: str
    uses: str
    arguments: tuple[str, ...] = ()
    """`PORT` stands for a free port, `FOLDER` for a folder that is new in every run."""
    environment: dict[str, str] = field(default_factory=dict)
    file: str = ""
    """Its file without the ending; by default its name."""
    needs_libraries: bool = False
    surroundings: str = ""
    """What must run beside it: "client server", "cluster", "dashboard"."""
    is_watched: bool = True
    """False for what cannot be followed: it runs as it did, and is told so."""
    is_short: bool = False
    """Whether it may be over before the first snapshot is due: then it is only said that it is watched."""
    is_installed_too: bool = False
    """Whether it is run the third way as well: with `rs.install()` as its first line."""
    is_job: bool = False
    """Whether it is handed in with `ray job submit`."""
    exit_code: int = 0
    hangs: tuple[Hang, ...] = ()

    @property
    def path(self) -> Path:
        """Its source."""
        return PROGRAMS / f"{self.file or self.name}.py"


def _with_and_without_uvloop(name: str, uses: str, **more: bool) -> list[Program]:
    return [
        Program(name, f"{uses}; asyncio", environment={"RAY_USE_UVLOOP": "0"}, **more),
        Program(
            f"{name} on uvloop", f"{uses}; uvloop", file=name, environment={"RAY_USE_UVLOOP": "1"}, needs_libraries=True
        ),
    ]


ALL: list[Program] = [
    Program("start", "ray.init and one task", is_short=True),
    # ---- patterns of Ray's documentation, and behaviours that Ray itself tests ----
    Program("tree_of_actors", "actors that make actors", is_installed_too=True),
    Program("nested_tasks", "tasks that start tasks"),
    Program("big_arrays", "ray.put, arrays in the store, actors that keep refs"),
    Program("spilling", "more than the store holds"),
    Program("told", "the runtime context, names, signatures, named actors", is_installed_too=True),
    *_with_and_without_uvloop("async_actor", "async methods, gather, events, locks", is_installed_too=True),
    *_with_and_without_uvloop("asyncio_driver", "await of refs in the driver"),
    *_with_and_without_uvloop("generators", "streaming generators, sync and async, backpressure"),
    *_with_and_without_uvloop("concurrency_groups", "concurrency groups, async and threaded"),
    *_with_and_without_uvloop("queues", "ray.util.queue.Queue, producers and consumers"),
    *_with_and_without_uvloop("signal_actor", "a signal and a semaphore as actors, tasks that wait"),
    Program("named_actors", "names, namespaces, detached actors"),
    Program("errors", "exceptions of tasks, actors, constructors; crashes"),
    Program("uncaught", "an exception that ends the program", exit_code=1, is_installed_too=True),
    Program("retries", "max_retries, retry_exceptions, max_restarts, max_task_retries", ("FOLDER",)),
    Program("cancelling", "ray.cancel of tasks and of async calls"),
    Program("handles_in_tasks", "handles in arguments, lists, the store; progress reports"),
    Program("many_returns", "num_returns 0, 2, 3; map and reduce; refs in refs"),
    Program("placement_groups", "placement groups, captured children"),
    Program("actor_pool", "ray.util.ActorPool"),
    Program("backpressure", "max_pending_calls, timeouts, ray.wait"),
    Program("threaded_actors", "max_concurrency, threads of an actor's own"),
    Program("driver_threads", "threads of the driver's own, Ray started twice", is_installed_too=True),
    Program("leaving", "exit_actor, ray.kill, lost handles, __ray_terminate__", ("FOLDER",)),
    Program("game_of_life", "a grid of actors in lock-step"),
    # ---- reinforcement learning, as its frameworks write it, with hangs that were reported ----
    Program(
        "rl_controller",
        "one controller, fused workers, bound methods, a placement group, a named rendezvous",
        hangs=(
            Hang("slots", "verl-project/verl#7990", (r"RolloutServer\.resume", r"max_concurrency|slot")),
            Hang(
                "rendezvous",
                "verl-project/verl#1144",
                (r"WorkerDict-\d (?:in WorkerDict\.__init__|asks )", r"verl_again_register_center"),
                grade="cannot be told",
            ),
        ),
    ),
    Program(
        "rl_engines",
        "fractions of a bundle, async engines, a lock actor, a stream, a queue",
        hangs=(
            Hang("lock", "OpenRLHF/OpenRLHF#1262", (r"Trainer", r"SampleMaker", r"Lock\.acquire")),
            Hang("died", "OpenRLHF/OpenRLHF#331", (r"Policy", r"Group\.join", r"Engine-\d died")),
        ),
    ),
    Program(
        "rl_collector",
        "a collector's threads, a replay buffer, polls",
        hangs=(
            Hang(
                "exhausted",
                "NVIDIA-NeMo/RL#2899",
                (r"driver asks ReplayBuffer\.sample", r"called before by TrajectoryCollector-0"),
                grade="cannot be told",
            ),
            Hang(
                "raised",
                "NVIDIA-NeMo/RL#3488",
                (r"driver asks ReplayBuffer\.sample", r"thread batch-\d was ended by"),
                grade="cannot be told",
            ),
        ),
    ),
    Program(
        "rl_staleness",
        "an event loop in a task, a bound on staleness, coroutines that generate",
        hangs=(
            Hang(
                "lost",
                "NovaSky-AI/SkyRL#1173",
                (r"Sandbox-0 in Sandbox\.step", r"ended by ConnectionError"),
            ),
            Hang(
                "crashed",
                "NovaSky-AI/SkyRL#1691",
                (r"InferenceEngine-\d died", r"Queue\.get", r"task generate-\d was ended by"),
                grade="cannot be told",
            ),
        ),
    ),
    Program(
        "rl_router",
        "a router, rollouts ahead, weights by a collective",
        hangs=(
            Hang("groups", "THUDM/slime#2331", (r"Engine-0", r"Engine-1", r"open_group")),
            Hang(
                "gather", "THUDM/slime#1487", (r"nobody is left to call Collective-.*TrainRank-2", r"Collective\.meet")
            ),
        ),
    ),
    # ---- clusters, jobs, environments ----
    Program("cluster", "a cluster of `ray start --head`", surroundings="cluster", needs_libraries=True),
    Program("two_jobs", "beside another job, whose actor it calls", surroundings="other job", needs_libraries=True),
    Program(
        "two_jobs, both watched",
        "beside another job that is watched, too",
        file="two_jobs",
        surroundings="other job, watched",
        needs_libraries=True,
    ),
    Program(
        "job_submit", "`ray job submit`", file="cluster", surroundings="cluster", is_job=True, needs_libraries=True
    ),
    Program(
        "client",
        "Ray Client",
        surroundings="client server",
        environment={"RAY_AUTH_MODE": "disabled"},
        needs_libraries=True,
        is_watched=False,
    ),
    Program("environments", "runtime_env: working_dir, py_modules, env_vars, a setup hook", ("FOLDER",)),
    Program("own_pythons", "another Python for an actor and a task, subprocesses of workers", ("FOLDER",)),
    # ---- Ray's libraries ----
    Program("pool", "ray.util.multiprocessing.Pool"),
    Program("compiled_graph", "ray.dag: lazy and compiled graphs"),
    Program("joblib_backend", "joblib on ray.util.joblib", needs_libraries=True),
    Program("dask_on_ray", "dask on ray.util.dask", needs_libraries=True),
    Program("daft_frames", "Daft: a join, groups, a shuffle, a model in actors", ("FOLDER",), needs_libraries=True),
    Program(
        "fugue_frames",
        "Fugue: a join, a function by group, a shuffle",
        ("fugue", "FOLDER"),
        file="frames",
        needs_libraries=True,
    ),
    Program(
        "modin_frames",
        "Modin: pandas with a merge, groups, a sort",
        ("modin", "FOLDER"),
        file="frames",
        needs_libraries=True,
    ),
    *(
        Program(f"{library}_held_up", uses, (library,), file="held_up", needs_libraries=True, hangs=(hang,))
        for library, uses, hang in (
            (
                "modin",
                "Modin in trials of Tune",
                Hang(
                    "trials", "modin-project/modin#5245", (r"ImplicitFunc-\d", r"needs CPU 1"), grade="cannot be told"
                ),
            ),
            (
                "rllib",
                "RLlib: an environment that calls a remote function",
                Hang(
                    "rewards",
                    "ray-project/ray#26468",
                    (r"SingleAgentEnvRunner-\S+ .*waits for reward", r"reward\(\), not begun, needs CPU 1"),
                ),
            ),
            (
                "daft",
                "Daft in an actor, with a UDF that asks it",
                Hang(
                    "asked",
                    "ray-project/ray#3307",
                    (r"waits for Owner-0 in Owner\.sum", r"factor of Owner-0 has waited"),
                    grade="cannot be told",
                ),
            ),
        )
    ),
    Program(
        "collective",
        "ray.util.collective on gloo",
        needs_libraries=True,
        hangs=(
            Hang(
                "unequal",
                "ray-project/ray#25130",
                (r"2 of 3 are in all_reduce number 21 ", r"Worker-2\.reduce raised ValueError"),
            ),
        ),
    ),
    Program("serving", "Serve: composed deployments, HTTP, handles", ("PORT",), needs_libraries=True),
    Program("serving_more", "Serve: autoscaling, async constructor, streamed answers", ("PORT",), needs_libraries=True),
    Program("tuning", "Tune: function, class, a trial that fails", ("FOLDER",), needs_libraries=True),
    Program("tuning_schedulers", "Tune: ASHA, tasks inside trials, restored trials", ("FOLDER",), needs_libraries=True),
    Program("data", "Data: actor pool, shuffle, write_parquet, an error", ("FOLDER",), needs_libraries=True),
    Program("data_streaming", "Data: streaming_split, group by, join, zip", needs_libraries=True),
    Program("training", "Train: DataParallelTrainer without GPU and torch", ("FOLDER",), needs_libraries=True),
]


def named(name: str) -> Program:
    """The program of that name."""
    return next(program for program in ALL if program.name == name)
