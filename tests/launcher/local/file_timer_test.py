"""torchrun's watchdog by a named pipe: TORCHELASTIC_ENABLE_FILE_TIMER and TORCHELASTIC_TIMER_FILE. With PyTorch's own client where
there is a PyTorch, and with a client in a few lines everywhere."""

import os
import stat
import subprocess
import unittest

from harness import LauncherTest, free_port, main, shell

TORCH_PYTHON = os.environ.get("TORCH_PYTHON")
ENABLE = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

# What FileTimerClient writes: one line for each request.
CLIENT = """
import json, os, sys, time
def send(text):
    pipe = os.open(os.environ["TORCHELASTIC_TIMER_FILE"], os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, text.encode())
    os.close(pipe)
def request(scope, expiration, signal=9, pid=os.getpid()):
    return json.dumps({"version": 1, "pid": pid, "scope_id": scope, "expiration_time": expiration, "signal": signal}) + "\\n"
def ask(*arguments, **options):
    send(request(*arguments, **options))
rank = int(os.environ["RANK"])
"""

TORCH = """
import os, time
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
rank = int(os.environ["RANK"])
"""


class FileTimer(LauncherTest):
    def run_ranks(self, script, *options, environment=None, client=CLIENT, python=None):
        self.write("program.py", client + script)
        variables = {**ENABLE, **(environment or {})}
        if python:
            variables["PYTHON_EXEC"] = python
        return self.run_job(*options, self.path("program.py"), environment=variables, cwd=self.folder)

    def test_a_rank_whose_timer_expires_is_killed_and_the_report_says_why(self):
        status, _, err = self.run_ranks("if rank == 1: ask('slow step', time.time() + 0.2)\ntime.sleep(1000)", "-n2")
        self.assertEqual(status, 137, err)
        self.assertRegex(err, r"rank 1, process \d+: its file timer 'slow step' expired; ddprun sends it SIGKILL")
        self.assertIn("ddprun sent SIGKILL because the file timer 'slow step' expired", err)
        self.assertNotIn("out of memory", err)

    def test_a_timer_that_is_released_or_renewed_in_time_does_nothing(self):
        # Both requests in one piece: however slow the machine is, the second one comes in time.
        status, out, err = self.run_ranks(
            "send(request('a', time.time()) + request('a', -1, 0))\n"
            "send(request('b', time.time()) + request('b', time.time() + 1000))\ntime.sleep(2)\nprint('well')", "-n2", "--no_prefix")
        self.assertEqual((status, out, err.count("file timer")), (0, "well\nwell\n", 0), err)

    def test_the_signal_is_the_one_that_the_request_names(self):
        status, out, err = self.run_ranks(
            "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: (print('told', flush=True), os._exit(5)))\n"
            "ask('s', time.time() + 0.2, signal.SIGUSR1)\ntime.sleep(1000)")
        self.assertEqual((status, out), (5, "told\n"), err)
        self.assertIn("ddprun sends it SIGUSR1", err)

    def test_a_request_without_a_signal_kills_nobody(self):
        status, out, err = self.run_ranks("ask('s', time.time() - 1, 0)\ntime.sleep(2)\nprint('well')")
        self.assertEqual((status, out), (0, "well\n"), err)
        self.assertIn("file timer 's' expired; the request has no signal, so none is sent", err)

    def test_a_process_that_a_rank_started_may_have_a_timer(self):
        status, out, err = self.run_ranks(
            "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nask('loader', time.time() + 0.2, pid=child.pid)\n"
            "print(child.wait())")
        self.assertEqual((status, out), (0, "-9\n"), err)

    def test_only_processes_of_the_job_are_signalled(self):
        outside = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        self.addCleanup(outside.wait)
        self.addCleanup(outside.kill)
        status, _, err = self.run_ranks(
            f"for pid in ({outside.pid}, {os.getpid()}, os.getppid(), 1, 0, -1): ask('x', time.time() - 1, pid=pid)\ntime.sleep(2)")
        self.assertEqual(status, 0, err)
        self.assertIsNone(outside.poll())

    def test_lines_that_are_no_requests_are_named_once_and_the_others_count(self):
        status, _, err = self.run_ranks(
            "pipe = os.open(os.environ['TORCHELASTIC_TIMER_FILE'], os.O_WRONLY)\n"
            "os.write(pipe, b'hello\\n[]\\n{}\\n\\xff\\n' + b'x' * 9000 + b'\\n')\ntime.sleep(0.5)\n"
            "ask('s', time.time())\ntime.sleep(1000)")
        self.assertEqual(status, 137, err)
        self.assertEqual(err.count("expected requests of FileTimerClient, got 'hello'"), 1, err)
        self.assertEqual(err.count("expected requests"), 1, err)

    def test_each_attempt_has_its_own_timers(self):
        status, out, err = self.run_ranks(
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    ask('first', time.time() + 0.2)\n    time.sleep(1000)\n"
            "print('again', os.path.exists(os.environ['TORCHELASTIC_TIMER_FILE']))", "--max_restarts=1")
        self.assertEqual((status, out), (0, "again True\n"), err)

    def test_the_pipe_has_the_name_that_is_asked_for_and_goes_with_the_job(self):
        job = self.start(*shell("echo $TORCHELASTIC_TIMER_FILE > name.tmp; mv name.tmp name; until [ -e end ]; do sleep 0.02; done"),
                         environment={**ENABLE, "TORCHELASTIC_TIMER_FILE": "timer"}, cwd=self.folder)
        self.wait_for_files("name")
        self.assertEqual(os.path.realpath(self.read("name").strip()), os.path.realpath(self.path("timer")))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("timer")).st_mode))
        # Another launcher with the same name would take it away.
        status, _, err = self.run_job("true", environment={**ENABLE, "TORCHELASTIC_TIMER_FILE": self.path("timer")})
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)
        self.assertIn("another launcher reads from it", err)
        self.write("end", "")
        self.assertEqual(job.finish()[0], 0)
        self.assertFalse(os.path.lexists(self.path("timer")))

    def test_a_pipe_that_a_killed_launcher_left_is_replaced_and_another_file_is_kept(self):
        os.mkfifo(self.path("timer"))
        status, _, err = self.run_ranks("ask('s', time.time())\ntime.sleep(1000)", environment={"TORCHELASTIC_TIMER_FILE": self.path("timer")})
        self.assertEqual(status, 137, err)
        self.write("results", "kept")
        for name in ("results", "no/such/folder"):
            status, _, err = self.run_job("true", environment={**ENABLE, "TORCHELASTIC_TIMER_FILE": self.path(name)})
            self.assertEqual((status, len(err.splitlines())), (125, 1), err)
            self.assertIn(f"TORCHELASTIC_TIMER_FILE: cannot create the named pipe {self.path(name)}", err)
        self.assertEqual(self.read("results"), "kept")

    def test_without_the_variable_there_is_no_pipe(self):
        for value in ("0", "true", ""):
            out = self.run_job("sh", "-c", "echo ${TORCHELASTIC_TIMER_FILE-unset}", environment={"TORCHELASTIC_ENABLE_FILE_TIMER": value})[1]
            self.assertEqual(out, "unset\n", value)

    def test_the_ranks_of_every_node_have_the_pipe_of_their_launcher(self):
        port = str(free_port())
        common = ("--nnodes=2", "--master_addr=127.0.0.1", "--master_port", port)
        self.write("program.py", CLIENT + "ask('s', time.time() + 0.2) if rank == 1 else None\ntime.sleep(1000)")
        jobs = [self.start(*common, "--node_rank", str(node), self.path("program.py"), environment=ENABLE) for node in range(2)]
        ends = [job.finish() for job in jobs]
        self.assertEqual([end[0] for end in ends], [137, 137], ends)
        for end in ends:
            self.assertIn("ddprun sent SIGKILL because the file timer 's' expired", end[2])

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch")
    def test_torchs_own_client(self):
        status, out, err = self.run_ranks(
            "with timer.expires(after=600, scope='quick'): print('in time', rank, flush=True)\n"
            "if rank == 0: open('ready', 'w').close()\n"
            "while not os.path.exists('ready'): time.sleep(0.02)\n"
            "if rank == 1:\n    with timer.expires(after=0.5, scope='slow'): time.sleep(1000)\n"
            "time.sleep(1000)", "-n2", "--no_prefix", client=TORCH, python=TORCH_PYTHON)
        self.assertEqual(status, 137, err)
        self.assertEqual(sorted(out.splitlines()), ["in time 0", "in time 1"])
        self.assertRegex(err, r"rank 1, process \d+: its file timer '[^']*slow[^']*' expired; ddprun sends it SIGKILL")

    @unittest.skipUnless(TORCH_PYTHON, "no PyTorch")
    def test_torchs_own_client_in_a_job_that_is_restarted(self):
        status, out, err = self.run_ranks(
            "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and rank == 0:\n"
            "    with timer.expires(after=0.5): time.sleep(1000)\n"
            "with timer.expires(after=600): print('done', rank, flush=True)", "-n2", "--no_prefix", "--max_restarts=1",
            client=TORCH, python=TORCH_PYTHON)
        self.assertEqual(status, 0, err)
        self.assertIn("done 0", out.splitlines())


if __name__ == "__main__":
    main()
