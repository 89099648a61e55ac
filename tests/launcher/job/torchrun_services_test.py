"""What torchrun does for programs besides starting them: the error file of whoever started the launcher, and torchrun's variables. The
file timer has a test of its own."""

import json
import os

from harness import LauncherTest, main, shell


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
        self.assertIn("two names of one option", self.run_job("--grace", "1", "--shutdown-timeout", "1", "true")[2])
        for environment in ({"PET_SHUTDOWN_TIMEOUT": "7"}, {"PET_GRACE": "7"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}):
            self.assertEqual(self.run_job("--shutdown-timeout", "1", "true", environment=environment)[0], 0)
            self.assertEqual(self.run_job("--grace", "1", "true", environment=environment)[0], 0)
        err = self.run_job("true", environment={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "x"})[2]
        self.assertIn("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected a number", err)

    def test_options_behind_the_program_are_the_programs(self):
        self.assertEqual(self.run_job("--nproc-p", "1", "echo", "--nproc-p", "2", "--rdzv")[1], "--nproc-p 2 --rdzv\n")


if __name__ == "__main__":
    main()
