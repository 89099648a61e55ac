"""One command for several hosts that are network namespaces, each with an sshd and addresses of its own."""

import os
import shutil
import tempfile

import hosts
from harness import DDPRUN, Job, LauncherTest, main, shell, wait_until
from ssh_hosts import Sshd, running, skip_reason

WHY_NOT = skip_reason() or hosts.skip_reason()


class OnNamespaces(LauncherTest):
    count = 3
    kinds = (4, 6)

    def setUp(self):
        super().setUp()
        self.hosts = hosts.Hosts(self.count, self.kinds)
        self.addCleanup(self.remove_hosts)
        self.place = tempfile.mkdtemp(prefix="ddprun_sshd_")
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        addresses = [{4: "0.0.0.0", 6: "::"}[kind] for kind in self.kinds]
        self.sshds = []
        self.addCleanup(lambda: [sshd.close() for sshd in self.sshds])
        for host in range(1, self.count):
            self.sshds.append(Sshd(self.place, addresses=addresses, on=self.hosts.on(host)))
        self.ddprun = shutil.copy(DDPRUN, os.path.join(self.place, "ddprun"))
        self.addCleanup(self.assert_all_gone)

    def assert_all_gone(self):
        wait_until(lambda: not running(self.ddprun), "the end of all ddpruns")

    def remove_hosts(self):
        self.hosts.close()
        self.assertEqual(self.hosts.left(), [])

    def job(self, *arguments, **options):
        """Started on host 0."""
        words = [*self.hosts.on(0), self.ddprun, "--ssh-command", self.sshds[0].ssh, *arguments]
        job = Job(words[1:], self.folder, program=words[0], **options)
        self.addCleanup(job.clean_up)
        return job


class Addresses(OnNamespaces):
    def where_it_meets(self, places, *options):
        job = self.job("-H", places, *options, "--no-prefix", "sh", "-c", "echo $MASTER_ADDR")
        status, out, err = job.finish()
        self.assertEqual(status, 0, err)
        return set(out.split())

    def test_the_first_host_is_met_where_ssh_has_reached_it(self):
        self.assertEqual(self.where_it_meets("10.203.0.2:1,10.203.0.3:2"), {"10.203.0.2"})
        self.assertEqual(self.where_it_meets("[fd00:ddd::3]:1,[fd00:ddd::2]:1"), {"fd00:ddd::3"})

    def test_this_host_is_met_where_the_others_see_it(self):
        self.assertEqual(self.where_it_meets("localhost:1,10.203.0.3:1"), {"10.203.0.1"})
        self.assertEqual(self.where_it_meets("10.203.0.1:1,10.203.0.3:1"), {"10.203.0.1"})

    def test_an_address_that_the_user_names(self):
        self.assertEqual(self.where_it_meets("localhost:1,10.203.0.3:1", "--master-addr", "fd00:ddd::1"), {"fd00:ddd::1"})

    def test_check_names_the_interface(self):
        job = self.job("-H", "10.203.0.2:1,10.203.0.3:1", "--check")
        status, out, err = job.finish()
        self.assertEqual(status, 0, out + err)
        self.assertRegex(out, r"node 0 at 10.203.0.2 port \d+ is reached from 10.203.0.3 \(eth0\)")


class Cables(OnNamespaces):
    SLEEP = shell(": > ready.$RANK; exec sleep 1000")

    def test_a_cable_that_is_pulled_ends_all(self):
        job = self.job("-H", "localhost:1,10.203.0.2:1,10.203.0.3:1", "--ssh-timeout", "30", *self.SLEEP)
        self.wait_for_files("ready.0", "ready.1", "ready.2")
        self.hosts.cable(1, plugged=False)
        status, _, err = job.finish()
        self.assertEqual(status, 1, err)
        wait_until(lambda: not job.members(), "the end of the host that nobody reaches")

    def test_a_host_that_does_not_answer_is_named(self):
        self.hosts.cable(2, plugged=False)
        status, _, err = self.job("-H", "10.203.0.2:1,10.203.0.3:1", "--ssh-timeout", "20", "true").finish()
        self.assertEqual(status, 125)
        self.assertRegex(err, "host 10.203.0.3: (it does not answer|there is no route to it|it did not answer within)")
        self.assertNotIn("10.203.0.2:", err)


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
