"""Nothing that the ranks started is left behind, however the job ends."""

import contextlib
import os
import pwd
import resource
import shutil
import signal
import subprocess
import unittest

from harness import DDPRUN, PATIENCE, LauncherTest, is_running, main, process_state, shell, wait_until

# Each rank has a child in its group, one in a session of its own, and a daemon: double fork in a session of its own.
FAMILY = """
    sh -c ': > child.$RANK; exec sleep 1000' &
    setsid sh -c ': > setsid.$RANK; exec sleep 1000' &
    (setsid sh -c 'sh -c ": > daemon.$RANK; exec sleep 1000" &' &)
    while [ ! -e child.$RANK ] || [ ! -e setsid.$RANK ] || [ ! -e daemon.$RANK ]; do sleep 0.01; done
    : > ready.$RANK
    while [ ! -e ready.0 ] || [ ! -e ready.1 ]; do sleep 0.01; done
"""
STUBBORN_FAMILY = "trap '' INT TERM QUIT HUP\n" + FAMILY


class Leftovers(LauncherTest):
    def family(self, end, *options, family=FAMILY):
        job = self.start("-n", "2", *options, *shell(family + end))
        self.wait_for_files("ready.0", "ready.1")
        return job

    def test_after_a_success(self):
        job = self.family("exit 0")
        self.assertEqual(job.finish()[0], 0)
        self.assert_nothing_left(job)

    def test_after_a_failure(self):
        job = self.family("[ $RANK = 0 ] && exit 5\nsleep 1000")
        self.assertEqual(job.finish()[0], 5)
        self.assert_nothing_left(job)

    def test_after_a_crash(self):
        job = self.family("[ $RANK = 0 ] && kill -SEGV $$\nsleep 1000")
        self.assertEqual(job.finish()[0], 128 + signal.SIGSEGV)
        self.assert_nothing_left(job)

    def test_after_term(self):
        job = self.family("sleep 1000")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(job)

    def test_after_term_when_all_ignore_it(self):
        job = self.family("sleep 1000", "--grace", "0.3", family=STUBBORN_FAMILY)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(job)

    def test_after_a_failure_when_all_ignore_term(self):
        job = self.family("[ $RANK = 0 ] && exit 5\nsleep 1000", "--grace", "0.3", family=STUBBORN_FAMILY)
        self.assertEqual(job.finish()[0], 5)
        self.assert_nothing_left(job)

    def test_after_kill_9_of_ddprun(self):
        job = self.family("sleep 1000", family=STUBBORN_FAMILY)
        job.signal(signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not job.members(), "the end of all processes")

    def test_after_kill_9_of_the_supervising_process(self):
        job = self.family("sleep 1000", family=STUBBORN_FAMILY)
        os.kill(job.supervisor(), signal.SIGKILL)
        status, _, err = job.finish()
        self.assertEqual(status, 125)
        self.assertIn("killed by SIGKILL", err)
        self.assert_nothing_left(job)

    def test_ranks_die_even_when_both_processes_of_ddprun_are_killed(self):
        job = self.start("-n", "2", *shell("trap '' TERM; : > ready.$RANK; while :; do sleep 0.01; done"))
        self.wait_for_files("ready.0", "ready.1")
        supervisor = job.supervisor()
        os.kill(job.process.pid, signal.SIGSTOP)  # so that it cannot clean up
        ranks = job.children_of(supervisor)
        self.assertEqual(len(ranks), 2)
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not any(is_running(rank) for rank in ranks), "the ranks' end")
        job.signal(signal.SIGKILL)

    def test_after_kill_9_of_the_sweeping_process(self):
        job = self.family("sleep 1000", family=STUBBORN_FAMILY)
        os.kill(job.sweeper(), signal.SIGKILL)
        status, _, err = job.finish()
        self.assertEqual(status, 125)
        self.assertIn("killed by SIGKILL", err)
        self.assert_nothing_left(job)

    def all_killed_of(self, find):
        """Kills what `find` selects of ddprun's processes at once: nothing stays, the scratch folder neither."""
        scratch = self.path("scratch")
        os.makedirs(scratch, exist_ok=True)
        job = self.start("-n", "2", *shell(STUBBORN_FAMILY + "sleep 1000"), environment={"TMPDIR": scratch})
        self.wait_for_files("ready.0", "ready.1")
        own = [job.process.pid, job.sweeper(), job.supervisor()]
        self.assertEqual(len(os.listdir(scratch)), 1)
        chosen = find(own)
        self.assertTrue(chosen)
        for pid in own:  # so that they die together
            os.kill(pid, signal.SIGSTOP)
        for pid in chosen:
            os.kill(pid, signal.SIGKILL)
        for pid in set(own) - set(chosen):
            os.kill(pid, signal.SIGCONT)
        if job.process.pid in chosen:
            job.process.wait()
        else:
            self.assertEqual(job.process.wait(PATIENCE), 125)
        wait_until(lambda: not job.members() and os.listdir(scratch) == [], "the end of all processes and of the folder")
        for name in ("ready", "child", "setsid", "daemon"):
            for rank in (0, 1):
                os.remove(self.path(f"{name}.{rank}"))
        return len(chosen)

    def test_after_kill_9_of_any_two_processes_of_ddprun_at_once(self):
        for spared in range(3):
            self.all_killed_of(lambda own, spared=spared: own[:spared] + own[spared + 1:])

    def test_stopped_processes_of_ddprun_go_on_when_the_guardian_is_killed(self):
        for stopped in (["sweeper", "supervisor"], ["supervisor"], ["sweeper"]):
            job = self.family("sleep 1000", family=STUBBORN_FAMILY)
            for pid in [getattr(job, name)() for name in stopped]:
                os.kill(pid, signal.SIGSTOP)
            job.signal(signal.SIGKILL)
            job.process.wait()
            wait_until(lambda job=job: not job.members(), f"the end of all processes, {stopped} stopped")
            for name in ("ready", "child", "setsid", "daemon"):
                for rank in (0, 1):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(self.path(f"{name}.{rank}"))

    def test_no_name_kills_all_processes_of_ddprun(self):
        def shows(pid, file, text):
            with open(f"/proc/{pid}/{file}", encoding="utf-8") as shown:
                return text in shown.read()

        def named(own, file, text):
            return [pid for pid in own if shows(pid, file, text)]

        self.assertEqual(self.all_killed_of(lambda own: named(own, "comm", "ddprun")), 2)       # killall ddprun
        self.assertEqual(self.all_killed_of(lambda own: named(own, "cmdline", "ddprun")), 2)    # pkill -f ddprun
        self.assertEqual(self.all_killed_of(lambda own: named(own, "cmdline", "setsid")), 2)    # pkill -f PROGRAM

    def test_each_leftover_is_asked_once_and_killed_after_the_grace_time(self):
        # One in the rank's group, one in a session of its own; and others that end while these stay.
        program = self.write("helper.py", """
import os, signal, sys, time
name = sys.argv[1]
def count(number, frame):
    with open(f"{name}.asked", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, count)
open(f"{name}.ready", "w").close()
end = time.monotonic() + 100
while time.monotonic() < end:
    time.sleep(0.01)
""")
        script = f"""
            python3 {program} group.$RANK & setsid python3 {program} session.$RANK &
            for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'trap "" TERM; while [ ! -e go ]; do sleep 0.01; done; sleep 0.$0' $i & done
            while [ ! -e group.$RANK.ready ] || [ ! -e session.$RANK.ready ]; do sleep 0.01; done
            : > ready.$RANK
            while [ ! -e go ]; do sleep 0.01; done
            """
        ends = (("exit 0", None, 0), ("[ $RANK = 0 ] && exit 5; exec sleep 1000", None, 5),
                ("exec sleep 1000", signal.SIGTERM, 128 + signal.SIGTERM))
        for end, number, status in ends:
            job = self.start("-n", "2", "--grace", "1", *shell(script + end))
            self.wait_for_files("ready.0", "ready.1")
            self.write("go", "")
            if number is not None:
                job.signal(number)
            self.assertEqual(job.finish()[0], status)
            self.assert_nothing_left(job)
            for name in ("group.0", "group.1", "session.0", "session.1"):
                self.assertEqual(self.read(name + ".asked"), "SIGTERM\n", name)
                os.remove(self.path(name + ".asked"))
                os.remove(self.path(name + ".ready"))
            for name in ("go", "ready.0", "ready.1"):
                os.remove(self.path(name))

    def test_background_jobs_that_ignore_interrupts_do_not_use_up_the_grace_time(self):
        # A shell without a terminal starts them so: SIGINT alone never ends them.
        job = self.start("-n", "2", "--grace", "1000", *shell("sleep 1000 & : > ready.$RANK; wait"))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGINT)
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)
        self.assert_nothing_left(job)

    @unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers reserve address space")
    def test_after_an_internal_error_of_the_supervising_process(self):
        job = self.family("while [ ! -e fail ]; do sleep 0.01; done\necho x > $TORCHELASTIC_ERROR_FILE; exit 5", family=STUBBORN_FAMILY)
        supervisor = job.supervisor()
        with open(f"/proc/{supervisor}/status", encoding="ascii") as file:
            size = int(next(line for line in file if line.startswith("VmSize")).split()[1]) << 10
        # It cannot even read an error file any more.
        resource.prlimit(supervisor, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        self.write("fail", "")
        status, _, err = job.finish()
        self.assertEqual(status, 125, err)
        self.assertIn("out of memory", err)
        self.assert_nothing_left(job)

    def test_processes_from_before_ddprun_are_not_touched(self):
        # A shell's background job is a child of the process that becomes ddprun.
        script = 'sleep 1000 2>/dev/null & echo $! > bystander; exec "$DDPRUN_PROGRAM" -n 2 sh -c "exit 3"'
        process = subprocess.Popen(["sh", "-c", script], cwd=self.folder, stderr=subprocess.PIPE,
                                   env={**os.environ, "DDPRUN_PROGRAM": DDPRUN})
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 3)
        bystander = int(self.read("bystander"))
        self.assertTrue(is_running(bystander))
        os.kill(bystander, signal.SIGKILL)

    def test_orphans_are_reaped_while_the_job_runs(self):
        script = """
            [ $RANK = 0 ] && { sh -c 'sh -c "echo \\$\\$ > orphan.tmp; mv orphan.tmp orphan" &'; }
            while [ ! -e finish ]; do sleep 0.01; done"""
        job = self.start("-n", "2", *shell(script))
        self.wait_for_files("orphan")
        orphan = int(self.read("orphan"))
        wait_until(lambda: process_state(orphan) is None, "the orphan to be reaped")
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
    def test_without_privileges(self):
        nobody = pwd.getpwnam("nobody")
        os.chmod(self.folder, 0o777)
        program = shutil.copy(DDPRUN, self.path("ddprun"))  # the build may lie where only root may look

        def become_nobody():
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)

        script = "trap '' TERM\n" + FAMILY + 'id -u > user.$RANK\n[ $RANK = 0 ] && exit 5\nsleep 1000'
        job = self.start("-n", "2", "--grace", "0.3", *shell(script), preexec_fn=become_nobody, program=program)
        self.assertEqual(job.finish()[0], 5)
        self.assertEqual(self.read("user.1").strip(), str(nobody.pw_uid))
        self.assert_nothing_left(job)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "needs root to take /proc away")
    @unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers need /proc themselves")
    def test_without_proc_it_is_said_what_cannot_be_done(self):
        hide = ("-m", "sh", "-c", 'umount -l /proc || exit 77; exec "$0" "$@"', DDPRUN)
        if subprocess.run(["unshare", "-m", "umount", "-l", "/proc"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("/proc cannot be taken away here")
        job = self.start(*hide, "-n", "2", *shell("exit $((RANK * 4))"), program="unshare")
        status, _, err = job.finish()
        self.assertEqual(status, 4, err)
        job = self.start(*hide, *shell("setsid sleep 1000 >/dev/null 2>&1 &"), program="unshare")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertIn("/proc is not readable", err)

    def test_no_error_folder_is_left(self):
        scratch = self.path("scratch")
        os.mkdir(scratch)
        for arguments in (("true",), ("false",)):
            self.run_job("-n", "2", *arguments, environment={"TMPDIR": scratch})
            self.assertEqual(os.listdir(scratch), [])
        job = self.start("-n", "2", *shell(": > ready.$RANK; exec sleep 1000"), environment={"TMPDIR": scratch})
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGKILL)
        wait_until(lambda: not job.members() and os.listdir(scratch) == [], "an empty scratch folder")


if __name__ == "__main__":
    main()
