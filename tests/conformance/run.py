"""Trainings drawn at random, in C++ by this library and in Python by PyTorch: equal in every bit.

    python3 tests/conformance/run.py --seeds 176                  # new ones, whose first seed is printed
    python3 tests/conformance/run.py --seeds 1 --first 20311      # one of them again

Python is one that has torch of the version that the program was built with. DDPRUN_CONFORMANCE_SEED is --first where that is not
given. Each seed is a description (draw.py), which conformance_program.cpp and conformance_twin.py interpret; see there for what they compare. On a difference
the seed, the first tensor that differs and the description are printed, after shrink.py has made it as small as --shrink seconds
allow. known.py names the cases whose bits may differ from Python's: these are judged otherwise and counted by themselves.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import known  # noqa: E402
from compare import first_difference  # noqa: E402
from draw import draw  # noqa: E402
from jobs import Jobs  # noqa: E402
from shrink import shrunk  # noqa: E402

BIN = HERE.parents[1] / "build" / "release" / "bin"
# Whose steps an error may refuse: what they mean is not defined.
MAY_REFUSE = (*known.COMPUTED, "gradient_penalty")


def absolute(path):
    """The programs run in other folders."""
    return pathlib.Path(path).absolute()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=176, help="how many trainings")
    parser.add_argument("--first", type=int, help="the first seed; a new one where neither this nor DDPRUN_CONFORMANCE_SEED tells")
    parser.add_argument("--limit", type=float, default=5400, help="seconds, after which no further training begins; this fails")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to make a failing description smaller")
    parser.add_argument("--unusual", action="store_true", help="trainings that keep gradients, run several backwards or differentiate twice")
    parser.add_argument("--recompute", action="store_true", help="trainings with regions of activation checkpointing")
    parser.add_argument("--combined", action="store_true", help="trainings with regions, hooks of all kinds and layers that are frozen for some steps")
    parser.add_argument("--program", type=absolute, default=BIN / "conformance_program")
    parser.add_argument("--launcher", type=absolute, default=BIN / "ddprun")
    parser.add_argument("--case-limit", type=float, default=180, help="seconds for each job")
    parser.add_argument("--description", type=pathlib.Path, help="run this description instead of drawing any")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the records, which stay there")
    parser.add_argument("--verbose", action="store_true", help="a line for each training")
    given = parser.parse_args()
    if given.first is None:
        told = os.environ.get("DDPRUN_CONFORMANCE_SEED")
        given.first = int(told) if told else random.SystemRandom().randrange(1, 1_000_000)
    return given


def for_torch(case):
    """`case` without options that came later than this Python's torch."""
    minor = int(importlib.metadata.version("torch").split(".")[1])
    if minor < 12:
        case["ddp"]["batched_grad_copy"] = None
    if minor < 15:
        case["ddp"]["lazy"] = False
    return case


def verdict(jobs, case, folder):
    """One of FINE, or what is wrong."""
    judge, cpp = jobs.run(case, folder)
    if judge.failed:
        return f"Python failed: {judge.error.strip()[-6000:]}"
    if cpp.failed:
        names_a_parameter = re.search(r"\bl\d+\.\w", cpp.error) is not None
        if case["unusual"] in MAY_REFUSE and cpp.status == 1 and (names_a_parameter or case["unusual"] == "create_graph"):
            return "refused"  # c10d itself refuses create_graph from the second step on
        return f"C++ failed with {cpp.status}: {cpp.error.strip()[-6000:]}"
    found = first_difference(case, folder, 0)
    if known.near(case):
        if found is None:
            return "known: equal"
        found = first_difference(case, folder, known.tolerance(case))
        if found is None:
            return "known: near"
    elif found is None:
        return "equal as C++ computes" if known.exact(case) else "equal"
    return f"differs: {found}" + "".join(f"\n  (known: {reason})" for reason in known.exact(case) + known.near(case))


# Bits, those of a judge that computes in the order of C++, and cases that are compared within a tolerance.
FINE = ("equal", "equal as C++ computes", "known: equal", "known: near", "refused")


def report(case, what, jobs, folder, shrink_s):
    print(f"\nseed {case['seed']}: {what}", flush=True)
    if shrink_s > 0:
        kind = what.split(":")[0]
        case, what = shrunk(case, what, lambda smaller: verdict(jobs, smaller, folder), lambda other: other.split(":")[0] == kind, shrink_s)
        print(f"as small as it became: {what}")
    print(json.dumps(case), flush=True)


def main():
    given = arguments()
    if not given.program.exists() or not given.launcher.exists():
        sys.exit(f"{given.program} and {given.launcher} have to be built first: cmake --build build/release --target conformance_program ddprun")
    cases = [json.loads(given.description.read_text())] if given.description else [
        for_torch(draw(seed, given.unusual, given.recompute, given.combined)) for seed in range(given.first, given.first + given.seeds)]
    print(f"{len(cases)} trainings, the first of seed {cases[0]['seed']}" + (" (--unusual)" if given.unusual else ""), flush=True)
    start, counts, reasons, failures = time.monotonic(), collections.Counter(), collections.Counter(), []
    jobs = Jobs(given.program, given.launcher, given.case_limit)
    with tempfile.TemporaryDirectory() as temporary:
        for case in cases:
            if time.monotonic() - start > given.limit:
                counts["not begun within the limit"] += 1
                continue
            folder = (given.keep or pathlib.Path(temporary)) / f"seed{case['seed']}"
            what = verdict(jobs, case, folder)
            if given.verbose:
                print(f"seed {case['seed']} ({case['kind']}, {case['ranks']} ranks, {case['backend']}): {what.splitlines()[0]}", flush=True)
            short = what if what in FINE else what.split(":")[0]
            counts[short] += 1
            reasons.update(f"{reason} ({short})" for reason in known.exact(case) + known.near(case))
            if what not in FINE:
                failures.append(case["seed"])
                report(case, what, jobs, folder, given.shrink)
    jobs.close()
    print(f"\n{len(cases)} trainings in {time.monotonic() - start:.0f} s: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))
    for reason, count in sorted(reasons.items()):
        print(f"  {count} times: {reason}")
    if failures or counts["not begun within the limit"]:
        sys.exit(f"failing seeds: {failures}" if failures else "the limit was too short")


if __name__ == "__main__":
    main()
