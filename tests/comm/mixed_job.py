"""Jobs whose ranks are a C++ program and its Python twin, for tests that compare both."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import forked_python  # noqa: E402
from free_port import free_port  # noqa: E402


def run_job(folder, cases, languages, program, twin, killed=(), **variables):
    """Each rank's results; `languages` says what each rank runs: `program`, or `twin` by Python. Both get the files of cases and results.
    Ranks in `killed` end by SIGKILL and have none. A list among the variables has one value per rank."""
    path = folder / "cases.json"
    path.write_text(json.dumps(cases))
    port = free_port()
    ranks = []
    for rank, language in enumerate(languages):
        environment = dict(
            os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(len(languages)), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port), LOCAL_WORLD_SIZE=str(len(languages)), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
        environment.update({name: value[rank] if isinstance(value, list) else value for name, value in variables.items()})
        start, words = (subprocess.Popen, [program]) if language == "C++" else (forked_python.popen, [twin])
        arguments = [*words, path, folder / f"result{rank}.json"]
        with open(folder / f"errors{rank}.txt", "w") as errors:
            ranks.append(start(arguments, env=environment, stderr=errors))
    try:
        # The first one that fails tells why; the others would wait for it.
        deadline = time.monotonic() + 200
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() for number, rank in enumerate(ranks) if number not in killed) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
    finally:
        codes = [rank.poll() for rank in ranks]
        for rank in ranks:
            rank.kill()
            rank.wait()
    for rank, code in enumerate(codes):
        if code != -signal.SIGKILL if rank in killed else code:
            raise AssertionError(f"rank {rank} ended with {code}: {(folder / f'errors{rank}.txt').read_text()}")
    if None in codes:
        raise AssertionError(f"ranks hang: {[rank for rank, code in enumerate(codes) if code is None]}")
    return [None if rank in killed else json.loads((folder / f"result{rank}.json").read_text()) for rank in range(len(languages))]
