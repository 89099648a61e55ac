"""Runs the Python scripts that programs.py asks for, a line of JSON each, as forks of one process that has imported torch.

Asked: {"ranks": how many, 0 for a process without a job, "command": script and arguments, "folder": where it runs, "limit_s"}.
Answered: {"status": of the first rank that failed, or 0, "output": of rank 0, "error": of all ranks}.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import forked_python  # noqa: E402
from free_port import free_port  # noqa: E402
import torch._dynamo  # noqa: E402, F401


def variables(rank, ranks, port):
    if not ranks:
        return {}
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def run(ranks, command, folder, limit_s):
    port = free_port()
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as error:
        processes = [
            forked_python.popen(command, env=os.environ | variables(rank, ranks, port), cwd=folder, stdin=subprocess.DEVNULL,
                                stdout=output if rank == 0 else error, stderr=error)
            for rank in range(ranks or 1)
        ]
        while None in (statuses := [process.poll() for process in processes]):
            if any(statuses) or time.monotonic() > deadline:  # the others would wait for the one that failed
                break
            time.sleep(0.01)
        for process in processes:
            process.kill()
            process.wait()
        status = next((status for status in statuses if status), 1 if None in statuses else 0)
        output.seek(0)
        error.seek(0)
        return {"status": status, "output": output.read(), "error": error.read()}


for line in sys.stdin:
    print(json.dumps(run(**json.loads(line))), flush=True)
