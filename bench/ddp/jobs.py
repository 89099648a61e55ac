"""Jobs of two ranks that train on request, with this library or with Python's DistributedDataParallel. Everything
else is the same in both."""

import os
import pathlib
import socket
import subprocess

HERE = pathlib.Path(__file__).parent
PROGRAM = [str(pathlib.Path(os.environ["BENCH_PROGRAMS"]) / "bench_ddp_train")]
PYTHON = [os.environ["BENCH_PYTHON"], str(HERE / "train.py")]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Job:
    """Two ranks (on a GPU one rank). Rank r is started with the command prefixes[r] + command and with variables[r].
    Jobs of this library use `backend`."""

    def __init__(self, command, prefixes=((), ()), address="127.0.0.1", variables=({}, {}), device="cpu", backend="gloo"):
        port = free_port()
        self.ranks = []
        size = 1 if device == "cuda" else 2
        for rank in range(size):
            environment = dict(os.environ, OMP_NUM_THREADS="1", MASTER_ADDR=address)
            environment |= {"MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
            environment |= {"LOCAL_WORLD_SIZE": str(size)} | ({} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""})
            environment |= variables[rank]
            self.ranks.append(
                subprocess.Popen(
                    [*prefixes[rank], *command, device, *([backend] if command == PROGRAM else [])],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )

    def run(self, case: str, iterations: int) -> list[list[float]]:
        """Returns the numbers of each rank."""
        for rank in self.ranks:
            rank.stdin.write(f"{case} {iterations}\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self.ranks]
        if not all(lines):
            raise SystemExit(f"bench/ddp: a rank failed in {case}: {lines}")
        return [[float(word) for word in line.split()] for line in lines]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(timeout=30)
            finally:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
