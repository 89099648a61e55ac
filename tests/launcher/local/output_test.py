"""The ranks' output: prefixes, whole lines, every byte, slow and vanishing readers."""

import hashlib
import os
import re
import signal
import subprocess

from harness import DDPRUN, LauncherTest, main, process_state, shell, wait_until

QUIET = {"OMP_NUM_THREADS": "1"}


class Output(LauncherTest):
    def test_lines_of_several_ranks_carry_their_rank(self):
        status, out, err = self.run_job("-n", "2", *shell("echo out $RANK; echo err $RANK >&2"), environment=QUIET)
        self.assertEqual(status, 0)
        self.assertEqual(sorted(out.splitlines()), ["[0] out 0", "[1] out 1"])
        self.assertEqual(sorted(err.splitlines()), ["[0] err 0", "[1] err 1"])

    def test_one_rank_is_not_prefixed_unless_asked(self):
        self.assertEqual(self.run_job("echo", "x")[1], "x\n")
        self.assertEqual(self.run_job("--prefix", "echo", "x")[1], "[0] x\n")
        self.assertEqual(self.run_job("--no-prefix", "-n", "2", "echo", "x")[1], "x\nx\n")

    def test_templates(self):
        status, out, err = self.run_job("-n", "1", "--prefix=horovod", *shell("echo a; echo b >&2"), environment=QUIET)
        self.assertEqual((status, out, err), (0, "[1,0]<stdout>:a\n", "[1,0]<stderr>:b\n"))
        _, out, _ = self.run_job("--prefix={host} {local_rank} {time}: ", "echo", "x")
        self.assertRegex(out, r"^\S+ 0 \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: x\n$")
        status, _, err = self.run_job("--prefix={nope}", "echo", "x")
        self.assertEqual((status, len(err.splitlines())), (125, 1))

    def test_torchruns_variable_for_the_prefix(self):
        variables = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name} ${rank}/${local_rank}]: ", **QUIET}
        _, out, _ = self.run_job("-n", "2", "--role", "trainer", "echo", "x", environment=variables)
        self.assertEqual(sorted(out.splitlines()), ["[trainer 0/0]: x", "[trainer 1/1]: x"])
        _, out, _ = self.run_job("-n", "2", "--prefix", "echo", "x", environment=variables)
        self.assertEqual(sorted(out.splitlines()), ["[0] x", "[1] x"])

    def test_closed_descriptors_are_not_taken_for_others(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", DDPRUN, "-n", "2", *shell("echo out; echo err >&2; : > ran.$RANK")],
                                  capture_output=True, check=False, timeout=20, env={**os.environ, **QUIET, "DDPRUN_TEST_FOLDER": self.folder})
            has_output = " >&-" not in " " + closed
            self.assertEqual(done.returncode, 0 if has_output else 125, closed)
            self.assertEqual(sorted(done.stdout.splitlines()), [b"[0] out", b"[1] out"] if has_output else [])
            said = sorted(line for line in done.stderr.splitlines() if line.startswith(b"["))
            self.assertEqual(said, [] if "2>&-" in closed else [b"[0] err", b"[1] err"])
            if not has_output and "2>&-" not in closed:
                self.assertIn(b"output was lost: cannot write to standard output: Bad file descriptor", done.stderr)
            os.remove(self.path("ran.0"))
            os.remove(self.path("ran.1"))

    def test_lines_stay_whole_and_no_byte_is_lost_or_changed(self):
        # Random bytes in lines of random length, written in pieces that do not respect the lines.
        writer = self.write("writer.py", """
import os, random, sys
rank = int(os.environ["RANK"])
source = random.Random(rank)
data = b"".join(bytes([65 + rank]) + source.randbytes(source.randrange(200)).replace(b"\\n", b"").replace(b"\\r", b"") + b"\\n"
                for _ in range(20000))
open(os.path.join(os.environ["DDPRUN_TEST_FOLDER"], f"data.{rank}"), "wb").write(data)
position = 0
while position < len(data):
    position += os.write(1 + source.randrange(1), data[position:position + source.randrange(1, 5000)])
""")
        job = self.start("-n", "4", writer)
        out, _ = job.process.communicate(timeout=60)
        self.assertEqual(job.process.returncode, 0)
        for rank in range(4):
            prefix = b"[%d] " % rank
            lines = [line[len(prefix):] + b"\n" for line in out.split(b"\n") if line.startswith(prefix)]
            with open(self.path(f"data.{rank}"), "rb") as file:
                self.assertEqual(hashlib.sha256(b"".join(lines)).hexdigest(), hashlib.sha256(file.read()).hexdigest())

    def test_the_last_line_keeps_its_missing_newline(self):
        self.assertEqual(self.run_job("--prefix", "printf", "a\\nb")[1], "[0] a\n[0] b")
        _, out, _ = self.run_job("-n", "2", "printf", "a")
        self.assertEqual(sorted(out.split("\n")), ["[0] a", "[1] a"])

    def test_output_of_a_failing_rank_comes_before_the_report(self):
        _, _, err = self.run_job("-n", "2", *shell('[ $RANK = 0 ] || { echo "the reason" >&2; exit 3; }'), environment=QUIET)
        self.assertLess(err.index("[1] the reason"), err.index("rank 1 failed first"))

    def test_standard_output_and_error_in_one_pipe_keep_lines_whole(self):
        script = "i=0; while [ $i -lt 2000 ]; do echo out-$i-end; echo err-$i-end >&2; i=$((i+1)); done"
        job = self.start("-n", "2", *shell(script), stderr=subprocess.STDOUT, environment=QUIET)
        out, _ = job.process.communicate(timeout=60)
        lines = out.decode().splitlines()
        self.assertEqual(len(lines), 8000)
        for line in lines:
            self.assertRegex(line, r"^\[[01]\] (out|err)-\d+-end$")

    def test_a_slow_reader_slows_the_ranks_and_costs_no_memory(self):
        # The reader takes nothing: the rank must come to a halt, with little in ddprun.
        script = ("import os, sys\nn = 0\nwhile n < 64 << 20:\n    n += os.write(1, b'x' * 79 + b'\\n')\n"
                  "    if n % (1 << 20) < 80: open(os.environ['DDPRUN_TEST_FOLDER'] + '/written', 'w').write(str(n))\n")
        job = self.start("--prefix", "python3", "-c", script, environment=QUIET)
        self.wait_for_files("written")
        rank = job.children_of(job.supervisor())[0]

        def written():
            """What the rank has written, once it sleeps and writes no more."""
            before = self.read("written")
            return before if process_state(rank) == "S" and before == self.read("written") else None

        wait_until(written, "the rank to wait for its reader")
        with open(f"/proc/{job.supervisor()}/status", encoding="ascii") as file:
            memory = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
        self.assertLess(memory, 32 << 10)
        out, _ = job.process.communicate(timeout=60)
        self.assertEqual(len(out), (64 << 20) // 80 * 84 + 84 * ((64 << 20) % 80 != 0))

    def test_a_reader_that_goes_away_ends_the_ranks_as_a_pipe_would(self):
        job = self.start("--prefix", "yes")
        job.process.stdout.read(100)
        job.process.stdout.close()
        job.process.stdout = None
        job.process.wait(20)
        self.assertEqual(job.process.returncode, 128 + signal.SIGPIPE)
        self.assert_nothing_left(job)

    def test_a_full_disk_is_said_aloud_and_gives_a_status(self):
        with open("/dev/full", "wb") as full:
            status, _, err = self.run_job("-n", "2", "echo", "x", stdout=full, environment=QUIET)
        self.assertEqual(status, 125)
        self.assertIn("No space left on device", err)

    def test_a_file_shared_with_others_is_written_at_its_end(self):
        with open(self.path("log"), "wb") as log:
            log.write(b"before\n")
            log.flush()
            self.run_job("-n", "2", "echo", "x", stdout=log, environment=QUIET)
            log.write(b"after\n")
        self.assertEqual(sorted(self.read("log").splitlines()[1:3]), ["[0] x", "[1] x"])
        self.assertTrue(self.read("log").startswith("before\n") and self.read("log").endswith("after\n"))

    def test_a_socket_as_output(self):
        import socket
        ours, theirs = socket.socketpair()
        with ours, theirs:
            job = self.start("-n", "2", *shell("yes 0123456789 | head -n 100000"), stdout=theirs, environment=QUIET)
            theirs.close()
            data = b""
            while True:
                part = ours.recv(1 << 16)
                if not part:
                    break
                data += part
        self.assertEqual(job.process.wait(20), 0)
        self.assertEqual(len(data), 2 * 100000 * 15)

    def test_our_descriptors_stay_blocking_for_others(self):
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb"), os.fdopen(writer, "wb") as out:
            self.run_job("-n", "2", "echo", "x", stdout=out, environment=QUIET)
            self.assertTrue(os.get_blocking(writer))

    def test_a_daemon_that_keeps_the_output_open_does_not_hold_ddprun(self):
        job = self.start("-n", "2", *shell("setsid sleep 1000 & echo x"), environment=QUIET)
        status, out, _ = job.finish()
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] x", "[1] x"]))
        self.assert_nothing_left(job)


if __name__ == "__main__":
    main()
