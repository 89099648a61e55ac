"""Options that change how a job runs: restarts, time limit, environment, folder, daemons, and torchrun's spellings."""

import os
import signal
import time

from harness import LauncherTest, free_port, is_running, main, shell, wait_until


class Restarts(LauncherTest):
    def test_a_job_that_fails_once_is_started_again_as_a_whole(self):
        script = """
            echo "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT $TORCHELASTIC_ERROR_FILE" >> seen.$RANK
            [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
            while [ ! -e seen.0 ] || [ ! -e seen.2 ]; do sleep 0.01; done
            [ $RANK = 1 ] && exit 5
            sleep 1000"""
        status, _, err = self.run_job("-n", "3", "--max-restarts", "2", *shell(script))
        self.assertEqual(status, 0, err)
        self.assertIn("rank 1 failed first: it exited with status 5", err)
        self.assertIn("restart 1 of 2", err)
        files = set()
        for rank in range(3):
            lines = [line.split() for line in self.read(f"seen.{rank}").splitlines()]
            self.assertEqual([line[:2] for line in lines], [["0", "2"], ["1", "2"]])
            files.update(line[3] for line in lines)
        self.assertEqual(len(files), 6)

    def test_each_attempt_has_a_fresh_store(self):
        program = self.write("client.py", """
import os, socket, struct, sys
with socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))) as store:
    store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BQ", 4, 2) + b"/k" + struct.pack("<q", 1))
    data = b""
    while len(data) < 8:
        data += store.recv(8)
sys.exit(40 + struct.unpack("<q", data)[0])
""")
        for options in ((), ("--master-port", str(free_port()))):
            status, _, err = self.run_job("--max-restarts", "2", *options, program)
            self.assertEqual(status, 41, err)
            self.assertEqual(err.count("exited with status 41"), 3)

    def test_being_told_to_stop_is_no_reason_to_restart(self):
        job = self.start("-n", "2", "--max-restarts", "5", *shell("echo x >> runs.$RANK; : > ready.$RANK; exec sleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assertEqual(self.read("runs.0"), "x\n")

    def test_a_signal_ends_the_wait_before_a_restart(self):
        with open(self.path("err"), "wb") as err:
            job = self.start("--max-restarts", "5", "--restart-backoff", "1000", *shell("exit 3"), stderr=err)
        wait_until(lambda: "restarting all ranks" in self.read("err"), "the wait before a restart")
        wait_until(lambda: job.process.poll() is not None or job.signal(signal.SIGTERM), "ddprun's end")
        self.assertEqual(job.finish()[0], 3)

    def test_a_time_limit_ends_the_wait_before_a_restart(self):
        begin = time.monotonic()
        status, _, err = self.run_job("--max-restarts", "1", "--restart-backoff", "1000", "--timeout", "0.5",
                                      *shell("echo x >> runs; exit 4"))
        self.assertEqual((status, self.read("runs")), (4, "x\n"), err)
        self.assertIn("not restarted: --timeout expired", err)
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_time_limit_that_ends_while_a_failed_attempt_is_being_stopped_counts(self):
        script = """
            echo x >> runs.$RANK
            [ $RANK = 0 ] && { while [ ! -e ready ]; do sleep 0.01; done; exit 4; }
            trap ': > told' TERM; : > ready
            while [ ! -e finish ]; do sleep 0.01; done; exit 0"""
        begin = time.monotonic()
        job = self.start("-n", "2", "--max-restarts", "3", "--timeout", "2", *shell(script))
        self.wait_for_files("told")
        wait_until(lambda: time.monotonic() - begin > 2.5, "the end of the time")
        self.write("finish", "")
        status, _, err = job.finish()
        self.assertEqual((status, self.read("runs.0")), (4, "x\n"), err)
        self.assertIn("not restarted: --timeout expired", err)

    def test_a_time_limit_counts_in_a_later_attempt(self):
        status, _, err = self.run_job("--max-restarts", "1", "--timeout", "1",
                                      *shell("[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exec sleep 1000; exit 4"))
        self.assertEqual(status, 124, err)

    def test_the_leftovers_of_an_attempt_are_gone_before_the_next(self):
        script = """
            if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
                setsid sleep 1000 & echo $! > daemon; exit 1
            fi
            ! kill -0 $(cat daemon) 2>/dev/null"""
        self.assertEqual(self.run_job("--max-restarts", "1", *shell(script))[0], 0)


class JobOptions(LauncherTest):
    def test_a_time_limit_stops_the_job_with_124(self):
        begin = time.monotonic()
        job = self.start("-n", "2", "--timeout", "0.3", "sleep", "1000")
        status, _, err = job.finish()
        self.assertEqual(status, 124, err)
        self.assertIn("--timeout", err)
        self.assertLess(time.monotonic() - begin, 5)
        self.assert_nothing_left(job)
        self.assertEqual(self.run_job("--timeout", "100", "true")[0], 0)

    def test_exported_variables(self):
        script = 'echo "$A|$B|${OUTER-unset}|$RANK|$OMP_NUM_THREADS" > seen'
        status, _, err = self.run_job("-x", "A=1=2", "-x", "B=", "-x", "OUTER", "-x", "OMP_NUM_THREADS=7", *shell(script),
                                      environment={"OUTER": "kept"})
        self.assertEqual(status, 0, err)
        self.assertEqual(self.read("seen"), "1=2||kept|0|7\n")

    def test_the_ranks_start_in_the_named_folder(self):
        status, out, _ = self.run_job("--wdir", self.folder, "pwd", environment={"PWD": ""})
        self.assertEqual((status, out.strip()), (0, os.path.realpath(self.folder)))
        status, _, err = self.run_job("--wdir", self.path("nowhere"), "pwd")
        self.assertEqual((status, len(err.splitlines())), (125, 1))

    def test_daemons_can_be_kept(self):
        job = self.start("--keep-daemons", *shell("setsid sleep 1000 >/dev/null 2>&1 & echo $! > daemon"))
        self.assertEqual(job.finish()[0], 0)
        daemon = int(self.read("daemon"))
        self.assertTrue(is_running(daemon))
        os.kill(daemon, signal.SIGKILL)

    def test_options_from_pet_variables(self):
        environment = {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "r", "PET_NO_PREFIX": "1"}
        status, out, err = self.run_job("sh", "-c", "echo $WORLD_SIZE $ROLE_NAME", environment=environment)
        self.assertEqual((status, out), (0, "2 r\n2 r\n"), err)
        status, out, _ = self.run_job("-n", "1", "sh", "-c", "echo $WORLD_SIZE", environment=environment)
        self.assertEqual((status, out), (0, "1\n"))
        self.assertEqual(self.run_job("true", environment={"PET_NPROC_PER_NODE": "many"})[0], 125)

    def test_a_variable_of_a_flag_that_says_neither_yes_nor_no_is_named(self):
        status, _, err = self.run_job("true", environment={"PET_STANDALONE": "maybe"})
        self.assertEqual(status, 125)
        self.assertEqual(err, "ddprun: PET_STANDALONE: expected 1, true, yes or on, or 0, false, no or off, got 'maybe'\n")
        for value in ("1", "true", "Yes", "ON", "0", "false", "no", "off", ""):
            self.assertEqual(self.run_job("true", environment={"PET_STANDALONE": value})[0], 0, value)
        for value in ("9" * 20, "5", "-1", "+", "1 "):
            self.assertIn(f"or off, got '{value}'", self.run_job("true", environment={"PET_STANDALONE": value})[2])

    def test_an_error_names_the_variable_whenever_it_is_found(self):
        for variable, value, option in (
            ("METRICS_PORT", "1.2.3.4:1", "--metrics_port"), ("WDIR", "/nope", "--wdir"), ("LOG_DIR", "/etc/passwd", "--log_dir"),
            ("EVENTS", "/tmp", "--events"), ("TIMELINE", "/tmp", "--timeline"), ("IFACE", "nope0", "--iface"),
            ("HOSTFILE", "/nope", "--hostfile"), ("HOSTS", "a:0", "-H"), ("STDIN", "7", "--stdin"), ("PREFIX", "{bad}", "--prefix"),
            ("OUTPUT_FILENAME", "/etc/passwd", "--output_filename"), ("DEBUG", "0", "--debug"),
        ):  # fmt: skip
            with self.subTest(variable):
                status, _, err = self.run_job("true", environment={f"PET_{variable}": value})
                self.assertEqual((status, err.count("\n")), (125, 1))
                self.assertTrue(err.endswith(f" ({option} is from PET_{variable})\n"), err)
        for name in ("a b", "host\t", "a\x01"):
            status, _, err = self.run_job("--nnodes", "2", "true", environment={"PET_MASTER_ADDR": name})
            self.assertEqual(status, 125)
            self.assertIn("expected a host's name or address, without blanks, got '", err)
            self.assertIn("(--master_addr is from PET_MASTER_ADDR)", err)
        self.assertIn("without a port, got 'localhost:1'", self.run_job("--nnodes", "2", "--master_addr", "localhost:1", "true")[2])
        status, _, err = self.run_job("--nnodes", "2", "--node_rank", "0", "--master_addr", "[::1]", "--join_timeout", "1", "true")
        self.assertEqual(status, 124)
        self.assertIn(" at ::1 port 29500", err)
        for program, environment, expected in (
            (["sleep", "600"], {"PET_TIMEOUT": "1"}, "--timeout expired (--timeout is from PET_TIMEOUT)"),
            (["sleep", "600"], {"PET_START_TIMEOUT": "1"}, "of --start_timeout (--start_timeout is from PET_START_TIMEOUT)"),
            (["true"], {"PET_TEE": "7:1"}, "has 1 rank (--tee is from PET_TEE)"),
        ):
            with self.subTest(environment):
                self.assertIn(expected, self.run_job(*program, environment=environment)[2])
        status, _, err = self.run_job("--nnodes", "2", "true", environment={"PET_RDZV_SECRET_FILE": "/nope"})
        self.assertIn("(--rdzv_secret_file is from PET_RDZV_SECRET_FILE)", err)

    def test_torchruns_other_options_are_accepted(self):
        status, out, err = self.run_job("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=7", "--rdzv-conf",
                                        "timeout=5", "--monitor-interval", "5", "--start-method", "spawn", "--local-addr",
                                        "x", "--nnodes=1", "sh", "-c", "echo $TORCHELASTIC_RUN_ID")
        self.assertEqual((status, out), (0, "7\n"), err)

    def test_what_several_nodes_cannot_do_is_said(self):
        for arguments, text in ((("--rdzv-backend=zoo",), "expected static, c10d, etcd or etcd-v2"), (("--rdzv-backend=etcd",), "--rdzv_endpoint"), (("--rdzv-backend=c10d",), "--rdzv_endpoint"),
                                (("--rdzv-endpoint", "host:x"), "--rdzv_endpoint")):
            status, _, err = self.run_job("--nnodes", "2", *arguments, "true")
            self.assertEqual((status, len(err.splitlines())), (125, 1), err)
            self.assertIn(text, err)


if __name__ == "__main__":
    main()
