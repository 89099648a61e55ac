"""The files of timelines: those that cannot be written, and those to which something happens meanwhile."""

import contextlib
import os
import signal
import subprocess
import time
import unittest

from harness import DDPRUN, wait_until
from timeline_traces import PROGRAM, Recordings


class TimelineFiles(Recordings):
    def refuse(self, file, text, *options):
        status, _, err = self.run_job("--timeline", file, *options, "true", environment=self.variables)
        self.assertEqual(status, 125, err)
        self.assertIn(text, err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_a_file_that_cannot_be_written_is_refused_at_once(self):
        self.refuse(self.folder, f"--timeline {self.folder}: Is a directory")
        self.refuse(self.path("no/such.json"), "No such file or directory")
        self.refuse("/dev/null", "not a regular file")

    def test_the_tools_help_fits_a_terminal_and_one_that_cannot_be_written_is_no_success(self):
        shown = subprocess.run([os.environ["TIMELINE_TOOL"], "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertLessEqual(max(map(len, shown.splitlines())), 80)
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.environ["TIMELINE_TOOL"], "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr), (1, "ddprun-timeline: standard output cannot be written\n"))

    def test_two_jobs_do_not_write_one_file(self):
        job = self.begin("--timeline", self.file)
        self.wait_for_training(job)
        self.refuse(self.file, "another job writes its timeline there")
        job.signal(signal.SIGTERM)
        job.finish()
        self.assertTrue(self.slices())

    def test_a_relative_path_is_ddpruns(self):
        status, _, err = self.start("--timeline", "here.json", "--wdir", "/", PROGRAM, self.folder, "steps", "3",
                                    environment=self.variables, cwd=self.folder).finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(len(self.slices(self.path("here.json"), name="forward")), 3)

    @contextlib.contextmanager
    def small_disk(self):
        """The folder of a file system with room for 64 KiB."""
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            yield disk
        finally:
            subprocess.run(["umount", "-l", disk], check=False)

    def test_a_full_disk_ends_the_timeline_and_not_the_training(self):
        with self.small_disk() as disk:
            self.file = os.path.join(disk, "trace.json")
            out, err = self.record(kind=("steps", "300"))
            self.assertIn(f"the timeline in {self.file} has stopped: No space left on device", err)
            self.assertEqual(err.count("has stopped"), 1)
            self.assertTrue(self.slices(name="forward"))

    def test_without_room_no_file_is_left_and_the_job_goes_on(self):
        with self.small_disk() as disk:
            with contextlib.suppress(OSError), open(os.path.join(disk, "full"), "wb", 0) as full:
                while True:
                    full.write(bytes(4096))
            job = self.begin()
            self.wait_for_training(job)
            status, text = self.ask("start", "-o", os.path.join(disk, "trace.json"))
            self.assertEqual(status, 1)
            self.assertIn("No space left on device", text)
            self.assertEqual(os.listdir(disk), ["full"])
            self.assertEqual(self.ask("start", "-o", self.file)[0], 0)

    def test_a_file_that_is_removed_or_emptied_ends_the_timeline_and_stop_says_so(self):
        job = self.begin()
        self.wait_for_training(job)
        for change, text in [(os.remove, "it was removed"), (lambda file: os.truncate(file, 0), "another program has written to it")]:
            self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
            wait_until(lambda: self.slices(name="forward"), "events in the file")
            change(self.file)
            status, out = self.ask("stop")
            self.assertEqual((status, out), (1, f"ddprun: the timeline in {self.file} has ended: {text}\n"))
        self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        wait_until(lambda: self.slices(name="forward"), "events in the file")
        self.assertEqual(self.ask("stop")[0], 0)

    def record_some(self, file):
        status, text = self.ask("start", "-o", file)
        self.assertEqual(status, 0, text)
        time.sleep(0.3)
        status, text = self.ask("stop")
        self.assertEqual(status, 0, text)
        return text

    def test_further_recordings_know_the_threads_and_spoil_no_earlier_one(self):
        job = self.begin()
        self.wait_for_training(job)
        first, second, moved, link = (self.path(name + ".json") for name in ("first", "second", "moved", "link"))
        for file in (first, second):
            self.record_some(file)
            self.assertFalse([event for event in self.trace(file)["traceEvents"] if event.get("tid") == 0], file)
            names = [event["args"]["name"] for event in self.trace(file)["traceEvents"] if event["name"] == "thread_name"]
            self.assertEqual(names.count("main thread"), 2)
        # The last one is gone on with, also by a link; the first one is neither overwritten nor gone on with.
        before = len(self.events(second))
        os.symlink(second, link)
        self.record_some(link)
        self.assertGreater(len(self.events(second)), before)
        before = len(self.events(first))
        status, text = self.ask("start", "-o", first)
        self.assertEqual((status, text), (1, f"ddprun: {first} has an earlier recording of this job; name another file\n"))
        self.assertEqual(len(self.events(first)), before)
        # What is moved away stays as it is, and a new file comes.
        os.rename(second, moved)
        before = os.path.getsize(moved)
        self.record_some(second)
        self.assertEqual(os.path.getsize(moved), before)
        self.assertTrue(self.slices(second, name="forward"))
        # Removed or replaced by the user's.
        os.remove(second)
        self.record_some(second)
        self.assertTrue(self.slices(second, name="forward"))
        with open(second, "a", encoding="utf-8") as file:
            file.write("junk\n")
        self.assertIn("has an earlier recording", self.ask("start", "-o", second)[1])
        self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        os.rename(self.file, moved)
        self.assertRegex(self.ask("stop")[1], rf"stopped; {moved} has \d+ events\n")

    def test_a_file_that_is_not_written_any_more_is_let_go(self):
        job = self.begin("--rdzv_id", "first")
        self.wait_for_training(job)
        self.record_some(self.file)
        supervisor = job.supervisor()
        self.assertNotIn(self.file, [os.readlink(f"/proc/{supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor}/fd")
                                     if os.path.lexists(f"/proc/{supervisor}/fd/{fd}")])

    def test_where_nothing_is_recorded_it_is_said_why(self):
        _, err = self.record("--timeline_steps", "5000:")
        self.assertIn(f"the timeline in {self.file} is empty: no rank reached step 5000; the ranks ran 20 steps", err)
        done = subprocess.run(["bash", "-c", 'ulimit -f 1000; exec "$@"', "-", DDPRUN, "-n", "2", "--timeline", self.file, PROGRAM, self.folder,
                               "steps", "20"], env=dict(os.environ, **self.variables), capture_output=True, text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing is recorded for ranks 0 and 1: there is not enough shared memory", done.stderr)
        self.assertNotIn("is empty", done.stderr)

    def test_two_jobs_of_one_name_are_told_apart_by_their_processes(self):
        jobs = [self.start("--rdzv_id", "same", "sleep", "60", environment=self.variables) for _ in range(2)]
        # By a word that does nothing to the first one, should that be alone yet.
        wait_until(lambda: "name one by ddprun's process ID" in self.ask("stop", "same")[1], "two jobs")
        status, text = self.ask("start", "same", "-o", self.file)
        self.assertEqual(status, 125)
        self.assertIn("name one by ddprun's process ID", text)
        self.assertEqual(self.ask("start", str(jobs[0].process.pid), "-o", self.file)[0], 0)

    def test_the_jobs_own_output_is_no_place_for_it(self):
        with open(self.path("log"), "wb") as log:
            job = subprocess.Popen([DDPRUN, "--rdzv_id", "logged", PROGRAM, self.folder, "for_ever"], stdout=log, stderr=log,
                                   env=dict(os.environ, **self.variables))
        self.addCleanup(lambda: (job.terminate(), job.wait()))
        wait_until(lambda: self.ask("stop", "logged")[1] == "ddprun: no timeline is being recorded\n", "the job")
        for file in ("/dev/stdout", "log"):
            status, text = self.ask("start", "logged", "-o", file)
            self.assertEqual(status, 1)
            self.assertIn("it is the standard output or error of this process", text)
        with open(self.path("log"), encoding="utf-8") as log:
            self.assertNotIn("traceEvents", log.read())

    def test_the_options_are_checked(self):
        for words, text in [(("--timeline_steps", "1:2"), "needs --timeline"),
                            (("--timeline", "x", "--timeline_steps", ":"), "expected FIRST:LAST"),
                            (("--timeline", "x", "--timeline_steps", "2:2"), "FIRST below LAST"),
                            (("--timeline", "x", "--timeline_steps", "a:b"), "expected FIRST:LAST")]:
            status, _, err = self.run_job(*words, "true")
            self.assertEqual(status, 125)
            self.assertIn(text, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
