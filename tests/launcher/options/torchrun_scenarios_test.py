"""ddprun does what torchrun does, scenario by scenario (torchrun_scenarios.py): how it ends, what the ranks are told, what they print
where, what is in the log files. torchrun/scenarios.json has what torchrun did; `--write` renews it. With JUDGE=1 torchrun itself, the
newest one in the cache folder, is compared with that file; exit status 77 where there is none."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

from harness import DDPRUN, PATIENCE, LauncherTest, free_port, processes_with, wait_until
from torchrun_scenarios import PYTHON, SCENARIOS

RECORD = pathlib.Path(__file__).resolve().parent / "torchrun/scenarios.json"
CACHE = os.environ.get("DDPRUN_CACHE") or os.path.expanduser("~/.cache/ddprun")
PRELUDE = """: >> "$OUT/ran"
say() { echo "$*" >> "$OUT/said.$RANK"; }
mark() { : > "$OUT/mark.$1"; }
await() { until [ -e "$OUT/mark.$1" ]; do sleep 0.02; done; }
"""
FILES = {
    "script.py": PYTHON,
    "plain": PYTHON,
    "package/__init__.py": "",
    "package/__main__.py": PYTHON,
    "package/module.py": PYTHON,
    "unbuffered.py": PYTHON + "    print(os.environ.get('PYTHONUNBUFFERED') or sys.stdout.write_through, file=file)\n",
    "interpreter": "#!/bin/sh\n" + PRELUDE + 'say "$@"\n',
}


def newest_torchrun():
    found = glob.glob(f"{CACHE}/venv-*/bin/torchrun")
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.split("venv-")[1])], default=None)


class Run:
    """One scenario with one launcher, in a folder of its own."""

    def __init__(self, scenario, launcher):
        self.scenario, self.launcher = scenario, launcher
        self.folder = tempfile.mkdtemp(prefix="ddprun_test_")
        self.port = str(free_port())
        self.processes = []
        for name, text in {**FILES, "job.sh": PRELUDE + scenario["script"] + "\n"}.items():
            path = pathlib.Path(self.folder, name)
            path.parent.mkdir(exist_ok=True)
            is_program = name in ("interpreter", "job.sh")
            path.write_text("#!/bin/sh\n" + text if is_program and not text.startswith("#!") else text)
            if is_program:
                path.chmod(0o755)

    def filled(self, text):
        return text.replace("FOLDER", self.folder).replace("PORT", self.port).replace("JOB", self.folder + "/job.sh")

    def words(self, node):
        options = shlex.split(self.filled(node)) + shlex.split(self.filled(self.scenario["options"]))
        program = shlex.split(self.filled(self.scenario.get("program", "")))
        launcher = [self.launcher]
        if self.scenario.get("launch"):
            if self.launcher == DDPRUN:
                options += [] if "--use-env" in options else ["--pass-local-rank=local-rank"]
            else:
                launcher = [os.path.join(os.path.dirname(self.launcher), "python"), "-m", "torch.distributed.launch"]
        if not program and not self.scenario.get("bare"):
            options.append("--no-python")
            program = [self.folder + "/job.sh", *self.scenario.get("arguments", [])]
        return launcher + options + program

    def start(self, node=""):
        environment = {name: value for name, value in os.environ.items() if not re.match("PET_|TORCH|CUDA_|OMP_|PYTHON_EXEC", name)}
        environment.update({name: self.filled(value) for name, value in self.scenario.get("environment", {}).items()})
        environment.update(OUT=self.folder + "/out", TORCHELASTIC_ERROR_FILE=self.folder + "/parent.json", PYTHONDONTWRITEBYTECODE="1")
        os.makedirs(self.folder + "/out", exist_ok=True)
        number = len(self.processes)
        with open(f"{self.folder}/stdout.{number}", "wb") as out, open(f"{self.folder}/stderr.{number}", "wb") as err:
            self.processes.append(subprocess.Popen(self.words(node), cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                                   stdout=out, stderr=err, start_new_session=True))

    def said(self):
        lines = []
        for path in sorted(glob.glob(self.folder + "/out/said.*")):
            rank = path.rsplit(".", 1)[1]
            lines += [f"{rank}: {line}" for line in pathlib.Path(path).read_text().replace(self.folder, "FOLDER").replace(self.port, "PORT").splitlines()]
        return sorted(lines)

    def printed(self, stream, mark):
        """Lines of the ranks, without prefixes where they begin with the mark."""
        text = "".join(pathlib.Path(path).read_text() for path in glob.glob(f"{self.folder}/{stream}.*"))
        prefix = r"^(\[[^]]*\]:? ?)?" if mark else ""
        lines = sorted(re.sub(prefix, "", line) for line in text.splitlines() if re.search(prefix + (mark or ".*(out|err)") + " ", line))
        return lines if len(lines) < 100 else [f"{len(lines)} lines, CRC {zlib.crc32(repr(lines).encode())}"]

    def logs(self):
        found = {}
        for path in sorted(pathlib.Path(self.folder, "logs").rglob("*.log")):
            parts = path.relative_to(self.folder).parts
            name = "/".join(re.sub(r"^(job|none|[0-9a-f-]{20,})_\w+$", "ID", part) for part in parts)
            if path.name.startswith("filtered"):
                found[name] = sorted(re.sub(r"^\[[^]]*\]:? ?", "", line) for line in path.read_text().splitlines())
            else:
                found[name] = path.read_text().splitlines()
        return {name: lines for name, lines in found.items() if lines}

    def parent(self):
        path = pathlib.Path(self.folder, "parent.json")
        if not path.exists():
            return None
        content = json.loads(path.read_text())["message"]
        return content["message"] if isinstance(content, dict) else content

    def facts(self):
        begin = time.monotonic()
        nodes = self.scenario.get("nodes", [""] * self.scenario.get("jobs", 1))
        for node in nodes:
            self.start(node)
        if "signal" in self.scenario:
            ranks = int(re.search(r"--nproc-per-node=(\d)", self.scenario["options"])[1])
            wait_until(lambda: sum("ready" in line for line in self.said()) == ranks, "the ranks")
            os.kill(self.processes[0].pid, getattr(signal, "SIG" + self.scenario["signal"]))
        statuses = [process.wait(PATIENCE) for process in self.processes]
        seconds = time.monotonic() - begin
        ran = os.path.exists(self.folder + "/out/ran")
        facts = {"ends": ["well" if status == 0 else "failed" if ran else "refused" for status in statuses], "said": self.said()}
        for fact in self.scenario.get("sees", ()):
            facts[fact] = {"out": lambda: self.printed("stdout", "out"), "err": lambda: self.printed("stderr", "err"),
                           "raw": lambda: self.printed("stdout", ""), "logs": self.logs, "parent": self.parent}[fact]()
        if "within" in self.scenario:
            facts["in time"] = seconds < self.scenario["within"]
        return facts

    def clean_up(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in processes_with(f"OUT={self.folder}/"):  # that torchrun left behind
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def facts_of(scenario, launcher):
    run = Run(scenario, launcher)
    try:
        return run.facts()
    finally:
        run.clean_up()


def expected_of(scenario, recorded):
    """What ddprun is to do: as torchrun, but for what is documented."""
    facts = {**recorded[scenario["name"]], **scenario.get("differs", {})}
    return {name: value for name, value in facts.items() if value is not None or name == "parent"}


class TorchrunScenarios(LauncherTest):
    maxDiff = None

    def compare(self, launcher, expected):
        for scenario in SCENARIOS:
            if re.search(os.environ.get("ONLY", ""), scenario["name"]) is None:
                continue
            with self.subTest(scenario=scenario["name"]):
                facts = facts_of(scenario, launcher)
                wanted = expected(scenario)
                self.assertEqual({name: value for name, value in facts.items() if name in wanted}, wanted)

    @unittest.skipIf("JUDGE" in os.environ, "torchrun's turn")
    def test_ddprun_does_as_torchrun_did(self):
        recorded = json.loads(RECORD.read_text())
        self.assertEqual(sorted(recorded), sorted(scenario["name"] for scenario in SCENARIOS))
        self.assertGreater(len(recorded), 100)
        for scenario in SCENARIOS:
            self.assertLessEqual(set(scenario.get("varies", ())), set(scenario.get("differs", ())), "what varies is not a measure")
        self.compare(DDPRUN, lambda scenario: expected_of(scenario, recorded))

    @unittest.skipUnless("JUDGE" in os.environ, "slow")
    def test_torchrun_does_as_is_recorded(self):
        recorded = json.loads(RECORD.read_text())
        self.compare(newest_torchrun(), lambda scenario: {name: value for name, value in recorded[scenario["name"]].items()
                                                          if name not in scenario.get("varies", ())})


def write():
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for scenario in SCENARIOS:
        if re.search(os.environ.get("ONLY", ""), scenario["name"]):
            known[scenario["name"]] = facts_of(scenario, newest_torchrun())
            print(scenario["name"], known[scenario["name"]]["ends"], flush=True)
            rows = [f"  {json.dumps(s['name'])}: {json.dumps(known[s['name']], ensure_ascii=False)}" for s in SCENARIOS if s["name"] in known]
            RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    if "JUDGE" in os.environ and newest_torchrun() is None:
        print(f"skipped: no torchrun in {CACHE}/venv-*")
        sys.exit(77)
    write() if sys.argv[1:] == ["--write"] else unittest.main()
