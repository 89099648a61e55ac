"""The jobs of one description: C++ under ddprun, Python by the processes of tests/examples/twin_host.py. Standard library only."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HOST = HERE.parent / "examples" / "twin_host.py"
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_", "DDPRUN_")


@dataclasses.dataclass
class Outcome:
    status: int
    error: str  # what the ranks printed, where the status is not 0

    @property
    def failed(self):
        return self.status != 0


def environment():
    variables = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    return variables | {"OMP_NUM_THREADS": "1"}


class Jobs:
    def __init__(self, program, launcher, limit_s):
        self.program, self.launcher, self.limit_s = str(program), str(launcher), limit_s
        self.host = subprocess.Popen([sys.executable, "-B", str(HOST)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())

    def close(self):
        self.host.stdin.close()
        self.host.wait()

    def run(self, case, folder):
        """Both programs, into `folder`, which is new: what the judge and the C++ side came to."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        description = folder / "case.json"
        description.write_text(json.dumps(case, indent=1) + "\n")
        judge = self.python(case, folder, description, -1)
        if judge.failed:
            return judge, None
        if not case["hops"]:
            return judge, self.cpp(case, folder, description, -1)
        for number, (language, _) in enumerate(case["hops"]):
            outcome = getattr(self, language)(case, folder, description, number)
            if outcome.failed:
                break
        return judge, outcome

    def python(self, case, folder, description, hop):
        request = {"ranks": case["ranks"], "command": [str(HERE / "conformance_twin.py"), str(description), str(folder), str(hop)], "folder": str(folder),
                   "limit_s": self.limit_s}
        self.host.stdin.write(json.dumps(request) + "\n")
        self.host.stdin.flush()
        answer = json.loads(self.host.stdout.readline())
        return Outcome(answer["status"], answer["error"])

    def cpp(self, case, folder, description, hop):
        command = [self.launcher, "-n", str(case["ranks"]), self.program, str(description), str(folder), str(hop)]
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=environment())
        try:
            output, _ = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends its ranks
            output, _ = process.communicate()
            return Outcome(124, f"did not end within {self.limit_s} s\n{output}")
        return Outcome(process.returncode, output)
