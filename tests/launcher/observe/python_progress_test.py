"""What `import ddprun` reports of a rank in Python, that it costs little, and that it changes nothing in the program."""

import json
import os
import signal
import subprocess
import sys
import unittest

from harness import DDPRUN, LauncherTest, wait_until

PACKAGE = os.environ["PYTHON_PACKAGE"]
BEGIN = """import os, sys, time
{}
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
torch.manual_seed(3)
FOLDER = os.environ["DDPRUN_TEST_FOLDER"]
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
# Whatever a program may do with the wrapper and the collectives; prints what it computes.
TRAIN = """
net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
for step in range(4):
    for micro in range(2):
        x = torch.randn(8, 4)
        if micro == 0:
            with net.no_sync():
                net(x).square().sum().backward()
        else:
            net(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        net(x)
class Many(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = self.inner(x)
        return {"a": y, "b": [y * 2, (y.detach(), None)], "c": 3}
many = DistributedDataParallel(Many())
out = many(torch.ones(2, 4))
(out["b"][0].sum() + out["a"].sum()).backward()
torch.autograd.grad(many(torch.ones(2, 4))["a"].sum(), list(many.parameters()), allow_unused=True)
values = [torch.full((2,), float(rank))]
dist.all_reduce(values[0], op=dist.ReduceOp.MAX)
handle = dist.all_reduce(values[0], async_op=True)
handle.wait()
parts = [torch.zeros(2) for _ in range(2)]
dist.all_gather(parts, values[0])
whole = torch.zeros(4)
dist.all_gather_into_tensor(whole, values[0])
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
if rank == 0:
    dist.send(torch.ones(3), 1, tag=4)
else:
    dist.recv(values[0].new_zeros(3), src=0, tag=4)
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(2), 1 - rank), dist.P2POp(dist.irecv, torch.zeros(2), 1 - rank)])
[work.wait() for work in works]
group = dist.new_group([1])
if rank == 1:
    dist.broadcast(values[0], src=1, group=group)
dist.all_reduce(tensor=values[0], group=dist.new_group())
dist.barrier()
print("result", [each.tolist() for each in net.state_dict().values()], values, parts, whole, objects, many.module.inner.weight.grad.tolist())
"""


class PythonProgress(LauncherTest):
    def train(self, begin, program, *options, ranks=2, **environment):
        script = self.write("train.py", BEGIN.format(begin) + program)
        return self.start("-n", str(ranks), "--rdzv_id", "python", *options, sys.executable, script,
                          environment={"PYTHONPATH": PACKAGE, "XDG_RUNTIME_DIR": self.folder, **environment})

    def results(self, begin):
        status, out, err = self.train(begin, TRAIN).finish(300)
        self.assertEqual(status, 0, err)
        self.assertNotIn("no longer reported", err)
        return sorted(line for line in out.splitlines() if "result" in line)

    def document(self):
        done = subprocess.run([DDPRUN, "status", "--json"], env={**os.environ, "XDG_RUNTIME_DIR": self.folder}, capture_output=True, text=True,
                              timeout=60)
        lines = done.stdout.splitlines()
        return json.loads(lines[0]) if lines else {"ranks": []}

    def test_a_program_computes_the_same_bits(self):
        plain = self.results("")
        self.assertEqual(len(plain), 2)
        self.assertEqual(self.results("import ddprun"), plain)

    def test_phases_steps_values_and_collectives_are_shown(self):
        job = self.train("import ddprun", """
net = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in torch.utils.data.DataLoader([torch.ones(4)] * 5):
    net(batch).sum().backward()
    time.sleep(0.03)
    optimizer.step()
    ddprun.value("loss", 0.5 + rank)
dist.all_reduce(torch.ones(3))
with ddprun.phase("thinking"):
    open(os.path.join(FOLDER, f"begun{rank}"), "w").close()
    time.sleep(3600)
