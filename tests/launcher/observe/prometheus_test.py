"""A real Prometheus scrapes a job as the page says; Grafana's own classes read the dashboard. Each is skipped where it is not installed."""

import enum
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import typing
import unittest
import urllib.parse
import urllib.request

from harness import LauncherTest, free_port, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]
# How long it scrapes.
SECONDS = float(os.environ.get("SCRAPE_SECONDS", "4"))
DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


def dashboard():
    return json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))


class Prometheus(LauncherTest):
    def setUp(self):
        super().setUp()
        self.program = shutil.which("prometheus")
        if self.program is None:
            self.skipTest("Prometheus is not installed (Debian's package prometheus)")

    def scrape(self, ports, seconds):
        """Starts a Prometheus with the page's example, which scrapes these ports of this machine each second."""
        page = (DOCS / "watching.md").read_text(encoding="utf-8")
        example = re.search(r"```yaml\n(scrape_configs:\n.*?)```", page, re.DOTALL)[1]
        targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
        example, count = re.subn(r"targets: \[.*\]", f"targets: [{targets}]", example)
        self.assertEqual(count, 1)
        self.write("prometheus.yml", "global:\n  scrape_interval: 1s\n" + example)
        self.url = f"http://127.0.0.1:{free_port()}"
        with open(self.path("prometheus.log"), "wb") as log:
            server = subprocess.Popen([self.program, "--config.file", self.path("prometheus.yml"), "--storage.tsdb.path", self.path("data"),
                                       "--web.listen-address", self.url.removeprefix("http://")], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        wait_until(lambda: len(self.query("up == 1")) == len(ports), "scrapes of all")
        time.sleep(seconds)

    def query(self, expression):
        """What it finds, by their labels."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=30) as reply:
                answer = json.load(reply)
        except OSError:
            return []  # it has just been started
        self.assertEqual(answer["status"], "success", expression)
        return answer["data"]["result"]

    def test_it_finds_the_series_of_a_run_by_its_name(self):
        ports = [free_port(), free_port()]
        jobs = [self.start("-n", "2", "--rdzv_id", name, "--metrics_port", str(port), PROGRAM, self.path(name), "--own", "augmentation")
                for name, port in zip(("cifar", "another one"), ports) if not os.mkdir(self.path(name))]
        self.scrape(ports, SECONDS)
        found = self.query('ddprun_steps_total{run="cifar"}')
        self.assertEqual(sorted(one["metric"]["rank"] for one in found), ["0", "1"])
        for one in found:
            # Those of Prometheus' own, and none of ours that it had to rename.
            self.assertEqual(set(one["metric"]), {"__name__", "run", "rank", "host", "job", "instance"})
            self.assertEqual((one["metric"]["job"], one["metric"]["instance"]), ("ddprun", f"127.0.0.1:{ports[0]}"))
            self.assertGreater(float(one["value"][1]), 0)
        rates = self.query(f'rate(ddprun_steps_total[{int(SECONDS) + 60}s])')
        self.assertEqual(len(rates), 4)
        self.assertTrue(all(float(one["value"][1]) > 0 for one in rates), rates)
        for panel in dashboard()["panels"]:
            expression = panel["targets"][0]["expr"].replace("$run", "cifar|another one")
            series = self.query(re.sub(r" == 1$", "", expression))
            if "gpu" in expression:  # which there need not be here
                continue
            self.assertGreater(len(series), 0, expression)
            if "run" in re.findall(r"{{(\w+)}}", panel["targets"][0]["legendFormat"]):
                self.assertEqual({one["metric"]["run"] for one in series}, {"cifar", "another one"}, expression)
        self.assertEqual(self.query("ddprun_hang == 1"), [])
        for job in jobs:
            job.process.terminate()
        wait_until(lambda: len(self.query("up == 0")) == 2, "the end of both jobs")
        log = self.read("prometheus.log")
        self.assertNotRegex(log, r"level=error|level=warn.*(scrape|append|out of order|duplicate)", log)


def lost(before, after, path="$"):
    """What a class does not know: keys and values that do not survive being read and written."""
    if isinstance(before, dict) and isinstance(after, dict):
        unknown = [f"{path}.{key} is unknown" for key in before if key not in after]
        return unknown + [found for key in before if key in after for found in lost(before[key], after[key], f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [found for i, pair in enumerate(zip(before, after)) for found in lost(*pair, f"{path}[{i}]")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


def mistaken(value, kind, path="$"):
    """Where a value is not of the declared kind."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in (typing.Any, object):
        return []
    if origin is typing.Union:
        return min((mistaken(value, one, path) for one in parts), key=len)
    if origin is list and isinstance(value, list):
        return [found for i, one in enumerate(value) for found in mistaken(one, parts[0], f"{path}[{i}]")]
    if origin is typing.Literal:
        fits = value in parts
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        fits = getattr(value, "value", value) in [one.value for one in kind]
    elif kind is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    else:
        fits = isinstance(value, origin or kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        return [f"{path}: {value!r} is no {kind}"]
    if origin is not None or kind.__module__ == "builtins" or issubclass(kind, enum.Enum):
        return []
    return [found for name, part in typing.get_type_hints(kind).items() if hasattr(value, name)
            for found in mistaken(getattr(value, name), part, f"{path}.{name}")]


class Grafana(unittest.TestCase):
    def setUp(self):
        try:
            from grafana_foundation_sdk.cog import encoder, plugins
            from grafana_foundation_sdk.models import dashboard as models
        except ImportError:
            self.skipTest("Grafana's classes are not installed (PyPI's grafana-foundation-sdk)")
        plugins.register_default_plugins()
        self.models, self.encoder = models, encoder.JSONEncoder

    def problems(self, document):
        read = self.models.Dashboard.from_json(document)
        return lost(document, json.loads(json.dumps(read, cls=self.encoder))) + mistaken(read, self.models.Dashboard)

    def test_its_schema_knows_everything_in_the_dashboard(self):
        self.assertEqual(self.problems(dashboard()), [])

    def test_mistakes_would_be_seen(self):
        document = dashboard()
        document["panels"][0]["titel"] = "Hang"
        document["panels"][1]["targets"][0]["expression"] = "ddprun_hang"
        document["panels"][2]["gridPos"]["x"] = "0"
        document["templating"]["list"][1]["refresh"] = "always"
        text = "\n".join(self.problems(document))
        for part in ("panels[0].titel", "targets[0].expression", "[2].grid_pos.x", "refresh"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
