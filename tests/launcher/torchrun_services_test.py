"""What torchrun does for programs besides starting them: the file timer, and the error file of whoever started the launcher."""

import json
import os
import sys

from harness import LauncherTest, main, shell

# What FileTimerClient writes, for ranks without PyTorch. acquire(scope, seconds) and release(scope).
CLIENT = """
import json, os, sys, time
def send(scope, expiration, signal=9, pid=None):
    with open(os.environ["TORCHELASTIC_TIMER_FILE"], "w") as pipe:
        pipe.write(json.dumps({"version": 1, "pid": pid or os.getpid(), "scope_id": scope, "expiration_time": expiration, "signal": signal}) + "\\n")
"""
TORCH_CLIENT = """
import os, time
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with timer.expires(after=60):
    pass
with timer.expires(after=1, scope="slow step"):
    if os.environ["RANK"] == "1":
        time.sleep(1000)
time.sleep(1000)
"""


class FileTimer(LauncherTest):
    ENABLED = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def python(self, text, *options, environment=None, client=CLIENT):
        script = self.write("program.py", client + text)
        return self.run_job(*options, "--grace", "1", script, environment={"PYTHON_EXEC": sys.executable, **(environment or self.ENABLED)})

    def test_a_rank_whose_timer_expires_is_killed_and_the_job_ends(self):
        status, _, err = self.python("""
if os.environ["RANK"] == "1":
    send("slow step", time.time() + 0.3)
time.sleep(1000)""", "-n", "2")
        self.assertEqual(status, 137, err)
        self.assertRegex(err, r"the file timer 'slow step' of rank 1, process \d+ expired; it is sent SIGKILL")
        self.assertIn("rank 1 failed first", err)

    def test_a_timer_that_is_released_kills_nobody(self):
        status, out, err = self.python("""
send("a", time.time() + 0.5)
send("b", time.time() + 0.5, signal=0)
send("a", -1)
time.sleep(2)
print("done")""")
        self.assertEqual((status, out), (0, "done\n"), err)
        self.assertRegex(err, r"the file timer 'b' of .* expired; it asks for no signal")

    def test_nothing_but_processes_of_the_job_is_killed(self):
        other = self.start("-n", "1", *shell(": > ready; exec sleep 1000"))
        self.wait_for_files("ready")
        victim = other.children_of(other.supervisor())[0]
        status, _, err = self.python(f"""
send("x", time.time(), pid={victim})
with open(os.environ["TORCHELASTIC_TIMER_FILE"], "wb") as pipe:
    pipe.write(b"\\xff no request\\n" + b"[1]\\n" + b"x" * 5000)
time.sleep(1)""")
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count("expected requests of FileTimerClient"), 1, err)
        self.assertIn(victim, other.members())

    def test_the_pipe_is_where_it_was_asked_for_and_goes_with_the_job(self):
        path = self.path("timer")
        os.mkfifo(path)  # of an earlier job
        program = shell('test -p "$TORCHELASTIC_TIMER_FILE" && echo $TORCHELASTIC_TIMER_FILE')
        status, out, err = self.run_job(*program, environment={**self.ENABLED, "TORCHELASTIC_TIMER_FILE": path})
        self.assertEqual((status, out), (0, path + "\n"), err)
        self.assertFalse(os.path.exists(path))
        self.write("data", "precious")
        status, _, err = self.run_job("true", environment={**self.ENABLED, "TORCHELASTIC_TIMER_FILE": self.path("data")})
        self.assertEqual((status, self.read("data")), (125, "precious"), err)
        self.assertIn("there is something else of this name", err)
        self.assertEqual(self.run_job(*shell("echo ${TORCHELASTIC_TIMER_FILE-none}"))[1], "none\n")

    def test_every_attempt_begins_without_timers(self):
        status, out, err = self.python("""
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    send("x", time.time() + 0.3)
    time.sleep(1000)
time.sleep(1)
print("done")""", "--max-restarts", "1")
        self.assertEqual((status, out), (0, "done\n"), err)

    def test_pytorchs_own_client(self):
        try:
            import torch.distributed.elastic.timer  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch in this Python")
        status, _, err = self.python("", "-n", "2", client=TORCH_CLIENT)
        self.assertEqual(status, 137, err)
        self.assertRegex(err, r"the file timer 'slow step.*' of rank 1, process \d+ expired; it is sent SIGKILL")