""")
        self.wait_for_files("begun0", "begun1")
        ranks = wait_until(lambda: (found := self.document()["ranks"]) and all(rank.get("phase") == "thinking" for rank in found) and found, "a phase")
        for number, rank in enumerate(ranks):
            self.assertEqual((rank["rank"], rank["step"], rank["values"]), (number, 5, {"loss": 0.5 + number}))
            # The construction, 5 times the gradients, one more.
            self.assertEqual(rank["collectives"], 7)
            self.assertGreater(rank["seconds_in_phases"]["between phases"], 0.1)
            self.assertLessEqual({"data", "forward", "backward", "optimizer"}, set(rank["seconds_in_phases"]))
        self.assertIn("  all_reduce #6 of 12 bytes  ", subprocess.run(
            [DDPRUN, "status"], env={**os.environ, "XDG_RUNTIME_DIR": self.folder}, capture_output=True, text=True, timeout=60).stdout)
        job.signal(signal.SIGTERM)
        job.finish()

    def test_a_program_counts_its_steps_itself(self):
        job = self.train("import ddprun", """
net = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2)]
for step in range(6):
    for optimizer in optimizers[:1] if step == 0 else optimizers:
        net(torch.ones(4)).sum().backward()
        optimizer.step()
    ddprun.step()
open(os.path.join(FOLDER, "begun"), "w").close()
time.sleep(3600)
""", ranks=1)
        self.wait_for_files("begun")
        self.assertEqual(self.document()["ranks"][0]["step"], 6)
        job.signal(signal.SIGTERM)
        job.finish()

    def test_workers_of_a_loader_do_not_write_as_the_rank(self):
        job = self.train("import ddprun", """
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        for _ in range(100):
            ddprun.step()
        ddprun.value("wrong", 1)
        ddprun.phase("wrong").__enter__()
        return torch.ones(2)
for _ in torch.utils.data.DataLoader(Samples(), num_workers=2):
    pass
open(os.path.join(FOLDER, "begun"), "w").close()
time.sleep(3600)
""", ranks=1)
        self.wait_for_files("begun")
        rank = self.document()["ranks"][0]
        self.assertEqual((rank.get("step", 0), rank["values"]), (0, {}))
        self.assertNotIn("wrong", rank["seconds_in_phases"])
        job.signal(signal.SIGTERM)
        job.finish()

    def test_an_error_in_the_reports_is_printed_once_and_ends_nothing(self):
        status, out, err = self.train("import ddprun", """
from ddprun import _progress
page = _progress._reporter.page
page.enter = None
net = DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(3):
    net(torch.ones(4)).sum().backward()
    with ddprun.phase("data"):
        ddprun.step()
dist.all_reduce(torch.ones(3))
print("trained")
""").finish(300)
        self.assertEqual(status, 0, err)
        self.assertEqual(out.count("trained"), 2)
        self.assertEqual(err.count("the progress of this process is no longer reported"), 2, err)

    def test_torch_is_not_imported_and_elsewhere_nothing_is_hooked(self):
        alone = ("import sys, ddprun; assert 'torch' not in sys.modules; ddprun.step(); ddprun.value('a', 1)\n"
                 "with ddprun.phase('data'): pass\n"
                 "import importlib.util; importlib.util.find_spec('torch')\n"
                 "import torch.distributed as dist; print(hasattr(dist.all_reduce, '__wrapped__') and '_hooks' in dist.all_reduce.__code__.co_filename)")
        environment = {**os.environ, "PYTHONPATH": PACKAGE}
        done = subprocess.run([sys.executable, "-B", "-c", alone], env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)
        # Who asks whether there is a torch does not import it.
        status, out, err = self.run_job("--no_prefix", "--no_python", sys.executable, "-B", "-c", alone, environment={"PYTHONPATH": PACKAGE})
        self.assertEqual((status, out), (0, "True\n"), err)

    def test_compiled_functions_with_collectives_still_compile(self):
        status, out, err = self.train("import ddprun", """
def reduce(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1
print("sum", torch.compile(reduce, backend="eager", fullgraph=True)(torch.ones(2)).tolist())
""").finish(300)
        self.assertEqual(status, 0, err)
        self.assertEqual(out.count("sum [5.0, 5.0]"), 2, out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
