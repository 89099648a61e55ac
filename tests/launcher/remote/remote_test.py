"""One command for several hosts (-H): ssh to a real sshd, which this test starts, at several addresses of this machine."""

import contextlib
import fcntl
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time

from harness import DDPRUN, Job, LauncherTest, main, process_state, shell, wait_until
from ssh_hosts import Sshd, descendants, running, skip_reason

WHY_NOT = skip_reason()
USER = pwd.getpwuid(os.geteuid()).pw_name
DUMP = """
import json, os, sys
name = os.path.join(os.environ["DDPRUN_TEST_FOLDER"], "dump." + os.environ["RANK"])
with open(name + ".new", "w") as file:
    text = lambda data: data.decode("latin-1")
    json.dump({"arguments": [text(os.fsencode(a)) for a in sys.argv[1:]], "folder": text(os.getcwdb()),
               "environment": {text(k): text(v) for k, v in os.environb.items()}}, file)
os.rename(name + ".new", name)
"""


class OnHosts(LauncherTest):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.mkdtemp(prefix="ddprun_sshd_")
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        cls.sshd = Sshd(cls.place)
        cls.addClassCleanup(cls.sshd.close)
        # A file of this test's own: whatever executes it belongs to the test.
        cls.ddprun = shutil.copy(DDPRUN, os.path.join(cls.place, "ddprun"))

    def setUp(self):
        super().setUp()
        self.addCleanup(self.assert_all_gone)

    def assert_all_gone(self):
        def gone():
            return not running(self.ddprun) and not self.sshd.sessions()
        try:
            wait_until(gone, "the end of all processes")
        except AssertionError:
            left = {**running(self.ddprun), **{pid: "session" for pid in self.sshd.sessions()}}
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"left behind: {left}")

    @staticmethod
    def names(*slots, first=2):
        """That many hosts that need ssh: "root@127.0.0.2:SLOTS,..."."""
        return ",".join(f"{USER}@127.0.0.{first + i}:{count}" for i, count in enumerate(slots))

    def job(self, *arguments, ssh=None, **options):
        return self.start("--ssh-command", ssh or self.sshd.ssh, *arguments, program=self.ddprun, **options)

    def run_on(self, *arguments, **options):
        return self.job(*arguments, **options).finish()

    def agents(self):
        return [pid for pid, words in running(self.ddprun).items() if b"--remote_agent" in words]

    def ssh_below(self, job):
        return [pid for pid in descendants(job.process.pid) if comm(pid) == "ssh"]

    def parts(self):
        """The guardians of the nodes' own ddpruns."""
        found = running(self.ddprun)
        return [pid for pid, words in found.items() if any(b"--part_of_job" in word for word in words)
                and parent(pid) in self.agents()]


def comm(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    return ""


def parent(pid):
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rsplit(b") ", 1)[1].split()[1])
    return -1


def arguments_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0")


def variable_of(pid, name):
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = re.search(rb"(?:^|\0)" + name.encode() + rb"=([^\0]*)", file.read())
    return found[1].decode() if found else ""


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) << 10


