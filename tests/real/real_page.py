"""`docs/real-programs.md`: a table of what was measured."""

from collections import Counter
from collections.abc import Iterable, Mapping

from comparing import Result
from planted_hangs import AFTER_S, Answer
from shares import KINDS, Share

HEAD = """# Programs of others

Each program runs plainly (`python PROGRAM`) and watched (`ray-snapshot run --every 0.5 --history DIR PROGRAM`), each time in an
environment made from nothing. *Same* means: the same lines in the same order, the same exit code, the same exception shown, and
nothing said of a fault. Some run a third time, with `rs.install()` as their first line. A verdict is *definite* if it is true
or false; where it is None ("cannot be told") it names what is missing. The last column counts the snapshots that name each
kind of it (one may name several): d for `deadlock`, t for `termination`. The second table explains the kinds.

Made by `make real-programs`; the programs are in `tests/real/programs`. Wall times are on {where}: with a load above
the number of cores they say little. *Measured* is the day and the load of the machine: a row stays until its program runs anew.

"""
COLUMNS = (
    "program",
    "what it uses",
    "same?",
    "wall plain (s)",
    "wall watched (s)",
    "ratio",
    "snapshots",
    "deadlock definite (%)",
    "termination definite (%)",
    "why None, in how many snapshots",
    "measured",
)


HANGS = """Hangs are planted in some, each after a public report. Such a program is started with `ray-snapshot run --every 1`,
and diagnosed from a second terminal {after:.0f} s later. *Told* is an answer that names a line at which it hangs and every part
of the cause; *grade* is none where it says "No deadlock".

"""
HANG_COLUMNS = ("program", "hang", "after", "told?", "grade", "place")


def page(results: Iterable[Result], where: str) -> str:
    every = list(results)
    rows = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---|" + "---:|" * 6 + "---|---|"]
    rows += ["| " + " | ".join(cells(one)) + " |" for one in every]
    return HEAD.format(where=where) + "\n".join(rows) + "\n\n" + _kinds(every) + "\n\n" + _hangs(every) + _sums(every)


def _hangs(results: list[Result]) -> str:
    rows = [[one.name, *hang_cells(answer)] for one in results for answer in one.hangs]
    table = ["| " + " | ".join(row) + " |" for row in [[*HANG_COLUMNS], ["---"] * len(HANG_COLUMNS), *rows]]
    return HANGS.format(after=AFTER_S) + "\n".join(table) + "\n\n" if rows else ""


def hang_cells(answer: Answer) -> list[str]:
    told = "yes" if answer.is_told else f"**no**: not {', '.join(answer.missing)}".replace("|", "/")
    return [answer.hang, answer.after, told, answer.grade, answer.place or "-"]


def cells(result: Result) -> list[str]:
    deadlock, termination = result.shares["deadlock"], result.shares["termination"]
    return [
        result.name,
        result.uses,
        "yes" if not result.differences else "**no**",
        f"{result.plain_seconds:.1f}",
        f"{result.watched_seconds:.1f}",
        f"{result.ratio:.2f}",
        str(deadlock.snapshots),
        _percent(deadlock),
        _percent(termination),
        _causes(deadlock, termination),
        result.measured,
    ]


def _percent(share: Share) -> str:
    return "-" if share.percent is None else f"{share.percent:.0f}"


def _causes(*shares: Share) -> str:
    told = [
        f"{letter}: " + ", ".join(f"{kind} {count}" for kind, count in _most_first(share.causes))
        for letter, share in zip("dt", shares, strict=True)
        if share.causes
    ]
    return "; ".join(told).replace("|", "/")


def _most_first(causes: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(causes.items(), key=lambda one: (-one[1], one[0]))


def _kinds(results: list[Result]) -> str:
    """Every kind that is in the table of programs: what it is, and in how many snapshots of all programs."""
    causes: Counter[str] = Counter()
    for result in results:
        for share in result.shares.values():
            causes.update(share.causes)
    rows = [f"| {kind} | {KINDS.get(kind, '')} | {count} |" for kind, count in _most_first(causes)]
    return "\n".join(["| why None | what that is | snapshots |", "|---|---|---:|", *rows])


def _sums(results: list[Result]) -> str:
    differing = [one.name for one in results if one.differences]
    lines = [f"{len(results)} programs; {len(differing)} differ{': ' + ', '.join(differing) if differing else ''}."]
    for name in ("deadlock", "termination"):
        snapshots = sum(one.shares[name].snapshots for one in results)
        definite = sum(one.shares[name].definite for one in results)
        if snapshots:
            lines.append(f"`{name}`: {definite} of {snapshots} snapshots definite ({100 * definite / snapshots:.0f}%).")
    long = [one for one in results if one.plain_seconds > 10]
    if long:
        worst = max(long, key=lambda one: one.ratio)
        lines.append(
            f"{len(long)} take more than 10 s plainly; the largest ratio of those is {worst.ratio:.2f} ({worst.name})."
        )
    added = sorted(one.watched_seconds - one.plain_seconds for one in results)
    if added:
        lines.append(f"Watching added {added[len(added) // 2]:.1f} s in the median.")
    return "\n".join(lines) + "\n"
