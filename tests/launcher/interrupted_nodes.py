"""A job on four hosts, which are network namespaces on a switch, and what can happen to their network."""

import os
import subprocess
import sys
import time

import etcd_nodes
from harness import DDPRUN, Job, wait_until
from hosts import Hosts

ETCD_PORT = 2379
NODES = 4

# Without traffic: a rank that waits. It fails when it is told to.
QUIET = r"""
import os, time
os.chdir(os.environ["DDPRUN_TEST_FOLDER"])
name = f"{os.environ['JOB']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}.{os.environ['RANK']}"
with open("part." + name, "w") as file:
    file.write(str(os.getpid()))
os.rename("part." + name, "ready." + name)
while not os.path.exists("end." + os.environ["JOB"]):
    time.sleep(0.02)
"""
# With traffic: it counts, and sets and gets values, in the job's store. All of them have to be right.
BUSY = QUIET.replace("while not", r"""
import socket, struct
text = lambda data: struct.pack("<Q", len(data)) + data
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
key = os.environ["RANK"].encode()
number = 0
def step():
    global number
    number += 1
    value = str(number).encode() * (1 + number * 997 % 20000)
    store.sendall(b"\1" + text(key) + text(value) + b"\3" + text(key) + b"\4" + text(b"count" + key) + struct.pack("<q", 1))
    assert store.recv(8 + len(value), socket.MSG_WAITALL) == text(value)
    assert store.recv(8, socket.MSG_WAITALL) == struct.pack("<q", number)
while not""").replace("    time.sleep(0.02)", "    step(); time.sleep(0.01)")


class Nodes:
    """A job on hosts of its own, and what can happen to their network."""

    def __init__(self, test, name, meeting, program=QUIET, options=()):
        self.test = test
        self.name = name
        self.begin = time.monotonic()
        self.interruptions = []
        self.hosts = Hosts(NODES + (meeting == "etcd"), (4,))
        test.addCleanup(self.hosts.close)
        if meeting == "etcd":
            self.start_etcd()
        script = test.write(f"rank.{name}.py", program)
        self.jobs = []
        self.logs = []
        for place in range(NODES):
            words = [*self.hosts.on(place), DDPRUN, *self.meeting(meeting, place), "-n", "1", "--grace", "5", "--store_proxy", "all",
                     *options, sys.executable, script]
            log = open(test.path(f"log.{name}.{place}"), "w", encoding="utf-8")
            test.addCleanup(log.close)
            job = Job(words[1:], test.folder, environment={"JOB": name}, program=words[0], stdout=log, stderr=log)
            test.addCleanup(job.clean_up)
            self.jobs.append(job)

    def start_etcd(self):
        """On a host of its own, which is never interrupted."""
        command = etcd_nodes.etcd_command(self.test.path("etcd." + self.name), f"http://{self.hosts.address(NODES)}:{ETCD_PORT}")
        server = subprocess.Popen([*self.hosts.on(NODES), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.test.addCleanup(server.wait)
        self.test.addCleanup(server.kill)

    def meeting(self, kind, place):
        if kind == "etcd":
            return ["--nnodes", f"2:{NODES}", "--rdzv_backend", "etcd", "--rdzv_endpoint", f"{self.hosts.address(NODES)}:{ETCD_PORT}"]
        endpoint = f"{self.hosts.address(0)}:29400"
        if kind == "static":
            return ["--nnodes", str(NODES), "--node_rank", str(place), "--master_addr", self.hosts.address(0), "--master_port", "29400"]
        nnodes = {"c10d": str(NODES), "elastic": f"2:{NODES}"}[kind]
        return ["--nnodes", nnodes, "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint]

    def wait_for_ranks(self, attempt=0, count=NODES):
        for rank in range(count):
            wait_until(lambda rank=rank: os.path.exists(self.test.path(f"ready.{self.name}.{attempt}.{rank}")),
                       f"rank {rank} of attempt {attempt}\n{self.log()}", patience=90)

    def is_there(self, place):
        return self.jobs[place].process.poll() is None

    def end_ranks(self):
        self.test.write("end." + self.name, "")

    def process(self, place, which):
        """A process of this node's launcher, or a rank anywhere."""
        job = self.jobs[place]
        return {"guardian": lambda: job.process.pid, "sweeper": job.sweeper, "supervisor": job.supervisor,
                "rank": lambda: int(self.test.read(f"ready.{self.name}.0.{place}"))}[which]()

    def others(self, place):
        return [node for node in range(NODES) if node != place]

    def end_alike(self, places):
        """Whatever the status is, all have it."""
        self.jobs[places[0]].process.wait(120)
        self.end(self.jobs[places[0]].process.returncode, places)

    def end(self, status, places=range(NODES)):
        for place in places:
            try:
                got = self.jobs[place].process.wait(120)
            except subprocess.TimeoutExpired:
                got = "none"
            self.test.assertEqual(got, status, f"node {place}\n{self.log()}")

    def log(self):
        text = f"at {time.monotonic() - self.begin:.2f} s, interruptions: {' '.join(self.interruptions)}\n"
        for place in range(NODES):
            text += f"--- {self.name}, node {place}\n" + self.test.read(f"log.{self.name}.{place}")[-4000:]
        return text

    def interrupt(self, kind, place, down):
        """`kind` of interruption at host `place`; with all, at every one."""
        now = time.monotonic() - self.begin
        self.interruptions.append(f"{kind} at {place} from {now:.2f}" if down else f"to {now:.2f} s")
        for host in range(NODES) if place == "all" else [place]:
            self.hosts.interrupt(kind, host, down)