class WhatArrives(OnHosts):
    def test_ranks_of_uneven_hosts_are_numbered_through(self):
        status, out, err = self.run_on("-H", self.names(2, 1) + ",localhost:3", "--no-prefix", *shell(
            'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK"'))
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()),
                         ["0 0 6 2 0", "1 1 6 2 0", "2 0 6 1 1", "3 0 6 3 2", "4 1 6 3 2", "5 2 6 3 2"])

    def test_arguments_environment_and_folder_are_exact(self):
        arguments = [b"", b" ", b"a b", b"'", b'"', b"\\", b"new\nline", b"\xff\xfe", b"$HOME `id` $(id) ;&|<>*?~!#", b"--", b"-x",
                     b"=", "\u00e4".encode(), b"\t\r\x01\x7f"]
        environment = {b"PLAIN": b"1", b"QUOTES": b"'\"\\ $HOME\n\xff end ", b"EMPTY": b"", b"BASH_FUNC_f%%": b"() {  echo x\n}",
                       **{f"LARGE_{i}".encode(): bytes([97 + i]) * 100_000 for i in range(8)}}
        folder = os.path.join(os.fsencode(self.folder), b"a folder'\"\n\xff")
        os.mkdir(folder)
        job = self.job("-H", self.names(1, 1), sys.executable, "-c", DUMP, *arguments, cwd=folder,
                       environment=environment)
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        for rank in "01":
            dump = json.loads(self.read("dump." + rank))
            self.assertEqual([a.encode("latin-1") for a in dump["arguments"]], arguments)
            self.assertEqual(dump["folder"].encode("latin-1"), folder)
            found = {name.encode("latin-1"): value.encode("latin-1") for name, value in dump["environment"].items()}
            for name, value in environment.items():
                self.assertEqual(found.get(name), value, name)
            own = {name for name in os.environb if not re.match(
                rb"(HOME|USER|LOGNAME|SHELL|MAIL|HOSTNAME|HOST|OLDPWD|SHLVL|TMPDIR|OMP_NUM_THREADS|_)$|SSH_|XDG_|PET_|TORCHELASTIC_|CUDA_", name)}
            self.assertEqual({name: found.get(name) for name in own if name not in environment},
                             {name: os.environb[name] for name in own if name not in environment})
            self.assertIn(b"SSH_CONNECTION", found)  # the host's own

    def test_what_belongs_to_the_machine_stays_unless_it_is_exported(self):
        status, out, err = self.run_on("-H", self.names(1), "-x", "XDG_TEST", *shell('echo "$TMPDIR,$SSH_AUTH_SOCK,$XDG_TEST,$XDG_OTHER"'),
                                       environment={"TMPDIR": self.folder, "SSH_AUTH_SOCK": "/x", "XDG_TEST": "yes", "XDG_OTHER": "no"})
        self.assertEqual((status, out), (0, ",,yes,\n"), err)

    def test_nothing_of_the_job_is_on_the_command_line_of_ssh(self):
        job = self.job("-H", self.names(1, 1), *shell(": > ready.$RANK; exec sleep 1000"), "word-of-the-job")
        self.wait_for_files("ready.0", "ready.1")
        for pid in [*self.ssh_below(job), *self.agents(), *self.sshd.sessions()]:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
            if b"--part_of_job" in words or b"word-of-the-job" in words and comm(pid) in ("sh", "sleep"):
                continue  # of the ranks' host, as with every ddprun; it has no secret in it
            self.assertNotIn(b"word-of-the-job", words, comm(pid))
            self.assertNotRegex(words, rb"[0-9a-f]{64}")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)

    def test_a_program_that_is_not_there_is_said_once_with_its_status(self):
        status, _, err = self.run_on("-H", self.names(1, 1), "./no-such-program")
        self.assertEqual(status, 127)
        lines = [line for line in err.splitlines() if "program not found" in line]
        self.assertTrue(lines, err)
        for line in lines:
            self.assertIn(f"host {socket.gethostname()}: program not found", line)

    def test_hosts_from_a_file_and_a_selection_of_them(self):
        name = f"{USER}@127.0.0."
        self.write("hosts", f"# the cluster\n{name}2 slots=2\n\n{name}3 slots=2 max_slots=4 # second\n{name}4:1\n")
        for options, count in (((), 5), (("--exclude", name + "3"), 3), (("--include", f"{name}2:1@{name}4"), 2), (("-np", "3"), 3)):
            status, out, err = self.run_on("--hostfile", self.path("hosts"), *options, "--no-prefix", "sh", "-c", "echo $WORLD_SIZE")
            self.assertEqual((status, out), (0, f"{count}\n" * count), err)

    def test_this_machine_needs_no_ssh(self):
        for hosts in ("localhost:1,127.0.0.1:1", "[::1]", os.uname().nodename):
            status, _, err = self.run_on("-H", hosts, "true", ssh="false")
            self.assertEqual(status, 0, err)

    def test_restarts(self):
        status, _, err = self.run_on("-H", self.names(1, 1), "--max-restarts", "1", *shell(
            '[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3; exit 0'))
        self.assertEqual(status, 0, err)

    def test_a_dry_run_names_the_hosts_and_starts_nothing(self):
        status, out, err = self.run_on("-H", self.names(1, 2), "--dry-run", "./train", ssh="false")
        self.assertEqual(status, 0, err)
        self.assertEqual(len(re.findall(r"^host .* \(node [01] of 2\), by: false ", out, re.M)), 2)
        self.assertIn("rank 2 of 3 (local rank 1 on host", out)


