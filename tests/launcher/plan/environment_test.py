"""A worker's environment: everything torchrun sets, on top of what ddprun was given."""

import json
import os
import signal

from harness import LauncherTest, free_port, main

DUMP = ("python3", "-c", "import os, json; json.dump(dict(os.environ), open(os.environ['DDPRUN_TEST_FOLDER'] + '/dump.' + "
                         "os.environ['RANK'], 'w'))")


class Environment(LauncherTest):
    def dump(self, *options, environment=None):
        status, _, err = self.run_job(*options, *DUMP, environment=environment)
        self.assertEqual(status, 0, err)
        names = sorted(name for name in os.listdir(self.folder) if name.startswith("dump."))
        workers = [json.loads(self.read(name)) for name in names]
        for name in names:
            os.remove(self.path(name))
        return workers, err

    def test_all_of_torchruns_variables_and_no_others(self):
        workers, _ = self.dump("-n", "3", environment={"OUTER": "kept", "RANK": "77", "MASTER_PORT": "1",
                                                             "DDPRUN_PROGRESS_FD": "987654", "DDPRUN_TIMELINE_FD": "987654"})
        base = self.dump("-n", "1")[0][0]
        self.assertEqual(len(workers), 3)
        for rank, variables in enumerate(workers):
            added = {name: value for name, value in variables.items()
                     if name not in os.environ and not name.startswith("DDPRUN_TEST_")}
            port = added.pop("MASTER_PORT")
            self.assertTrue(1024 <= int(port) <= 65535)
            self.assertRegex(added.pop("TORCHELASTIC_RUN_ID"), r"^[0-9a-f]{32}$")
            self.assertTrue(os.path.isabs(added.pop("TORCHELASTIC_ERROR_FILE")))
            for name in ("DDPRUN_PROGRESS_FD", "DDPRUN_TIMELINE_FD"):
                self.assertIn(int(added.pop(name)), range(3, 987654))
            self.assertGreaterEqual(int(added.pop("DDPRUN_STACK_SIGNAL")), signal.SIGRTMIN)
            threads = int(added.pop("OMP_NUM_THREADS"))
            self.assertEqual(threads, max(1, len(os.sched_getaffinity(0)) // 3))
            for name in ("LC_CTYPE", "PWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"):  # python and shells add them
                added.pop(name, None)
            self.assertEqual(added, {
                "OUTER": "kept",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "3",
                "LOCAL_WORLD_SIZE": "3",
                "GROUP_RANK": "0",
                "GROUP_WORLD_SIZE": "1",
                "ROLE_NAME": "default",
                "ROLE_RANK": str(rank),
                "ROLE_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1",
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            })
        self.assertEqual(base["WORLD_SIZE"], "1")
        self.assertEqual(len({worker["MASTER_PORT"] for worker in workers}), 1)
        self.assertEqual(len({worker["TORCHELASTIC_ERROR_FILE"] for worker in workers}), 3)

    def test_variables_that_are_only_defaults_are_kept(self):
        workers, err = self.dump("-n", "2", environment={"OMP_NUM_THREADS": "5", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"})
        for variables in workers:
            self.assertEqual(variables["OMP_NUM_THREADS"], "5")
            self.assertEqual(variables["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "3")
        self.assertEqual(err, "")

    def test_the_thread_default_is_said_in_one_line(self):
        _, err = self.dump("-n", "2")
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("OMP_NUM_THREADS", err)

    def test_options_that_name_variables(self):
        workers, _ = self.dump("-n", "1", "--role", "trainer", "--rdzv-id", "job7")
        self.assertEqual(workers[0]["ROLE_NAME"], "trainer")
        self.assertEqual(workers[0]["TORCHELASTIC_RUN_ID"], "job7")

    def test_a_fixed_port(self):
        port = free_port()
        workers, _ = self.dump("-n", "1", "--master_port", str(port))
        self.assertEqual(workers[0]["MASTER_PORT"], str(port))

    def test_entries_without_a_name_or_value_survive(self):
        job_environment = {"EMPTY": "", "WITH_EQUALS": "a=b=c", "NEWLINE": "a\nb"}
        workers, _ = self.dump("-n", "1", environment=job_environment)
        for name, value in job_environment.items():
            self.assertEqual(workers[0][name], value)


if __name__ == "__main__":
    main()
