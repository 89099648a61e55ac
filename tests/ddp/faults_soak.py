"""One rank of a job goes wrong at a random place: every other rank ends in time and names it, and nobody names another.

    faults_soak.py PROGRAM COUNT [SEED [FAULT]]    with an interpreter that has torch; PROGRAM is fault_program

Every process has to end within the group's timeout and 2 s on a quiet machine; the greatest is printed, and the test fails
far beyond that.
"""

import collections
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM, COUNT = sys.argv[1], int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(10**6)
ONLY = sys.argv[4:]

TIMEOUT_S = 4.0
MARGIN_S = 20.0
START_S = 120  # for hangs
AT_ONCE = 3
MODELS = ("ddp", "buffers", "syncbn", "horovod", "plain")
FAULTS = ("kill", "stop", "skip", "throw", "other", "hook", "frozen_store", "frozen_host", "killed_host", "link_down")
# Serves stores, a line with a port for each line read, and ends with its input.
SERVER = """
import sys, torch.distributed as dist
stores = []
for line in sys.stdin:
    stores.append(dist.TCPStore(line.strip(), 0, is_master=True, wait_for_workers=False))
    print(stores[-1].port, flush=True)
"""
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_")


class StoreServer:
    def __init__(self, prefix=()):
        command = [*prefix, sys.executable, "-c", SERVER]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lock = threading.Lock()

    def new_port(self, host="127.0.0.1"):
        with self.lock:
            self.process.stdin.write(host + "\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TwoNodes:
    """Two network namespaces and a wire between them: node 0 is 10.201.N.1, node 1 10.201.N.2."""

    used = 0
    lock = threading.Lock()

    def __init__(self):
        with TwoNodes.lock:
            TwoNodes.used += 1
            self.number = TwoNodes.used % 250
        tag = f"df{os.getpid() % 10000}x{self.number}"
        self.names = [f"{tag}a", f"{tag}b"]
        self.address = f"10.201.{self.number}.1"
        for name in self.names:
            self.run("ip", "netns", "add", name)
        self.run("ip", "link", "add", f"{tag}p", "netns", self.names[0], "type", "veth", "peer", f"{tag}q", "netns", self.names[1])
        for name, link, last in ((self.names[0], f"{tag}p", 1), (self.names[1], f"{tag}q", 2)):
            self.run("ip", "-n", name, "addr", "add", f"10.201.{self.number}.{last}/24", "dev", link)
            self.run("ip", "-n", name, "link", "set", link, "up")
            self.run("ip", "-n", name, "link", "set", "lo", "up")
        self.link = f"{tag}p"
        self.links = (f"{tag}p", f"{tag}q")

    def run(self, *command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def cut(self):
        self.run("ip", "-n", self.names[0], "link", "set", self.link, "down")

    def prefix(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@dataclasses.dataclass
class Case:
    model: str
    fault: str
    size: int
    victim: int
    step: int
    own_store: bool  # rank 0 hosts the store
    delay: float

    def __str__(self):
        return f"{self.fault} of rank {self.victim}/{self.size} at step {self.step}, {self.model}, {'rank 0' if self.own_store else 'launcher'} hosts"


def random_case(rng):
    fault = rng.choice([f for f in ONLY or FAULTS if f != "link_down" or CAN_MAKE_NODES])
    size = rng.choice((2, 3, 4))
    own_store = fault in ("frozen_host", "killed_host") or (fault not in ("frozen_store",) and rng.random() < 0.4)
    victim = rng.randrange(size)
    if fault in ("frozen_host", "killed_host"):
        victim = 0
    if fault == "frozen_store":
        own_store = False
    if fault == "link_down":
        size, own_store = rng.choice((2, 4)), True
        victim = size - 1
    return Case(rng.choice(MODELS), fault, size, victim, rng.randrange(1, 9), own_store, rng.random())


CAN_MAKE_NODES = os.geteuid() == 0 and shutil.which("ip") is not None and subprocess.run(
    ["ip", "netns", "list"], capture_output=True).returncode == 0
IN_PROGRAM = {"frozen_host": "stop", "killed_host": "kill", "frozen_store": "kill", "link_down": "none"}


def environment(case, rank, address, port, nodes):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    clean.update(RANK=str(rank), WORLD_SIZE=str(case.size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(case.size),
                 MASTER_ADDR=address, MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                 TORCHELASTIC_USE_AGENT_STORE=str(not case.own_store))
    if nodes:
        clean["GLOO_SOCKET_IFNAME"] = nodes.links[rank * 2 // case.size]
    return clean


def fault_time(errors):
    found = re.search(r"^FAULT ([\d.]+)$", errors, re.M)
    return float(found.group(1)) if found else None


def named(errors):
    """The ranks that a message blames; those of a disagreement without a majority are all listed and none is blamed."""
    ranks = set()
    for text in re.findall(r"did not take part in it: rank ([\d, ]+)", errors):
        ranks.update(int(number) for number in re.findall(r"\d+", text))
    for text in re.findall(r"the ranks disagree at number \d+: (.*), the others ", errors):
        for group in re.findall(r"rank ([\d, ]+) called", text):
            ranks.update(int(number) for number in re.findall(r"\d+", group))
    if "the job's store, which rank 0 hosts, does not answer" in errors:
        ranks.add(0)
    return ranks


def run(case, shared_server):
    nodes = TwoNodes() if case.fault == "link_down" else None
    server = None
    folder = tempfile.TemporaryDirectory()
    files, ranks = [], []
    try:
        address, port = "127.0.0.1", None
        if nodes:
            address, port = nodes.address, 29500
        elif case.own_store:
            port = free_port()
        else:
            server = StoreServer() if case.fault == "frozen_store" else shared_server
            port = server.new_port()
        fault = IN_PROGRAM.get(case.fault, case.fault)
        for rank in range(case.size):
            file = open(pathlib.Path(folder.name) / f"errors{rank}", "w+")
            files.append(file)
            prefix = nodes.prefix(rank * 2 // case.size) if nodes else []
            ranks.append(subprocess.Popen(
                [*prefix, PROGRAM, case.model, fault, str(case.victim), str(case.step), str(int(TIMEOUT_S * 1000))],
                env=environment(case, rank, address, port, nodes), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=file))
        return watch(case, ranks, files, nodes, server)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
        for file in files:
            file.close()
        if case.fault == "frozen_store" and server:
            server.close()
        if nodes:
            nodes.close()
        folder.cleanup()


def watch(case, ranks, files, nodes, server):
    """(problems, guilty was named). Waits until all but the victim have ended."""
    started, since, ends = time.monotonic(), None, {}
    others = [rank for rank in range(case.size) if rank != case.victim]
    if nodes:
        others = list(range(case.size))

    def errors(rank):
        files[rank].flush()
        return pathlib.Path(files[rank].name).read_text()

    while len(ends) < len(others):
        now = time.monotonic()
        if since is None:
            since = fault_time(errors(case.victim))
            if since and nodes:
                time.sleep(case.delay / 10)
                nodes.cut()
                since = time.monotonic()
            elif since and case.fault == "frozen_store":
                server.process.send_signal(signal.SIGSTOP)
        for rank in others:
            if rank not in ends and ranks[rank].poll() is not None:
                ends[rank] = now
        limit = since + 2 * (TIMEOUT_S + MARGIN_S) if since else started + START_S
        if now > limit:
            missing = [rank for rank in others if rank not in ends]
            return [f"rank {missing} still there {now - (since or started):.1f} s after the fault"], False, 0
        time.sleep(0.01)
    problems, guilty_named = [], 0
    for rank in others:
        text = errors(rank)
        if ranks[rank].returncode == 0:
            if case.fault != "skip":
                problems.append(f"rank {rank} ended with 0")
            continue
        blamed = named(text)
        if nodes:
            node = rank * 2 // case.size
            guilty = {r for r in range(case.size) if r * 2 // case.size != node}
            innocent = blamed - guilty
            guilty_named += bool(blamed & guilty) or "does not answer" in text
        else:
            innocent = blamed - {case.victim}
            guilty_named += case.victim in blamed or (case.size == 2 and "the ranks disagree" in text) or \
                (case.fault == "frozen_store" and "which the launcher hosts, does not answer" in text)
        if innocent:
            problems.append(f"rank {rank} blames {sorted(innocent)}: {text.strip()[-700:]}")
    late = max(ends.values()) - (since or started)
    if since and late > TIMEOUT_S + MARGIN_S:
        problems.append(f"the last ended {late:.1f} s after the fault")
    failed = [rank for rank in others if ranks[rank].returncode != 0]
    return problems, guilty_named == len(failed), late


def main():
    rng = random.Random(SEED)
    cases = [random_case(rng) for _ in range(COUNT)]
    server = StoreServer()
    lock, results = threading.Lock(), []
    todo = collections.deque(enumerate(cases))

    def work():
        while True:
            with lock:
                if not todo:
                    return
                number, case = todo.popleft()
            problems, guilty, late = run(case, server)
            with lock:
                results.append((case, problems, guilty, late))
                for problem in problems:
                    print(f"case {number} ({case}): {problem}", flush=True)
                if not guilty and not problems:
                    print(f"case {number} ({case}): the guilty rank is not named by all", flush=True)

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.close()
    named_all = sum(guilty for _, _, guilty, _ in results)
    broken = sum(bool(problems) for _, problems, _, _ in results)
    slowest = max(late for *_, late in results)
    kinds = collections.Counter(case.fault for case, *_ in results)
    print(f"{COUNT} faults (seed {SEED}): named {named_all}, with problems {broken}, slowest end {slowest:.2f} s; {dict(kinds)}")
    sys.exit(broken > 0 or named_all < 0.99 * COUNT)


main()
