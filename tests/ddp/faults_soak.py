"""One rank of a job goes wrong at a random place: every other rank ends in time and names it, and nobody names another.

    faults_soak.py PROGRAM COUNT [SEED [FAULT…] [MODEL…]]    with an interpreter that has torch; PROGRAM is fault_program

Every process has to end within the group's timeout and 2 s. A case in which one does not is run again, alone, since a busy
machine is slower: it must not be late each time.
"""

import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import fault_cases  # noqa: E402
from fault_cases import Case  # noqa: E402
import fault_messages  # noqa: E402
from fault_job import TIMEOUT_S, environment  # noqa: E402
from fault_nodes import CAN_MAKE_NODES, StoreServer, TwoNodes  # noqa: E402
from free_port import free_port  # noqa: E402

PROGRAM, COUNT = sys.argv[1], int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(10**6)
ONLY = sys.argv[4:]

LATEST_S = TIMEOUT_S + 2.0
HANG_S = 60.0
START_S = 120.0  # for hangs
ATTEMPTS = 5
AT_ONCE = int(os.environ.get("FAULTS_AT_ONCE", "3"))


class Job:
    """The processes of one case, and what they have said so far."""

    def __init__(self, case, shared_server, stack):
        self.case = case
        self.nodes = stack.enter_context(TwoNodes()) if case.nodes else None
        self.server = shared_server
        if self.nodes:
            address, port = self.nodes.address, 29500
        elif case.own_store:
            address, port = "127.0.0.1", free_port()
        else:
            if case.fault == "frozen_store":
                self.server = stack.enter_context(StoreServer())
            address, port = "127.0.0.1", self.server.new_port()
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.ranks = []
        stack.callback(self.end)
        arguments = [case.model, case.in_program(), case.place, case.victim, case.step, case.delay_us, int(TIMEOUT_S * 1000)]
        for rank in range(case.size):
            prefix = self.nodes.prefix(case.node(rank)) if self.nodes else []
            with open(self.folder / f"errors{rank}", "wb") as file:
                self.ranks.append(subprocess.Popen(
                    [*prefix, PROGRAM, *map(str, arguments)], env=environment(case, rank, address, port, self.nodes),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file))

    def errors(self, rank):
        return (self.folder / f"errors{rank}").read_text(errors="replace")

    def strike_from_outside(self):
        """What the program cannot do to itself; after its rank has announced it."""
        if self.nodes and self.case.fault == "link_down":
            self.nodes.cut()
        if self.case.fault == "frozen_store":
            self.server.process.send_signal(signal.SIGSTOP)
            if self.case.step % 2:
                self.ranks[self.case.victim].kill()

    def end(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()


class Outcome:
    def __init__(self, case):
        self.case = case
        self.problems = []
        self.late_s = 0.0
        self.has_struck = True
        self.named_by, self.failed = 0, 0
        self.messages = []


def wait_for_ends(job, outcome):
    """Times after the fault at which each rank that can end has ended; None where one has not."""
    case, ends, since = job.case, {}, None
    awaited = [rank for rank in range(case.size) if rank != case.victim or not case.victim_stays()]
    begin = time.monotonic()
    while len(ends) < len(awaited):
        if since is None and (struck := fault_messages.time_of("FAULT", job.errors(case.victim))):
            job.strike_from_outside()
            since = time.monotonic() if case.is_from_outside() else struck
        now = time.monotonic()
        for rank in awaited:
            if rank not in ends and job.ranks[rank].poll() is not None:
                ends[rank] = now
        if now > (since + HANG_S if since else begin + START_S):
            missing = [rank for rank in awaited if rank not in ends]
            outcome.problems.append(f"rank {missing} still there {now - (since or begin):.1f} s after the fault")
            break
        time.sleep(0.005)
    since = since or fault_messages.time_of("FAULT", job.errors(case.victim))
    if since is None:
        outcome.problems.append("the fault did not come: " + job.errors(case.victim)[-700:])
        outcome.has_struck = False
        return
    # Who starts later waits longer.
    starts = [fault_messages.time_of("START", job.errors(rank)) or since for rank in awaited]
    outcome.late_s = max(ends.values(), default=since) - max([since, *starts])


def judge(job, outcome):
    case = job.case
    for rank in range(case.size):
        text = job.errors(rank)
        outcome.messages.append(f"rank {rank} ({job.ranks[rank].poll()}): {text.strip()}")
        blaming = fault_messages.without_store_host(text)
        mentioned = fault_messages.ranks_mentioned(blaming, rank, case.size, rank == case.victim)
        innocent = mentioned - case.guilty(rank)
        if innocent:
            outcome.problems.append(f"rank {rank} mentions {sorted(innocent)}: {text.strip()[-900:]}")
        if rank == case.victim and case.fault != "link_down":
            continue
        if job.ranks[rank].poll() == 0:
            if not case.may_end_well():
                outcome.problems.append(f"rank {rank} ended with 0")
            continue
        outcome.failed += 1
        outcome.named_by += fault_messages.names_guilty(text, rank, case)


def run(case, shared_server):
    # On a busy machine ranks may start so far apart that they do not meet, and the fault does not come.
    for _ in range(ATTEMPTS):
        outcome = Outcome(case)
        with contextlib.ExitStack() as stack:
            job = Job(case, shared_server, stack)
            wait_for_ends(job, outcome)
            judge(job, outcome)
        if outcome.has_struck:
            break
    return outcome


def tell(number, outcome, log):
    problems = list(outcome.problems)
    if outcome.failed and outcome.named_by < outcome.failed:
        problems.append(f"the guilty rank is named by {outcome.named_by} of {outcome.failed}")
    if outcome.late_s > LATEST_S:
        problems.append(f"the last ended {outcome.late_s:.2f} s after the fault")
    for problem in problems:
        print(f"case {number} ({outcome.case}): {problem}", flush=True)
    if log:
        lines = "\n    ".join(line for message in outcome.messages for line in message.splitlines())
        log.write(f"case {number} ({outcome.case}), last end {outcome.late_s:.2f} s\n    {lines}\n")
        log.flush()


def run_all(cases, server, log):
    lock, outcomes = threading.Lock(), {}
    todo = collections.deque(enumerate(cases))

    def work():
        while True:
            with lock:
                if not todo:
                    return
                number, case = todo.popleft()
            outcome = run(case, server)
            with lock:
                outcomes[number] = outcome
                tell(number, outcome, log)

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def main():
    rng = random.Random(SEED)
    cases = [fault_cases.random_case(rng, ONLY, CAN_MAKE_NODES) for _ in range(COUNT)]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(StoreServer())
        log = stack.enter_context(open(os.environ["FAULTS_LOG"], "w")) if "FAULTS_LOG" in os.environ else None
        outcomes = run_all(cases, server, log)
        late = [number for number, outcome in sorted(outcomes.items()) if outcome.late_s > LATEST_S]
        late_again = 0
        for number in late:
            ends_s = []
            while len(ends_s) < ATTEMPTS and min(ends_s, default=LATEST_S + 1) > LATEST_S:
                ends_s.append(run(cases[number], server).late_s)
            late_again += min(ends_s) > LATEST_S
            print(f"case {number} ({cases[number]}) alone: {', '.join(f'{s:.2f} s' for s in ends_s)}", flush=True)
    outcomes = [outcomes[number] for number in range(COUNT)]
    failed = [outcome for outcome in outcomes if outcome.failed]
    unnamed = sum(outcome.named_by == 0 for outcome in failed)
    not_by_all = sum(outcome.named_by < outcome.failed for outcome in failed)
    broken = sum(bool(outcome.problems) for outcome in outcomes)
    ends = sorted(outcome.late_s for outcome in outcomes)
    quantiles = ", ".join(f"{share:.0%} {ends[min(COUNT - 1, int(share * COUNT))]:.2f} s" for share in (0.5, 0.9, 0.99, 1))
    print(f"{COUNT} faults (seed {SEED}) over {sum(case.nodes for case in cases)} pairs of nodes: the guilty rank named in "
          f"{COUNT - unnamed}, by every rank that failed in {COUNT - not_by_all}; with problems {broken}")
    print(f"last ends after the fault: {quantiles}; beyond {LATEST_S:.0f} s: {len(late)}, of these alone: {late_again}")
    print(", ".join(f"{fault} {n}" for fault, n in collections.Counter(case.fault for case in cases).most_common()))
    sys.exit(broken > 0 or late_again > 0 or unnamed > max(1, 0.01 * COUNT))


main()