class Failures(OnHosts):
    def refused(self, *hosts_and_options, text, status=125, **options):
        got, out, err = self.run_on(*hosts_and_options, "true", **options)
        self.assertEqual(got, status, err)
        self.assertRegex(err, text)
        self.assertEqual(out, "")

    def test_each_host_that_cannot_be_reached_is_named(self):
        self.refused("-H", self.names(1) + ",no-such-host.invalid,other-host.invalid", text=(
            r"(?s)host no-such-host.invalid: unknown host .*host other-host.invalid: unknown host"))

    def test_nobody_listens_there(self):
        self.refused("-H", self.names(1), "--ssh-port", "1", text=r"127.0.0.2: no ssh server listens there .*Connection refused")

    def test_a_key_that_is_not_known_there(self):
        self.sshd.write_client("known_hosts", key="other_key")
        self.addCleanup(self.sshd.write_client, "known_hosts")
        self.refused("-H", self.names(1), text=r"refuses a login without a password .*Permission denied")
        status, _, err = self.run_on("-H", self.names(1), "--ssh-identity", self.sshd.path("key"), "true")
        self.assertEqual(status, 0, err)

    def test_a_host_key_that_is_not_known_here(self):
        self.sshd.write_client("no_known_hosts")
        self.addCleanup(self.sshd.write_client, "known_hosts")
        self.refused("-H", self.names(1), text="127.0.0.2: its host key is not known")

    def test_a_host_key_that_has_changed(self):
        with open(self.sshd.path("key.pub"), encoding="utf-8") as key:
            self.sshd.write("other_known_hosts", "* " + key.read())
        self.sshd.write_client("other_known_hosts")
        self.addCleanup(self.sshd.write_client, "known_hosts")
        self.refused("-H", self.names(1), text="127.0.0.2: its host key has changed")

    def test_ddprun_is_not_there(self):
        self.refused("-H", self.names(1), "--remote-ddprun", self.path("missing"), text="127.0.0.2: ddprun was not found there")

    def test_another_version_is_there(self):
        self.write("forged", "#!/bin/sh\nprintf '\\001ddprun-agent 1 99.7\\n'\nexec cat\n", executable=True)
        self.refused("-H", self.names(1), "--remote-ddprun", self.path("forged"), text=r"127.0.0.2: its ddprun has version 99.7, this one has ")

    def test_an_old_ddprun_is_there(self):
        self.write("old", "#!/bin/sh\necho 'ddprun: unknown option --remote_agent; see ddprun --help' >&2\nexit 125\n", executable=True)
        self.refused("-H", self.names(1), "--remote-ddprun", self.path("old"), text="127.0.0.2: its ddprun is too old for this one")

    def test_a_shell_that_prints_something_first_does_no_harm(self):
        self.write("noisy", f"#!/bin/sh\necho 'Welcome! You have mail.'\nexec {self.ddprun} \"$@\"\n", executable=True)
        status, out, err = self.run_on("-H", self.names(1), "--remote-ddprun", self.path("noisy"), "echo", "x")
        self.assertEqual((status, out), (0, "x\n"), err)

    def test_a_host_that_says_nothing_is_given_up(self):
        self.write("silent", "#!/bin/sh\nexec cat >/dev/null\n", executable=True)
        self.refused("-H", self.names(1), "--remote-ddprun", self.path("silent"), "--ssh-timeout", "1", text="did not answer within 1 s")

    def test_a_folder_that_the_host_does_not_have(self):
        self.write("elsewhere", f"#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs none {self.folder}; exec {self.ddprun} --remote_agent'\n",
                   executable=True)
        options = ("-H", self.names(1), "--remote-ddprun", self.path("elsewhere"))
        os.mkdir(self.path("here"))
        self.refused(*options, text=f"host .*: there is no folder {self.folder}/here: No such file", cwd=self.path("here"))
        status, out, err = self.run_on(*options, "--wdir", "/", "pwd", cwd=self.path("here"))
        self.assertEqual((status, out), (0, "/\n"), err)

    def test_a_shell_that_prints_without_end_is_given_up(self):
        self.write("endless", "#!/bin/sh\nexec yes\n", executable=True)
        self.refused("-H", self.names(1), "--remote-ddprun", self.path("endless"), text="its shell printed other text before the first message of ddprun")

    def test_no_ssh_at_all(self):
        self.refused("-H", self.names(1), ssh="/no/such/ssh", text="cannot execute /no/such/ssh")

    def test_the_first_failure_is_reported_once_and_is_the_status(self):
        status, _, err = self.run_on("-H", self.names(1, 2), *shell(
            '[ $RANK = 1 ] && { echo "out of luck" >&2; exit 7; }; exec sleep 1000'))
        self.assertEqual(status, 7)
        self.assertEqual(err.count("failed first"), 1, err)
        self.assertIn("rank 1 failed first: it exited with status 7", err)
        self.assertNotIn("stopped because of node", err)

    def test_a_signal_that_ends_a_rank_is_the_status(self):
        self.assertEqual(self.run_on("-H", self.names(1, 1), *shell("[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000"))[0],
                         128 + signal.SIGSEGV)


