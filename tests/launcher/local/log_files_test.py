"""Log files of the ranks: torchrun's and horovodrun's layouts, what goes where, and what happens when they cannot be written."""

import glob
import hashlib
import os
import resource
import subprocess
import unittest

from harness import DDPRUN, LauncherTest, main, shell

QUIET = {"OMP_NUM_THREADS": "1"}
SPEAK = "echo out $RANK; echo err $RANK >&2"


class LogFilesTest(LauncherTest):
    def logs(self, *arguments, **options):
        """Runs a job with --log-dir; returns (status, stdout, stderr without the line on the folder, folder of the run)."""
        options.setdefault("environment", QUIET)
        status, out, err = self.run_job("--log-dir", self.path("logs"), *arguments, **options)
        runs = glob.glob(self.path("logs/*"))
        self.assertEqual(len(runs), 1, err)
        self.assertIn(f"ddprun: log files: {runs[0]}\n", err)
        return status, out, err.replace(f"ddprun: log files: {runs[0]}\n", ""), runs[0]

    def text(self, *path):
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read()


class Layout(LogFilesTest):
    def test_redirected_streams_are_in_torchruns_files_and_nowhere_else(self):
        status, out, err, run = self.logs("-n", "2", "--rdzv-id", "job/7", "--redirects", "3", *shell(SPEAK))
        self.assertEqual((status, out, err), (0, "", ""))
        self.assertRegex(os.path.basename(run), r"^job_7_\w+$")
        for rank in ("0", "1"):
            self.assertEqual(sorted(os.listdir(os.path.join(run, "attempt_0", rank))), ["stderr.log", "stdout.log"])
            self.assertEqual(self.text(run, "attempt_0", rank, "stdout.log"), f"out {rank}\n")
            self.assertEqual(self.text(run, "attempt_0", rank, "stderr.log"), f"err {rank}\n")

    def test_teed_streams_are_in_the_file_and_on_the_console(self):
        status, out, err, run = self.logs("-n", "2", "--tee", "3", *shell(SPEAK))
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] out 0", "[1] out 1"]))
        self.assertEqual(sorted(err.splitlines()), ["[0] err 0", "[1] err 1"])
        self.assertEqual(self.text(run, "attempt_0", "1", "stdout.log"), "out 1\n")

    def test_streams_and_ranks_are_chosen_one_by_one(self):
        status, out, err, run = self.logs("-n", "12", "-r", "0:1,11:3", "-t", "10:2", *shell(SPEAK))
        self.assertEqual(status, 0)
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{rank}] out {rank}" for rank in range(1, 11)))
        self.assertEqual(sorted(err.splitlines()), sorted(f"[{rank}] err {rank}" for rank in range(11)))
        files = sorted(os.path.relpath(path, run) for path in glob.glob(run + "/*/*/*"))
        self.assertEqual(files, ["attempt_0/0/stdout.log", "attempt_0/10/stderr.log", "attempt_0/11/stderr.log",
                                 "attempt_0/11/stdout.log"])

    def test_a_local_rank_that_is_not_there_is_named(self):
        for option in ("--tee", "--redirects"):
            status, _, err = self.run_job("-n", "2", option, "0:1,7:1", "--log_dir", self.path("logs"), "true")
            self.assertEqual(status, 0, err)
            self.assertIn(f"{option} names local rank 7, which is not on this node: it has 2 ranks", err)
        _, _, err = self.run_job("-n", "2", "--local_ranks_filter", "0,1", "true")
        self.assertNotIn("names local rank", err)

    def test_a_redirected_stream_is_the_file_itself(self):
        status, _, _, run = self.logs("-r", "1", *shell("exec 3>&1; readlink /proc/$$/fd/3 > link"))
        self.assertEqual((status, self.read("link").strip()), (0, os.path.realpath(run) + "/attempt_0/0/stdout.log"))

    def test_each_attempt_has_its_own_files(self):
        status, _, _, run = self.logs("-r", "1", "--max-restarts", "1",
                                      *shell("echo attempt $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))"))
        self.assertEqual(status, 0)
        for attempt in ("0", "1"):
            self.assertEqual(self.text(run, f"attempt_{attempt}", "0", "stdout.log"), f"attempt {attempt}\n")

    def test_error_files_are_among_the_log_files(self):
        script = 'echo "{\\"message\\": \\"my reason\\", \\"timestamp\\": 1}" > "$TORCHELASTIC_ERROR_FILE"; exit 3'
        status, _, err, run = self.logs(*shell(script))
        self.assertEqual(status, 3)
        self.assertIn("my reason", err)
        self.assertIn("my reason", self.text(run, "attempt_0", "0", "error.json"))

    def test_a_relative_folder_is_ours_and_not_the_ranks(self):
        os.mkdir(self.path("elsewhere"))
        script = 'cd elsewhere; echo "{\\"message\\": \\"my reason\\"}" > "$TORCHELASTIC_ERROR_FILE"; exit 3'
        status, _, err = self.run_job("--log-dir", "logs", "-r", "3", *shell(script), cwd=self.folder, environment=QUIET)
        self.assertEqual(status, 3)
        self.assertIn("my reason", err)
        self.assertEqual(len(glob.glob(self.path("logs/*/attempt_0/0/error.json"))), 1)

    def test_without_a_folder_they_are_in_the_temporary_one(self):
        status, out, err = self.run_job("-r", "3", "--rdzv-id=x", *shell(SPEAK), environment={**QUIET, "TMPDIR": self.folder})
        folder, = glob.glob(self.path("ddprun_logs_x_*"))
        self.assertEqual((status, out, err), (0, "", f"ddprun: log files: {folder}\n"))
        self.assertEqual(self.text(folder, "attempt_0/0/stdout.log"), "out 0\n")

    def test_horovodruns_files(self):
        status, out, _ = self.run_job("-n", "11", "--output-filename", self.path("out"), *shell(SPEAK), environment=QUIET)
        self.assertEqual((status, len(out.splitlines())), (0, 11))
        self.assertEqual(sorted(os.listdir(self.path("out"))), [f"rank.{rank:02}" for rank in range(11)])
        self.assertEqual(self.read("out/rank.07/stdout"), "out 7\n")
        self.assertEqual(self.read("out/rank.10/stderr"), "err 10\n")

    def test_horovodruns_files_keep_all_attempts_but_not_the_last_job(self):
        script = "echo $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))"
        for _ in range(2):
            self.run_job("--max-restarts", "1", "--output-filename", self.path("out"), *shell(script))
            self.assertEqual(self.read("out/rank.0/stdout"), "0\n1\n")

    def test_files_hold_every_byte_without_prefixes(self):
        data = os.urandom(3 << 20)
        with open(self.path("data"), "wb") as file:
            file.write(data)
        job = self.start("-n", "2", "--tee", "1", "--log-dir", self.path("logs"), "cat", self.path("data"), environment=QUIET)
        job.process.communicate(timeout=20)
        logs = glob.glob(self.path("logs/*/attempt_0/?/stdout.log"))
        self.assertEqual(len(logs), 2)
        for log in logs:
            with open(log, "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).digest(), hashlib.sha256(data).digest())


class Console(LogFilesTest):
    def test_the_filter_shows_some_ranks_and_logs_all(self):
        status, out, err, run = self.logs("-n", "12", "--tee", "3", "--local-ranks-filter", "0,11", *shell(SPEAK))
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] out 0", "[11] out 11"]))
        self.assertEqual(sorted(err.splitlines()), ["[0] err 0", "[11] err 11"])
        for rank in range(12):
            self.assertEqual(self.text(run, "attempt_0", str(rank), "stderr.log"), f"err {rank}\n")
        status, out, err = self.run_job("-n", "3", "--local-ranks-filter=1", "--no-prefix", *shell(SPEAK), environment=QUIET)
        self.assertEqual((status, out, err), (0, "out 1\n", "err 1\n"))

    def test_the_report_quotes_a_rank_that_is_not_shown(self):
        status, _, err = self.run_job("-n", "3", "--local-ranks-filter=1",
                                      *shell("[ $RANK = 2 ] || exec sleep 1000; echo the reason >&2; exit 5"), environment=QUIET)
        self.assertEqual(status, 5)
        self.assertEqual(err.count("the reason"), 1)
        self.assertIn("  stderr:\n    the reason\n", err)

    def test_the_report_quotes_and_names_a_log_file(self):
        status, out, err, run = self.logs("-n", "2", "-r", "3", *shell(
            "[ $RANK = 1 ] || exec sleep 1000; seq 1000 >&2; echo the reason >&2; exit 5"))
        self.assertEqual((status, out), (5, ""))
        self.assertIn("    999\n    1000\n    the reason\n", err)
        self.assertNotIn("    990\n", err)
        self.assertIn(f"  log:    {run}/attempt_0/1/stderr.log\n", err)

    def test_the_report_quotes_what_passed_through(self):
        _, _, err = self.run_job("-n", "2", *shell("[ $RANK = 1 ] || exec sleep 1000; echo the reason >&2; exit 5"), environment=QUIET)
        self.assertIn("  stderr:\n    the reason\n", err)
        _, _, err = self.run_job("--no-prefix", *shell("echo the reason >&2; exit 5"), environment=QUIET)
        self.assertNotIn("stderr:", err)

    def test_lines_with_certain_texts_are_copied(self):
        _, out, _, run = self.logs("-n", "2", "--duplicate-stdout-filters", "loss,a,,b", "-r", "1",
                                   *shell("printf 'loss %s\\nother\\na,b\\na b\\nloss at the end' $RANK; echo loss >&2"))
        self.assertEqual(out, "")
        lines = self.text(run, "attempt_0", "filtered_stdout.log").splitlines()
        self.assertEqual(sorted(lines), sorted(["[0] loss 0", "[1] loss 1", "[0] a,b", "[1] a,b", "[0] loss at the end",
                                                "[1] loss at the end"]))
        self.assertFalse(os.path.exists(run + "/attempt_0/filtered_stderr.log"))
        self.assertEqual(self.text(run, "attempt_0/1/stdout.log"), "loss 1\nother\na,b\na b\nloss at the end")

    def test_one_teed_rank_is_shown_byte_for_byte_at_once(self):
        # A prompt has no newline; with nobody to mix it up with it need not wait for one.
        job = self.start("--tee", "1", "--log-dir", self.path("logs"), *shell("printf 'prompt> '; cat; printf '\\377\\n'"),
                         stdin=subprocess.PIPE, environment=QUIET)
        self.assertEqual(job.process.stdout.read(8), b"prompt> ")
        out, _ = job.process.communicate(b"answer\n", timeout=20)
        self.assertEqual(out, b"answer\n\xff\n")


