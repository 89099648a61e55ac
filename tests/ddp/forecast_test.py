"""What `ddprun-timeline --what-if` predicts for 4 and 8 ranks from a recording of 2 ranks, against trainings with so many ranks: each in
a network namespace whose link is limited, three nets, two bandwidths. Prints the errors in percent. Needs root.
The nets sleep instead of computing, so that eight ranks need few processors."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "launcher"))
from hosts import Hosts, skip_reason  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
TOOL = os.environ["TIMELINE_TOOL"]
STEPS = int(os.environ.get("FORECAST_STEPS", "12"))
NETS = ("even", "front", "uneven")
MBITS = (20, 40)
PAYLOAD = 0.93  # of a link's bandwidth; the rest are headers of Ethernet, IP and TCP, and acknowledgements
LATENCY = "300us"  # of a message between processes that share two processors
MOST_OFF = 15


def percent_off(predicted, measured):
    return 100 * (predicted / measured - 1)


class Forecast(unittest.TestCase):
    def train(self, hosts, ranks, folder=None):
        """Milliseconds per step, by net, and "latency" of a message, in microseconds."""
        variables = {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": "29517"}
        variables |= {"MASTER_ADDR": hosts.address(0), "GLOO_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": ""}
        command = [PROGRAM, str(STEPS), *([folder] if folder else [])]
        processes = [subprocess.Popen([*hosts.on(rank), *command], env=dict(os.environ, **variables, RANK=str(rank)),
                                      stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
        try:
            outputs = [process.communicate(timeout=600)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        self.assertEqual([process.returncode for process in processes], [0] * ranks)
        return {line.split()[0]: float(line.split()[1]) for line in outputs[0].splitlines()}

    def predict(self, folder, net, ranks, mbit):
        parts = sorted(str(path) for path in pathlib.Path(folder).glob(f"{net}.rank*.json"))
        self.assertEqual(len(parts), 2)
        trace = f"{folder}/{net}.json"
        subprocess.run([TOOL, "merge", "-o", trace, *parts], check=True, capture_output=True, timeout=60)
        what_if = f"ranks={ranks},bandwidth={PAYLOAD * mbit}Mbit,latency={LATENCY},algorithm=ring"
        done = subprocess.run([TOOL, trace, "--json", "--what-if", what_if], check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)["predicted"]["step_ms"]

    def test_steps_of_4_and_8_ranks_are_predicted_from_a_recording_of_2(self):
        if skip_reason():
            self.skipTest(skip_reason())
        hosts = Hosts(8, kinds=(4,))
        self.addCleanup(hosts.close)
        off = {}
        for mbit in MBITS:
            for host in range(8):
                hosts.slow_down(host, f"{mbit}mbit", "1s")
            with tempfile.TemporaryDirectory() as folder:
                latency = self.train(hosts, 2, folder)["latency"]
                print(f"at {mbit} Mbit/s a message took {latency:.0f} us; {LATENCY} is expected where nothing else runs", flush=True)
                for ranks in (4, 8):
                    predicted = {net: self.predict(folder, net, ranks, mbit) for net in NETS}
                    for net, measured in self.train(hosts, ranks).items():
                        if net not in NETS:
                            continue
                        off[mbit, ranks, net] = percent_off(predicted[net], measured)
                        print(f"{net} on {ranks} ranks at {mbit} Mbit/s: predicted {predicted[net]:.1f} ms, measured {measured:.1f} ms, "
                              f"{off[mbit, ranks, net]:+.1f} %", flush=True)
        self.assertEqual({key for key, percent in off.items() if abs(percent) > MOST_OFF}, set(), off)


if __name__ == "__main__":
    unittest.main(verbosity=2)
