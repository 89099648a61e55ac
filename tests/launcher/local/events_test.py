"""--events: the job's events as JSON lines."""

import json
import os
import signal
import time

from harness import LauncherTest, main, shell, wait_until


class Events(LauncherTest):
    def events(self):
        """All of them; every line must be whole."""
        text = self.read("events")
        self.assertTrue(text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def of_kind(self, kind):
        return [event for event in self.events() if event["event"] == kind]

    def test_a_job_that_ends_well(self):
        before = time.time()
        status, _, err = self.run_job("-n", "2", "--events", self.path("events"), *shell("echo $$ > pid.$RANK"))
        self.assertEqual(status, 0, err)
        events = self.events()
        self.assertEqual([event["event"] for event in events], ["start", "start", "exit", "exit", "end"])
        for rank, event in enumerate(events[:2]):
            self.assertEqual((event["rank"], event["local_rank"], event["attempt"]), (rank, rank, 0))
            self.assertEqual(event["pid"], int(self.read(f"pid.{rank}")))
            self.assertEqual(event["host"], os.uname().nodename)
        for event in events[2:4]:
            self.assertEqual((event["exit_code"], event["signal"], event["told_to_stop"]), (0, None, False))
        self.assertEqual(events[-1]["exit_status"], 0)
        times = [event["time"] for event in events]
        elapsed = [event["elapsed"] for event in events]
        self.assertEqual(elapsed, sorted(elapsed))
        self.assertTrue(before <= times[0] and times[-1] <= time.time() and elapsed[0] > 0, (before, times, elapsed))
        self.assertTrue(any(moment != int(moment) for moment in times), "whole seconds only")

    def test_a_failure_and_a_restart(self):
        script = """
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
            [ $RANK = 0 ] && exec sleep 1000
            printf '{"message": "no data", "timestamp": 5}' > "$TORCHELASTIC_ERROR_FILE"
            kill -SEGV $$"""
        status, _, err = self.run_job("-n", "2", "--max-restarts", "1", "--events", self.path("events"), *shell(script))
        self.assertEqual(status, 0, err)
        kinds = [event["event"] for event in self.events()]
        self.assertEqual(kinds, ["start", "start", "exit", "exit", "failure", "restart", "start", "start", "exit", "exit", "end"])
        (failure,) = self.of_kind("failure")
        self.assertEqual((failure["rank"], failure["attempt"], failure["exit_code"]), (1, 0, None))
        self.assertEqual((failure["signal"], failure["message"]), ("SIGSEGV", "no data"))
        self.assertEqual([event["attempt"] for event in self.of_kind("restart")], [1])
        self.assertEqual([event["attempt"] for event in self.of_kind("start")], [0, 0, 1, 1])
        (stopped,) = [event for event in self.of_kind("exit") if event["told_to_stop"]]
        self.assertEqual((stopped["rank"], stopped["signal"]), (0, "SIGTERM"))

    def test_each_event_is_there_at_once_and_earlier_jobs_stay(self):
        self.write("events", '{"event": "end"}\n')
        job = self.start("--events", self.path("events"), *shell("while [ ! -e finish ]; do sleep 0.01; done"))
        wait_until(lambda: len(self.read("events").splitlines()) > 1, "the start event")
        self.assertEqual([event["event"] for event in self.events()], ["end", "start"])
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)
        self.assertEqual([event["event"] for event in self.events()], ["end", "start", "exit", "end"])

    def test_the_end_is_told_when_the_supervising_process_is_killed(self):
        job = self.start("--events", self.path("events"), *shell(": > ready; exec sleep 1000"))
        self.wait_for_files("ready")
        os.kill(job.supervisor(), signal.SIGKILL)
        status = job.finish()[0]
        self.assertEqual(self.of_kind("end")[0]["exit_status"], status)
        self.assertNotEqual(status, 0)

    def test_a_file_that_cannot_be_written_is_refused_before_the_start(self):
        os.mkfifo(self.path("pipe"))
        for file in (self.path("missing/events"), self.folder, self.path("pipe")):
            status, out, err = self.run_job("--events", file, *shell("echo started"))
            self.assertEqual((status, out, len(err.splitlines())), (125, "", 1), err)
            self.assertIn(f"--events {file}: ", err)

    def test_a_full_disk_is_said_aloud_and_gives_a_status(self):
        status, _, err = self.run_job("--events", "/dev/full", "true")
        self.assertEqual(status, 125)
        self.assertEqual(err, "ddprun: --events /dev/full: No space left on device\n")


if __name__ == "__main__":
    main()