class Trouble(LogFilesTest):
    def assert_refused(self, *arguments, **options):
        status, _, err = self.run_job(*arguments, *shell(": > ran"), environment=QUIET, **options)
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)
        self.assertFalse(os.path.exists(self.path("ran")))
        return err

    def test_a_folder_that_cannot_be_made_is_refused_before_the_start(self):
        self.write("file", "")
        self.assertIn("Not a directory", self.assert_refused("--log-dir", self.path("file/logs"), "-t", "3"))
        self.assertIn("--log_dir", self.assert_refused("--log-dir", "/proc/logs"))
        self.assertIn("--output_filename", self.assert_refused("--output-filename", self.path("file")))

    def test_a_file_that_cannot_be_opened_is_refused_before_the_start(self):
        os.makedirs(self.path("out/rank.1/stdout"))
        self.assertIn("out/rank.1/stdout", self.assert_refused("-n", "2", "--output-filename", self.path("out")))

    def test_too_few_descriptors_are_refused_before_the_start(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        err = self.assert_refused("-n", "100", "--tee", "3", "--log-dir", self.path("logs"), preexec_fn=limit)
        self.assertIn("the limit is 256", err)
        status, _, err = self.run_job("-n", "100", "-r", "3", "--log-dir", self.path("logs"), *shell("echo $RANK"),
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)), environment=QUIET)
        self.assertEqual(status, 0, err)
        self.assertEqual(len(glob.glob(self.path("logs/*/attempt_0/*/stdout.log"))), 100)

    def test_the_soft_limit_is_raised_and_the_ranks_get_theirs_back(self):
        status, _, err = self.run_job("-n", "30", "--tee", "3", "--log-dir", self.path("logs"), *shell("ulimit -n"),
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)), environment=QUIET)
        self.assertEqual(status, 0, err)
        log, = glob.glob(self.path("logs/*/attempt_0/29/stdout.log"))
        self.assertEqual(self.text(log), "64\n")

    def test_a_log_file_at_its_limit_is_said_aloud_and_gives_a_status(self):
        # The rank's own output is not a file; only ddprun writes one.
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        job = self.start("--tee", "1", "--log-dir", self.path("logs"), *shell("yes | head -c 1000000; while [ ! -e go ]; do sleep 0.01; done"),
                         preexec_fn=limit, environment=QUIET)
        self.assertEqual(len(job.process.stdout.read(1000000)), 1000000)
        said = b""
        while b"File too large" not in said:  # while the job still runs
            part = job.process.stderr.readline()
            self.assertTrue(part, said)
            said += part
        self.assertIn(b"stdout.log", said)
        self.write("go", "")
        self.assertEqual(job.finish()[0], 125)

    def test_a_job_that_is_refused_leaves_no_folder(self):
        status, _, err = self.run_job("--log_dir", self.path("logs"), "--timeline", self.path("missing/file"), "true")
        self.assertEqual(status, 125, err)
        self.assertEqual(os.listdir(self.path("logs")), [])


