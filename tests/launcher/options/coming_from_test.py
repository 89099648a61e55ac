"""docs/coming-from.md: every option that it promises exists, and its command lines mean what it says."""

import os
import re
import shlex

from harness import LauncherTest, main

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/coming-from.md")


BEGIN, END = "<!-- of ddprun --generate coming-from -->\n", "<!-- end -->\n"


def page():
    with open(PAGE, encoding="utf-8") as file:
        return file.read()


def rows():
    """(launcher, what is typed there, with ddprun) of every row of the tables that people have written."""
    before, rest = page().split(BEGIN)
    for text in (before, rest.split(END)[1]):
        for line in text.splitlines():
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == 3 and cells[1] not in ("ddprun", "here") and not set(cells[0]) <= set("-"):
                yield cells


def options_in(text):
    return re.findall(r"(?<![\w-])--[a-z][a-z_-]*[a-z]", text)


class ComingFrom(LauncherTest):
    def test_every_option_that_is_promised_exists(self):
        known = self.run_job("--help")[1].replace("_", "-")
        checked = 0
        for there, here, _ in rows():
            promised = options_in(here)
            if here.startswith(("the same", "accepted")):
                promised += [name for name in options_in(there) if "*" not in there.split(name, 1)[1][:3]]
            for option in promised:
                if option in ("--ntasks-per-node",):  # srun's own
                    continue
                with self.subTest(option=option):
                    self.assertRegex(known, re.escape(option.replace("_", "-")) + r"\b")
                    checked += 1
        self.assertGreater(checked, 20)

    def ranks(self, *arguments, **options):
        """What the ranks print, sorted."""
        status, out, err = self.run_job(*arguments, **options)
        self.assertEqual(status, 0, err)
        return sorted(out.splitlines())

    def test_torchruns_command_lines(self):
        show = ("--no-python", "sh", "-c", "echo $RANK/$WORLD_SIZE $ROLE_NAME")
        for words in ("--standalone --nproc-per-node=2", "--nnodes=1 --nproc_per_node 2 --node-rank=0 --master-addr=127.0.0.1 --master-port 0",
                      "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --rdzv-id=x --rdzv-conf timeout=900 --nnodes 1 --nproc-per-node 2",
                      "--nproc-per-node 2 --max-restarts 3 --monitor-interval 1 --start-method spawn --event-log-handler null "
                      "--logs-specs default --local-addr localhost --signals-to-handle SIGTERM,SIGINT --numa-binding off"):
            self.assertEqual(self.ranks(*shlex.split(words), *show), ["[0] 0/2 default", "[1] 1/2 default"])
        self.assertEqual(self.ranks("--nproc-per-node=2", "--role=trainer", "--virtual-local-rank", "--no-python", "sh", "-c",
                                    "echo $ROLE_NAME $LOCAL_RANK $CUDA_VISIBLE_DEVICES",
                                    environment={"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": "2"}),
                         ["[0] trainer 0 0", "[1] trainer 0 1"])
        self.assertEqual(self.ranks("-n", "2", "--expand-arguments", "echo", "${local_rank}"), ["[0] 0", "[1] 1"])
        self.assertEqual(self.ranks("-n", "2", "echo", "${local_rank} $$x"), ["[0] ${local_rank} $$x", "[1] ${local_rank} $$x"])
        self.assertEqual(self.ranks("-n", "2", "--use-env", "--pass-local-rank=local-rank", "echo"), ["[0] --local-rank=0", "[1] --local-rank=1"])
        self.assertEqual(self.run_job("-n", "2", "--exit-code", "torchrun", "sh", "-c", "exit 7")[0], 1)

    def test_mpiruns_command_lines(self):
        os.mkdir(self.path("folder"))
        self.assertEqual(self.ranks("-np", "2", "-H", "localhost:2", "-x", "A=b c", "--wdir", self.path("folder"), "--timeout", "60",
                                    "--bind-to", "none", "sh", "-c", 'echo "$A" ${PWD##*/}'), ["[0] b c folder", "[1] b c folder"])
        self.assertEqual(self.ranks("-n", "2", "--prefix=[1,{rank}]<{stream}>:", "echo", "x"), ["[1,0]<stdout>:x", "[1,1]<stdout>:x"])
        self.assertRegex("\n".join(self.ranks("-n", "2", "--prefix={time} [{rank}] ", "echo", "x")), r"\A\S.* \[[01]\] x\n\S.* \[[01]\] x\Z")
        self.ranks("-n", "2", "--bind-to", "core", "true")
        self.ranks("-n", "2", "--bind-to", "numa", "true")
        self.assertEqual(self.run_job("-n", "2", "--timeout", "0.2", "sleep", "1000")[0], 124)
        self.assertEqual(self.ranks("-n", "2", "--stdin", "none", "--no-prefix", "cat"), [])

    def test_mpiruns_command_lines_as_they_are_written_there(self):
        for words in ("-np 2 -map-by slot -bind-to none -mca pml ob1 --tag-output --allow-run-as-root --oversubscribe", "-np2 --verbose",
                      "-n 2 -genv A 1 -prepend-rank", "-np 2 --gloo -p 22 -H localhost:2", "--ntasks=2 --label -K --export=ALL"):
            with self.subTest(words=words):
                self.assertEqual(self.ranks(*shlex.split(words), "sh", "-c", "echo $RANK/$WORLD_SIZE"), ["[0] 0/2", "[1] 1/2"])
        self.assertEqual(self.ranks("-np", "2", "-genv", "A", "b c", "sh", "-c", 'echo "$A"'), ["[0] b c", "[1] b c"])

    def test_a_variable_that_is_not_there_is_said(self):
        status, out, err = self.run_job("-n", "2", "-x", "DDPRUN_TEST_NO_SUCH", "-x", "HOME", "echo", "x")
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] x", "[1] x"]))
        self.assertEqual([line for line in err.splitlines() if line.startswith("ddprun: -x ")],
                         ["ddprun: -x DDPRUN_TEST_NO_SUCH: this variable is not set here, so the ranks do not get it; to set it, write -x DDPRUN_TEST_NO_SUCH=VALUE"])

    def test_horovodruns_command_lines(self):
        status, out, err = self.run_job("-np", "2", "-H", "localhost:2", "--output-filename", self.path("out"), "--prefix=horovod",
                                        "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["[1,0]<stdout>:out", "[1,1]<stdout>:out"])
        self.assertIn("[1,1]<stderr>:err\n", err)
        self.assertEqual(self.read("out/rank.1/stdout"), "out\n")

    def test_others_command_lines(self):
        self.ranks("-n", "2", "--bind-to", "core", "--log-dir", self.path("logs"), "--tee", "3", "true")
        self.assertEqual(self.ranks("-n", "2", "--pass-local-rank", "echo"), ["[0] --local_rank=0", "[1] --local_rank=1"])


if __name__ == "__main__":
    main()
