"""Ranks that get nowhere: ddprun says who holds up whom, and says nothing while all is well."""

import contextlib
import fcntl
import os
import pty
import random
import re
import shlex
import signal
import struct
import subprocess
import termios
import time
import unittest

from elastic_nodes import free_port
from harness import DDPRUN, LauncherTest, process_state, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]
# How often each fault is injected.
FAULTS = int(os.environ.get("FAULTS", "2"))
HEALTHY = int(os.environ.get("HEALTHY", "3"))
# Far above a step of the program, on a machine that does other things, too.
TIMEOUT = os.environ.get("HANG_TIMEOUT", "3")

PLACES = ["data", "forward", "optimizer"]
# Where ranks loop, which takes a whole CPU: anywhere.
BUSY_PLACES = os.environ.get("BUSY_PLACES", random.choice(PLACES)).split(",")


class Hangs(LauncherTest):
    def hang(self, ranks, *arguments, options=()):
        """The report on a job in which ranks get stuck, and what it names."""
        status, _, err = self.run_job("-n", str(ranks), "--hang_timeout", TIMEOUT, "--on_hang", "stop", "--grace", "5",
                                      *options, PROGRAM, self.folder, *arguments, patience=120)
        if os.path.exists(self.path("meeting")):
            os.remove(self.path("meeting"))
        self.assertEqual(status, 124, err)
        self.assertIn("no rank has made progress for", err)
        return err

    def inject(self, fault, culprit_pattern):
        right = 0
        reports = []
        for _ in range(FAULTS):
            ranks = random.randint(2, 4)
            rank = random.randrange(ranks)
            at = random.randrange(12)
            if fault.endswith("checkpoint"):
                at = at // 5 * 5 + 4
            report = self.hang(ranks, "--fault", fault, "--rank", str(rank), "--at", str(at))
            reports.append(f"{fault} of rank {rank} of {ranks} at step {at}:\n{report}")
            right += re.search(culprit_pattern.format(rank=rank), report) is not None
        self.assertGreaterEqual(right, FAULTS * 0.99, "\n".join(reports[-3:]))
        return reports[-1]

    def test_a_rank_that_sleeps_is_named_with_its_phase(self):
        for place in PLACES + ["checkpoint"]:
            with self.subTest(place=place):
                report = self.inject(f"sleep_{place}",
                                     rf"rank {{rank}} has not entered .*it has been in {place} for .*wait")
                self.assertRegex(report, r"stack of rank \d+:\n    #0 .*\n")

    def test_a_rank_in_an_endless_loop_is_named_and_its_function(self):
        for place in BUSY_PLACES:
            with self.subTest(place=place):
                report = self.inject(f"loop_{place}", rf"rank {{rank}} has not entered .*it has been in {place} for")
                self.assertRegex(report, r"#\d+ .*Rank::(loop|in)\(", report)
                # With its share of a processor, where ddprun has had the time to look twice.
                self.assertRegex(report, r"(?m)  running(, \d+ % CPU)?$")

    def test_the_table_is_no_wider_than_the_terminal(self):
        for columns in (40, 80):
            primary, secondary = pty.openpty()
            fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            job = subprocess.Popen([DDPRUN, "-n", "2", "--hang_timeout", TIMEOUT, "--on_hang", "stop", PROGRAM, self.folder, "--fault",
                                    "sleep_data", "--rank", "1", "--at", "3"], stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary)
            os.close(secondary)
            text = b""
            with contextlib.suppress(OSError):
                while part := os.read(primary, 4096):
                    text += part
            self.assertEqual(job.wait(), 124, text)
            os.close(primary)
            os.remove(self.path("meeting"))
            report = text.decode().replace("\r", "")
            table = report[report.index("no rank has made progress for"):report.index("ddprun: rank 1 has not entered")].splitlines()[1:]
            self.assertGreater(len(table), 4, report)
            for line in table:
                self.assertLessEqual(len(line), columns, report)
            self.assertRegex(" ".join(table).replace("     ", " "), r"(?s)in all_reduce #\d+ of .*process sleeping in ")

    def test_a_rank_that_is_stopped_by_a_signal_is_named(self):
        self.inject("stop_forward", r"rank {rank} has not entered .*stopped by a signal; it has been in forward for")

    def test_a_rank_in_a_deadlock_is_named(self):
        self.inject("mutex_data", r"rank {rank} has not entered .*it has been in data for")

    def test_a_rank_before_a_full_pipe_is_named(self):
        self.inject("pipe_forward", r"rank {rank} has not entered .*it has been in forward for")

    def test_ranks_that_call_different_collectives_are_both_told(self):
        self.inject("other_collective", r"ranks have called different collectives as number \d+; .*"
                                        r"ranks? [\d, and-]*{rank}[\d, and-]*: all_gather of Float \[2\]")

    def test_ranks_that_reduce_different_sizes_are_both_told(self):
        self.inject("other_size", r"ranks have called different collectives as number \d+; .*"
                                  r"ranks? [\d, and-]*{rank}[\d, and-]*: all_reduce \(sum\) of Float \[7\]")

    def test_a_rank_with_one_collective_too_few_is_named(self):
        for _ in range(FAULTS):
            ranks = random.randint(2, 4)
            rank = random.randrange(ranks)
            # It calls the barrier where the others still reduce.
            report = self.hang(ranks, "--fault", "too_few", "--rank", str(rank), "--at", "4", "--steps", "5")
            self.assertRegex(report, rf"different collectives as number 4; .*ranks? [\d, and-]*{rank}[\d, and-]*: barrier|"
                                     rf"rank {rank} (has not entered|has ended)", report)

    def test_healthy_jobs_are_not_reported(self):
        for _ in range(HEALTHY):
            _, _, err = self.run_job("-n", str(random.randint(2, 4)), "--hang_timeout", TIMEOUT, PROGRAM, self.folder,
                                     "--steps", "300", patience=120)
            os.remove(self.path("meeting"))
            self.assertNotIn("progress", err)

    def test_without_on_hang_the_job_goes_on_and_gets_one_report(self):
        job = self.start("-n", "2", "--hang_timeout", "0.5", "sh", "-c",
                         f"exec {shlex.quote(PROGRAM)} {self.folder} --fault stop_data --rank 1 --at 3 --steps 500")
        stopped = wait_until(lambda: [pid for pid in job.members() if process_state(pid) == "T"], "a stopped rank")[0]
        time.sleep(2)  # several times the limit: there must be no second report
        os.kill(stopped, signal.SIGCONT)
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count("no rank has made progress"), 1, err)
        self.assertIn("the ranks make progress again", err)

    def test_a_restart_is_a_new_attempt(self):
        script = self.write("job.sh", f"""#!/bin/sh
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec {shlex.quote(PROGRAM)} {self.folder} --fault sleep_data --rank 1 --at 3; fi
rm -f {self.folder}/meeting; sleep 0.5; echo again
""", executable=True)
        status, out, err = self.run_job("-n", "2", "--hang_timeout", "1", "--on_hang", "restart", "--max_restarts", "1",
                                        "--no_prefix", script)
        self.assertEqual(status, 0, err)
        self.assertEqual(out.count("again"), 2)

    def test_a_restart_is_one_of_all_nodes(self):
        script = self.write("job.sh", """#!/bin/sh
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 300
echo "rank $RANK again"
""", executable=True)
        options = ("--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port()), "--on_hang", "restart",
                   "--max_restarts", "1", "--no_prefix")
        for watching in (0, 1):  # the node whose ddprun finds that nothing goes on
            with self.subTest(watching=watching):
                jobs = [self.start(*options, "--node_rank", str(node), "--hang_timeout", "1" if node == watching else "0", script)
                        for node in (0, 1)]
                for node, job in enumerate(jobs):
                    status, out, err = job.finish()
                    self.assertEqual(status, 0, f"node {node}: {err}")
                    self.assertEqual(out.splitlines(), [f"rank {node} again"])
                    self.assertIn("restart 1 of 1", err)

    def test_a_restart_needs_max_restarts(self):
        status, _, err = self.run_job("--on_hang", "restart", "true")
        self.assertEqual(status, 125)
        self.assertIn("--max_restarts", err)

    def test_what_only_sleeps_and_never_trains_is_left_alone_unless_asked(self):
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "0.3", "sleep", "1.5")
        self.assertEqual(status, 0)
        self.assertIn("nothing else is known about programs that do not use the library", err)
        self.assertEqual(err.count("no rank has made progress"), 1)

    def test_a_rank_that_never_comes_to_the_store_is_named(self):
        # As ranks that run Python wait in init_process_group(): connected, and for the one that is not.
        script = self.write("train.py", "import os, socket, time\n"
                            "if os.environ['RANK'] != '1':\n"
                            "    store = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
                            "time.sleep(3600)\n")
        for words in (("python3", script), ("sh", "-c", f"python3 {script}; true")):
            status, _, err = self.run_job("-n", "3", "--hang_timeout", "2", "--on_hang", "stop", "--grace", "2", "--no_python", *words)
            self.assertEqual(status, 124)
            self.assertIn(f"rank 1 has no connection to the job's store, which ranks 0 and 2 have; it is at <module> ({script}:4)", err)
            self.assertIn("stack of rank 1", err)

    def test_ranks_that_all_stay_away_from_the_store_are_not_blamed_for_it(self):
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "0.5", "--on_hang", "stop", "--grace", "2", "sleep", "600")
        self.assertEqual(status, 124)
        self.assertNotIn("store", err)
        self.assertNotIn("train", err)

    def test_the_stack_of_python_below_a_wrapper_is_read(self):
        script = self.write("train.py", "import time\n"
                            "def wait_for_nobody():\n    time.sleep(3600)\n"
                            "wait_for_nobody()\n")
        status, _, err = self.run_job("--hang_timeout", "2", "--on_hang", "stop", "--grace", "2", "sh", "-c", f"python3 {script}; true")
        self.assertEqual(status, 124)
        self.assertIn(f"#0 wait_for_nobody ({script}:3)", err)

    def test_a_program_that_computes_below_its_wrapper_is_not_reported(self):
        spin = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass"
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "1", "--on_hang", "stop", "sh", "-c", f"python3 -c '{spin}'; true")
        self.assertEqual(status, 0, err)
        self.assertNotIn("no rank has made progress", err)

    def test_a_program_prints_its_stack_where_it_has_enabled_that(self):
        script = self.write("train.sh", f"#!/bin/sh\nmkfifo '{self.folder}/nobody' && exec 3<>'{self.folder}/nobody'\n"
                            "trap 'echo in wait_for_nobody' $DDPRUN_STACK_SIGNAL\nwhile :; do read line <&3; done\n", executable=True)
        status, out, err = self.run_job("--hang_timeout", "0.5", "--on_hang", "stop", script)
        self.assertEqual(status, 124)
        self.assertIn("stack of rank 0: its program was asked to print its stack", err)
        self.assertIn("in wait_for_nobody", out)

    def test_nobody_else_can_read_the_page_and_it_is_gone_with_the_job(self):
        job = self.start("-n", "2", PROGRAM, self.folder)
        pids = wait_until(lambda: [pid for pid in job.members() if pages(pid)], "ranks with pages")
        for pid in pids:
            for link in pages(pid):
                self.assertEqual(os.stat(link).st_mode & 0o777, 0o600)
        for pid in job.members():
            with contextlib.suppress(ProcessLookupError):  # the first of them ends the others
                os.kill(pid, signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not job.members(), "the end of all")


def pages(pid):
    """The descriptors of progress pages that a process has."""
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{name}"
            if "ddprun-progress" in os.readlink(link):
                found.append(link)
    except OSError:
        pass
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