class Ending(OnHosts):
    SLEEP = shell(": > ready.$RANK; exec sleep 1000")

    def sleeping(self, *options, hosts=None, **popen):
        job = self.job("-H", hosts or self.names(1, 2), *options, *self.SLEEP, **popen)
        self.wait_for_files("ready.0", "ready.1", "ready.2")
        return job

    def ends_with(self, job, status, text):
        got, _, err = job.finish()
        self.assertEqual(got, status, err)
        self.assertRegex(err, text)
        wait_until(lambda: not job.members(), "the end of all processes")

    def test_kill_9_of_the_ddprun_that_was_started(self):
        job = self.sleeping()
        job.signal(signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not job.members(), "the end of all processes")

    def test_kill_9_of_the_ddprun_that_has_a_hosts_channel(self):
        job = self.sleeping()
        os.kill(self.agents()[0], signal.SIGKILL)
        self.ends_with(job, 1, "the connection to host .* broke")

    def test_kill_9_of_a_hosts_own_ddprun(self):
        job = self.sleeping()
        os.kill(self.parts()[0], signal.SIGKILL)
        self.ends_with(job, 1, "its ddprun was killed by SIGKILL")

    def test_kill_9_of_ssh(self):
        job = self.sleeping()
        os.kill(self.ssh_below(job)[0], signal.SIGKILL)
        self.ends_with(job, 1, "broke: .* was killed by SIGKILL")

    def test_an_ssh_that_stands_still(self):
        job = self.sleeping("--ssh-timeout", "30")
        os.kill(self.ssh_below(job)[0], signal.SIGSTOP)
        self.ends_with(job, 1, "has been silent for 30 s")

    def test_a_ddprun_that_stands_still_ends_the_hosts(self):
        job = self.sleeping("--ssh-timeout", "30")
        job.signal(signal.SIGSTOP)
        wait_until(lambda: not self.parts(), "the end of the hosts' ddpruns")
        job.signal(signal.SIGKILL)

    def test_signals_stop_all_hosts(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.sleeping()
            job.signal(number)
            self.assertEqual(job.finish()[0], 128 + number)
            self.assert_nothing_left(job)
            for rank in range(3):
                os.remove(self.path(f"ready.{rank}"))

    def test_a_second_interrupt_kills(self):
        job = self.job("-H", self.names(1, 1), *shell("trap '' INT TERM; : > ready.$RANK; while :; do sleep 0.05; done"))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGINT)
        time.sleep(0.3)  # two within 0.1 s are one
        job.signal(signal.SIGINT)
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)
        self.assert_nothing_left(job)

    def test_a_signal_while_the_hosts_are_connected_to(self):
        self.write("silent", "#!/bin/sh\n: > $0.started\nexec cat >/dev/null\n", executable=True)
        job = self.job("-H", self.names(1), "--remote-ddprun", self.path("silent"), "true")
        self.wait_for_files("silent.started")
        job.signal(signal.SIGINT)
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)

    def test_a_terminal_that_is_closed(self):
        leader, follower = os.openpty()

        def own_terminal():
            os.setsid()
            fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
        job = self.sleeping(stdin=follower, stdout=follower, stderr=follower, preexec_fn=own_terminal)
        os.close(follower)
        os.close(leader)
        self.assertEqual(job.process.wait(60), 128 + signal.SIGHUP)
        self.assert_nothing_left(job)

    def test_ctrl_z_suspends_the_ranks_of_all_hosts(self):
        job = self.sleeping("--ssh-timeout", "10")
        sleepers = []

        def are_there():  # a shell has its own name until it runs sleep
            sleepers[:] = [pid for pid in job.members() if comm(pid) == "sleep"]
            return len(sleepers) == 3

        wait_until(are_there, "three ranks that sleep")
        job.signal(signal.SIGTSTP)
        wait_until(lambda: all(process_state(pid) == "T" for pid in [*sleepers, job.process.pid]), "suspension")
        time.sleep(11)  # longer than silence may last while nobody is suspended
        job.signal(signal.SIGCONT)
        wait_until(lambda: all(process_state(pid) == "S" for pid in sleepers), "continuation")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)

    def test_the_time_of_the_job_is_over(self):
        job = self.job("-H", self.names(1, 1), "--timeout", "1", "sleep", "1000")
        self.ends_with(job, 124, "--timeout expired")