def can_mount():
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@unittest.skipUnless(can_mount(), "no mounts of our own here")
class FullDisk(LogFilesTest):
    def run_on_small_disk(self, *arguments, fill="", option="--log-dir"):
        """ddprun with its logs on a disk of 64 KiB that only it and its ranks see."""
        disk = self.path("disk")
        os.mkdir(disk)
        script = f'mount -t tmpfs -o size=64k none "$1" && cd "$1" && {{ {fill or ":"}; shift; exec "$@"; }}'
        command = ["unshare", "-Urm", "sh", "-c", script, "sh", disk, DDPRUN, option, disk + "/logs", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=30, check=False,
                              env={**os.environ, **QUIET, "DDPRUN_TEST_FOLDER": self.folder})
        return done.returncode, done.stdout, done.stderr.decode()

    def test_is_said_aloud_when_a_rank_writes_its_log_file_itself(self):
        # The rank does not look whether its writes succeed.
        status, _, err = self.run_on_small_disk("-r", "1", *shell("head -c 1000000 /dev/zero 2>/dev/null; exit 0"))
        self.assertEqual(status, 125, err)
        self.assertIn("No space left on device", err)

    def test_is_said_aloud_when_a_rank_that_is_not_shown_writes_into_a_folder_of_its_own(self):
        status, _, err = self.run_on_small_disk("-n", "2", "--local-ranks-filter", "0", *shell(
            "[ $RANK = 0 ] || head -c 1000000 /dev/zero 2>/dev/null; exit 0"), option="--output-filename")
        self.assertEqual(status, 125, err)
        self.assertIn("logs: No space left on device", err)

    def test_is_said_aloud_when_ddprun_writes_it(self):
        status, out, err = self.run_on_small_disk("-t", "1", *shell("head -c 1000000 /dev/zero"))
        self.assertEqual((status, len(out)), (125, 1000000), err)
        self.assertIn("stdout.log: No space left on device", err)

    def test_the_ranks_own_failure_keeps_its_status(self):
        status, _, err = self.run_on_small_disk("-t", "1", *shell("head -c 1000000 /dev/zero; exit 9"))
        self.assertEqual(status, 9, err)
        self.assertIn("No space left on device", err)

    def test_a_limit_on_the_size_of_files_is_no_full_disk(self):
        for blocks in (0, 1, 8):
            limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", DDPRUN, "-n", "2", "-t", "3"]
            done = subprocess.run([*limited, "--log-dir", self.path("logs"), *shell("head -c 100000 /dev/zero")], capture_output=True,
                                  timeout=60, check=False, env={**os.environ, **QUIET, "DDPRUN_TEST_FOLDER": self.folder})
            err = done.stderr.decode()
            with self.subTest(blocks=blocks):
                self.assertEqual(done.returncode, 125, err)
                self.assertIn("File too large (limit on the size of files: ulimit -f)", err)
                self.assertNotIn("No space left", err)

    def test_is_refused_when_it_is_full_already(self):
        status, _, err = self.run_on_small_disk("-t", "1", *shell(": > ran"), fill="head -c 1000000 /dev/zero > filler 2>/dev/null")
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)
        self.assertIn("No space left on device", err)
        self.assertFalse(os.path.exists(self.path("ran")))


if __name__ == "__main__":
    main()
