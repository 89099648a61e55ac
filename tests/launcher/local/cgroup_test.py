"""Where cgroups (v2) are delegated to the user, a job gets one of its own, which helps to end everything in it."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import unittest
import uuid

from harness import DDPRUN, LauncherTest, is_running, main, shell, wait_until


def own_cgroup():
    """The folder of this process's cgroup, None without one that can be written."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        group = next((line[3:].strip() for line in file if line.startswith("0::/")), None)
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = [line.split() for line in file if " - cgroup2 " in line]
    for mount in mounts:
        if group is not None and mount[3] == "/":
            folder = mount[4] + (group if group != "/" else "")
            return folder if os.access(folder, os.W_OK) else None
    return None


@unittest.skipUnless(os.geteuid() == 0 and own_cgroup(), "needs root and a writable cgroup2 file system")
class Cgroup(LauncherTest):
    def setUp(self):
        super().setUp()
        self.user = pwd.getpwnam("nobody")
        os.chmod(self.folder, 0o777)
        self.group = os.path.join(own_cgroup(), "ddprun_test_" + uuid.uuid4().hex)
        os.mkdir(self.group)
        self.addCleanup(self.remove_group)
        for name in ("", "cgroup.procs", "cgroup.subtree_control"):
            os.chown(os.path.join(self.group, name), self.user.pw_uid, self.user.pw_gid)
        # The build folder may be closed to others.
        shutil.copy(DDPRUN, self.path("ddprun"))

    def remove_group(self):
        for name in self.subgroups():
            os.rmdir(os.path.join(self.group, name))
        wait_until(lambda: not self.processes(), "the end of the processes in the test's cgroup")
        os.rmdir(self.group)

    def subgroups(self):
        return [entry.name for entry in os.scandir(self.group) if entry.is_dir()]

    def processes(self):
        with open(os.path.join(self.group, "cgroup.procs"), encoding="utf-8") as file:
            return file.read().split()

    def enter(self):
        with open(os.path.join(self.group, "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.setgid(self.user.pw_gid)
        os.setuid(self.user.pw_uid)

    def start_in_group(self, *arguments):
        return self.start(*arguments, program=self.path("ddprun"), preexec_fn=self.enter)

    def test_ranks_are_in_a_group_of_the_job_which_goes_with_it(self):
        status, out, err = self.start_in_group("-n", "2", *shell("cat /proc/self/cgroup")).finish()
        self.assertEqual(status, 0, err)
        groups = {line.split("0::")[1] for line in out.splitlines() if "0::" in line}
        self.assertEqual(len(groups), 1, out)
        self.assertRegex(groups.pop(), "/" + os.path.basename(self.group) + r"/ddprun-\d+$")
        self.assertEqual(self.subgroups(), [])

    def test_a_member_that_is_nobodys_child_is_ended_too(self):
        for end, expected in (("[ $RANK = 0 ] && exit 5; sleep 1000", 5), (": > up; sleep 1000", 128 + signal.SIGTERM)):
            stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, "
                                         "signal.SIG_IGN); print('up', flush=True); signal.pause()"],
                                        stdout=subprocess.PIPE)
            self.addCleanup(stranger.stdout.close)
            self.addCleanup(stranger.wait)
            self.addCleanup(stranger.kill)
            stranger.stdout.readline()
            job = self.start_in_group("-n", "2", "--grace", "0.3",
                                      *shell("while [ ! -e go ]; do sleep 0.01; done\n" + end))
            subgroup = wait_until(self.subgroups, "the job's cgroup")[0]
            with open(os.path.join(self.group, subgroup, "cgroup.procs"), "w", encoding="utf-8") as file:
                file.write(str(stranger.pid))
            self.write("go", "")
            if expected > 128:
                self.wait_for_files("up")
                job.signal(signal.SIGTERM)
            # Root's process: only the group's own kill reaches it from an unprivileged ddprun.
            status, _, err = job.finish()
            self.assertEqual(status, expected, err)
            self.assertFalse(is_running(stranger.pid))
            self.assertEqual(self.subgroups(), [])
            os.remove(self.path("go"))

    def test_groups_that_ranks_make_go_too(self):
        script = ('own=$(sed -n s/^0:://p /proc/self/cgroup)\n'
                  f'mkdir {own_cgroup()}/$(basename {self.group})/$(basename $own)/inner.$RANK\n')
        status, _, err = self.start_in_group("-n", "2", *shell(script)).finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(self.subgroups(), [])

    def test_after_kill_9_of_either_process(self):
        for victim in ("guardian", "supervisor"):
            job = self.start_in_group("-n", "2", *shell("trap '' TERM; : > ready.$RANK; sleep 1000"))
            self.wait_for_files("ready.0", "ready.1")
            os.kill(job.process.pid if victim == "guardian" else job.supervisor(), signal.SIGKILL)
            job.process.wait()
            wait_until(lambda job=job: not job.members(), "the end of all processes")
            wait_until(lambda: not self.subgroups(), "the end of the job's cgroup")
            os.remove(self.path("ready.0"))
            os.remove(self.path("ready.1"))


if __name__ == "__main__":
    main()