class Streams(OnHosts):
    def test_lines_of_all_hosts_arrive_whole(self):
        count, width = 20000, 200
        status, out, err = self.run_on("-H", self.names(1, 1, 1), sys.executable, "-c",
                                       f"import os\nfor i in range({count}): print(os.environ['RANK'], i, 'x' * {width})")
        self.assertEqual(status, 0, err)
        seen = [0, 0, 0]
        for line in out.splitlines():
            match = re.fullmatch(r"\[(\d)\] (\d) (\d+) x{200}", line)
            self.assertIsNotNone(match, line)
            self.assertEqual((match[1], int(match[3])), (match[2], seen[int(match[2])]))
            seen[int(match[2])] += 1
        self.assertEqual(seen, [count] * 3)

    def test_one_rank_on_one_host_writes_bytes_as_they_are(self):
        data = bytes(range(256)) * 4000
        with open(self.path("data"), "wb") as file:
            file.write(data)
        job = self.job("-H", self.names(1), *shell("cat data; cat data >&2"))
        out, err = job.process.communicate(timeout=60)
        self.assertEqual((job.process.returncode, out, err), (0, data, data))

    def test_a_reader_that_takes_nothing_stops_the_ranks_and_costs_no_memory(self):
        job = self.job("-H", self.names(1, 1), *shell(": > ready.$RANK; exec yes 0123456789012345678901234567890123456789"))
        self.wait_for_files("ready.0", "ready.1")

        def written():
            total = 0
            for pid in job.members():
                if comm(pid) == "yes":
                    with open(f"/proc/{pid}/io", encoding="utf-8") as file:
                        total += int(re.search(r"wchar: (\d+)", file.read())[1])
            return total

        def stands_still():
            before = written()
            time.sleep(0.3)
            return before > 0 and written() == before
        wait_until(stands_still, "the ranks to be held up")
        self.assertLess(written(), 32 << 20)
        for pid in [job.process.pid, *self.agents()]:
            self.assertLess(resident(pid), 64 << 20)
        before = written()
        read = 0
        while read < 16 << 20:
            read += len(os.read(job.process.stdout.fileno(), 1 << 20))
        self.assertGreater(written(), before)
        job.signal(signal.SIGTERM)
        self.assertNotEqual(job.finish()[0], 0)
        self.assert_nothing_left(job)

    def unread(self, *arguments):
        """With an output that is full and that nobody reads, as in `ddprun ... | sleep 99`."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        job = self.job("-H", self.names(1, 1), "--grace", "1", *arguments, stdout=writer)
        os.close(writer)
        return job

    def test_a_reader_that_takes_nothing_holds_up_no_end(self):
        flood = """echo x; : > ready.$RANK
            if [ $RANK = 1 ] && [ -n "$1" ]; then until [ -e ready.0 ]; do sleep 0.01; done; exit 6; fi
            exec yes 01234567890123456789"""
        job = self.unread(*shell(flood))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish(20)[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(job)
        os.remove(self.path("ready.0"))
        job = self.unread(*shell(flood), "sh", "fail")
        status, _, err = job.finish(20)
        self.assertEqual(status, 6, err)
        self.assertIn("output was lost", err)

    def test_a_reader_that_goes_away_ends_the_ranks(self):
        job = self.job("-H", self.names(1, 1), "yes")
        job.process.stdout.readline()
        job.process.stdout.close()
        self.assertNotEqual(job.process.wait(60), 0)
        self.assert_nothing_left(job)

    def test_standard_input_is_rank_0s(self):
        data = os.urandom(5_000_000)
        with open(self.path("data"), "wb") as file:
            file.write(data)
        with subprocess.Popen(["cat", self.path("data")], stdout=subprocess.PIPE) as cat, open(self.path("data"), "rb") as file:
            results = [self.run_on("-H", self.names(1, 2), *shell("cat > input.$RANK"), stdin=source)
                       for source in (file, cat.stdout)]
        for status, _, err in results:
            self.assertEqual(status, 0, err)
            with open(self.path("input.0"), "rb") as file:
                self.assertEqual(file.read(), data)
            self.assertEqual(self.read("input.1") + self.read("input.2"), "")

    def test_standard_input_for_another_rank_and_for_all(self):
        for to, expected in (("2", ["", "", "abc"]), ("all", ["abc"] * 3), ("none", [""] * 3)):
            self.write("data", "abc")
            with open(self.path("data"), "rb") as source:
                status, _, err = self.run_on("-H", self.names(1, 2), "--stdin", to, *shell("cat > input.$RANK"), stdin=source)
            self.assertEqual(status, 0, err)
            self.assertEqual([self.read(f"input.{rank}") for rank in range(3)], expected)

    def test_a_rank_that_does_not_read_holds_nobody_up(self):
        with open("/dev/zero", "rb") as endless:
            status, _, err = self.run_on("-H", self.names(1, 1), "true", stdin=endless)
        self.assertEqual(status, 0, err)


class ManyHosts(OnHosts):
    def test_many_hosts_form_a_tree(self):
        job = self.job("-H", self.names(*[1] * 13), "--ssh-fanout", "3", *shell(": > ready.$RANK; echo here; read line < end; exit 0"))
        os.mkfifo(self.path("end"))
        self.wait_for_files(*(f"ready.{rank}" for rank in range(13)))
        self.assertEqual(len(self.ssh_below(job)), 3)
        self.assertEqual(len(self.agents()), 13)
        with open(self.path("end"), "w", encoding="utf-8") as end:
            end.write("go\n" * 13)
            end.flush()
            status, out, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{rank}] here" for rank in range(13)))

    def test_a_failure_below_in_the_tree_is_everybodys(self):
        job = self.job("-H", self.names(*[1] * 9), "--ssh-fanout", "2", *shell(
            ': > ready.$RANK; [ $RANK = 8 ] || exec sleep 1000; until [ -e fail ]; do sleep 0.05; done; exit 9'))
        self.wait_for_files(*(f"ready.{rank}" for rank in range(9)))
        self.write("fail", "")
        status, _, err = job.finish()
        self.assertEqual((status, err.count("failed first")), (9, 1), err)
        self.assert_nothing_left(job)

    def test_kill_9_of_a_ddprun_in_the_middle_of_the_tree(self):
        job = self.job("-H", self.names(*[1] * 9), "--ssh-fanout", "2", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files(*(f"ready.{rank}" for rank in range(9)))
        middle = next(pid for pid in self.agents() if any(comm(child) == "ssh" for child in descendants(pid)))
        os.kill(middle, signal.SIGKILL)
        status, _, err = job.finish()
        self.assertEqual(status, 1, err)
        wait_until(lambda: not job.members(), "the end of all processes")

    def test_a_lost_connection_is_the_status_even_if_it_is_seen_last(self):
        # Hosts below the one that is lost are stopped by its end, and tell the others before its connection is seen to be broken.
        job = self.job("-H", self.names(*[1] * 9), "--ssh-fanout", "2", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files(*(f"ready.{rank}" for rank in range(9)))
        address = "127.0.0.6"  # the first host of the second branch, which has the other four below it
        ssh = next(pid for pid in self.ssh_below(job) if f"{USER}@{address}".encode() in arguments_of(pid))
        middle = next(pid for pid in self.agents() if variable_of(pid, "SSH_CONNECTION").split()[2] == address)
        os.kill(ssh, signal.SIGSTOP)
        try:
            os.kill(middle, signal.SIGKILL)
            wait_until(lambda: not self.parts(), "the end of the hosts' ddpruns")
            time.sleep(0.5)  # for what they have said to arrive
        finally:
            os.kill(ssh, signal.SIGCONT)
        status, _, err = job.finish()
        self.assertEqual(status, 1, err)
        self.assertIn("broke", err)
        wait_until(lambda: not job.members(), "the end of all processes")

    def test_what_a_host_in_between_cannot_reach_is_reached_directly(self):
        self.write("ssh", f'#!/bin/sh\n[ -n "$SSH_CONNECTION" ] && {{ echo "no keys here" >&2; exit 255; }}\nexec {self.sshd.ssh} "$@"\n',
                   executable=True)
        status, out, err = self.run_on("-H", self.names(*[1] * 6), "--ssh-fanout", "2", "echo", "here", ssh=self.path("ssh"),
                                       environment={"SSH_CONNECTION": ""})
        self.assertEqual((status, len(out.splitlines())), (0, 6), err)

    def test_hosts_below_one_that_is_not_there_are_tried_all_the_same(self):
        status, _, err = self.run_on("-H", "a.invalid,b.invalid,c.invalid,d.invalid", "--ssh-fanout", "1", "true")
        self.assertEqual(status, 125)
        self.assertEqual(len(re.findall(r"host [a-d]\.invalid: unknown host", err)), 4, err)


class Page(OnHosts):
    """The commands of docs/many-nodes.md as they stand there."""

    def test_one_command(self):
        page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "many-nodes.md").read_text(encoding="utf-8")
        section = page.split("## One command\n")[1].split("\n## ")[0]
        commands = re.findall(r"^    (ddprun .*?)(?:  +#.*)?$", section, re.M)
        commands = [command for command in commands if not command.startswith("ddprun:")]
        self.assertGreaterEqual(len(commands), 3)
        with open(self.sshd.path("ssh_config"), encoding="utf-8") as file:
            config = file.read()
        self.write("ssh_config", "Host host1\nHostName 127.0.0.2\nHost host2\nHostName 127.0.0.3\n" + config)
        self.write("hosts", "host1 slots=4\nhost2 slots=4\n")
        self.write("train", '#!/bin/sh\necho "$RANK of $WORLD_SIZE"\n', executable=True)
        for command in commands:
            job = self.start("-c", command, program="bash", cwd=self.folder, environment={
                "PATH": self.place + ":" + os.environ["PATH"], "PET_SSH_COMMAND": "ssh -F " + self.path("ssh_config")})
            status, out, err = job.finish()
            self.assertEqual(status, 0, command + out + err)
            if "--check" not in command:
                self.assertEqual(sorted(out.splitlines()), [f"[{rank}] {rank} of 8" for rank in range(8)])


class Check(OnHosts):
    def test_it_says_what_each_host_would_fail_with(self):
        status, out, err = self.run_on("-H", self.names(1, 1) + ",no-such-host.invalid", "--check", "./no-such-program")
        self.assertEqual(status, 125, err)
        self.assertEqual(out.count("PROBLEM  program: program not found: ./no-such-program"), 2, out)
        self.assertIn("PROBLEM  connection: unknown host", out)
        self.assertEqual(out.count("ok       clock: "), 2)
        self.assertRegex(out, r"network: node 0 at 127.0.0.2 port \d+ is reached from 127.0.0.1 \(lo\)")
        self.assertIn("No job can run, because of ", out)

    def test_a_job_that_could_run(self):
        status, out, err = self.run_on("-H", self.names(1, 1), "--check", "true")
        self.assertEqual((status, out.splitlines()[-1]), (0, "A job can run."), out + err)

    def test_a_port_that_nobody_reaches(self):
        status, out, _ = self.run_on("-H", self.names(1, 1), "--master-addr", "127.0.0.2", "--master-port", "1", "--check")
        self.assertEqual(status, 125)
        self.assertIn("PROBLEM  network: node 0 at 127.0.0.2 port 1 cannot be reached: Connection refused", out)


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