class ErrorFile(LauncherTest):
    RECORD = {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1"}}}

    def end(self, script, *options, target=None):
        """Runs ranks that leave RECORD and then do as `script` says; what whoever started ddprun finds."""
        target = target or self.path("parent.json")
        self.write("record", json.dumps(self.RECORD))
        status, _, err = self.run_job("-n", "2", *options, *shell(script), environment={"TORCHELASTIC_ERROR_FILE": target})
        return status, json.loads(self.read(target)) if os.path.isfile(target) else None, err

    def test_it_holds_what_the_first_failing_rank_wrote(self):
        script = 'test $RANK = 0 && exec sleep 1000; cp record "$TORCHELASTIC_ERROR_FILE"; exit 7'
        expected = {"message": {**self.RECORD["message"], "errorCode": 7}}
        self.assertEqual(self.end(script)[:2], (7, expected))
        self.write("parent.json", "what an earlier job left")
        self.assertEqual(self.end(script, "--log-dir", self.path("logs"))[:2], (7, expected))

    def test_a_signal_is_a_negative_code(self):
        script = 'test $RANK = 0 && exec sleep 1000; cp record "$TORCHELASTIC_ERROR_FILE"; kill -SEGV $$'
        status, record, err = self.end(script)
        self.assertEqual((status, record["message"]["errorCode"]), (139, -11), err)

    def test_a_message_that_is_text_stays_and_what_is_no_json_becomes_one(self):
        status, record, _ = self.end("""echo '{"message": "x", "timestamp": 1}' > "$TORCHELASTIC_ERROR_FILE"; exit 3""")
        self.assertEqual((status, record), (3, {"message": "x", "timestamp": 1}))
        status, record, _ = self.end("""printf 'broken {' > "$TORCHELASTIC_ERROR_FILE"; exit 3""")
        self.assertEqual((status, record["message"]["message"], record["message"]["errorCode"]), (3, "broken {", 3))

    def test_without_an_error_file_of_the_rank_there_is_none_as_with_torchrun(self):
        self.assertEqual(self.end("exit 3")[:2], (3, None))
        self.assertEqual(self.end("exit 0")[:2], (0, None))
        script = 'test $TORCHELASTIC_RESTART_COUNT = 1 || { cp record "$TORCHELASTIC_ERROR_FILE"; exit 7; }'
        self.assertEqual(self.end(script, "--max-restarts", "1")[:2], (0, None))

    def test_an_error_of_ddprun_itself_is_there_too(self):
        status, record, err = self.end("true", "--wdir", self.path("missing"))
        self.assertEqual(status, 125, err)
        self.assertIn("No such file", record["message"]["message"])
        self.assertTrue(record["message"]["extraInfo"]["timestamp"].isdigit())

    def test_a_file_that_cannot_be_written_is_one_line(self):
        script = 'test $RANK = 0 && exec sleep 1000; cp record "$TORCHELASTIC_ERROR_FILE"; exit 7'
        status, _, err = self.end(script, target=self.path("missing/parent.json"))
        self.assertEqual((status, err.count("TORCHELASTIC_ERROR_FILE")), (7, 1), err)
        self.assertRegex(err, r"TORCHELASTIC_ERROR_FILE .*/missing/parent.json cannot be written: No such file")


class Variables(LauncherTest):
    def test_an_unknown_variable_of_an_option_gets_a_line(self):
        status, out, err = self.run_job("echo", "x", environment={"PET_NPROC_PER_NODES": "2"})
        self.assertEqual((status, out), (0, "x\n"))
        self.assertEqual(err, "ddprun: PET_NPROC_PER_NODES has no effect: there is no such option; did you mean PET_NPROC_PER_NODE?\n")
        known = {"PET_NPROC_PER_NODE": "1", "PET_HOSTS": "", "PET_ROLE": "x", "PETS": "2"}
        self.assertEqual(self.run_job("--role", "y", "true", environment=known)[2], "")

    def test_the_two_names_of_the_grace_time(self):
        self.assertIn("two names of one time", self.run_job("--grace", "1", "--shutdown-timeout", "1", "true")[2])
        for environment in ({"PET_SHUTDOWN_TIMEOUT": "7"}, {"PET_GRACE": "7"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}):
            self.assertEqual(self.run_job("--shutdown-timeout", "1", "true", environment=environment)[0], 0)
            self.assertEqual(self.run_job("--grace", "1", "true", environment=environment)[0], 0)
        err = self.run_job("true", environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"})[2]
        self.assertIn("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected a number", err)

    def test_options_behind_the_program_are_the_programs(self):
        self.assertEqual(self.run_job("--nproc-p", "1", "echo", "--nproc-p", "2", "--rdzv")[1], "--nproc-p 2 --rdzv\n")


if __name__ == "__main__":
    main()
