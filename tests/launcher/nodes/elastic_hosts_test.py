"""--nnodes MIN:MAX on hosts of their own: cables that are pulled and put back, with and without etcd."""

import subprocess
import time

from elastic_nodes import RANK, ElasticTest, free_port
from harness import DDPRUN, Job, main
from etcd_nodes import WHY_NOT as NO_ETCD
from hosts import Hosts, skip_reason

WHY_NOT = skip_reason()


class ElasticHosts(ElasticTest):
    count = 3

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self.count)
        self.addCleanup(self.remove_hosts)

    def remove_hosts(self):
        self.hosts.close()
        self.assertEqual(self.hosts.left(), [])

    def tearDown(self):
        self.nothing_is_left()

    def on_host(self, name, host, *options, nnodes="2:3"):
        """Host 0 has the address at which they meet."""
        log = open(self.path(f"log.{name}"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        meeting = options or ("--rdzv_backend", "c10d", "--rdzv_endpoint", f"{self.hosts.address(0)}:29400")
        words = [*self.hosts.on(host), DDPRUN, "--nnodes", nnodes, *meeting, "--max_restarts", "5", "--join_restart",
                 "--node_timeout", "1", "--grace", "5", "-n", "1", "sh", "-c", f'cd "$DDPRUN_TEST_FOLDER" || exit 99\n{RANK}']
        job = Job(words[1:], self.folder, environment={"NODE": name}, program=words[0], stdout=log, stderr=log)
        self.addCleanup(job.clean_up)
        self.nodes[name] = job
        return job

    def names_in(self, number, size):
        for place in range(size):
            self.wait_for_round(number, place)
        return [self.read(f"round.{number}.{place}").split()[5] for place in range(size)]


class WithoutEtcd(ElasticHosts):
    def test_a_host_that_is_cut_off_is_left_behind_and_taken_in_again_when_it_comes_back(self):
        for host, name in enumerate("abc"):
            self.on_host(name, host)
        self.assertEqual(set(self.names_in(0, 3)), set("abc"))
        self.assertEqual(self.names_in(0, 1), ["a"])
        begin = time.monotonic()
        self.hosts.cable(2, plugged=False)
        self.assertEqual(self.names_in(1, 2), ["a", "b"])
        self.assertLess(time.monotonic() - begin, 30)  # 1.7 s on a quiet machine
        self.said("c", "the connection to node 0 broke")
        self.hosts.cable(2, plugged=True)
        self.assertEqual(self.names_in(2, 3), ["a", "b", "c"])
        self.finish_well("a", "b", "c")

    def test_the_coordinators_host_that_is_cut_off_ends_the_job_everywhere(self):
        for host, name in enumerate("abc"):
            self.on_host(name, host)
        self.names_in(0, 3)
        self.hosts.cable(0, plugged=False)
        self.end("a", "b", "c", status=1)
        for name in "bc":
            self.assertIn("was lost, and not found again", self.log(name))
        self.assertIn("has had no connection to any other node for so long that the other nodes have ended", self.log("a"))


class WithEtcd(ElasticHosts):
    count = 4

    def test_a_coordinators_host_that_is_cut_off_is_replaced_and_joins_again(self):
        url, peer = f"http://{self.hosts.address(3)}:2379", f"http://127.0.0.1:{free_port()}"
        etcd = subprocess.Popen([*self.hosts.on(3), "etcd", "--data-dir", self.path("etcd"), "--listen-client-urls", url,
                                 "--advertise-client-urls", url, "--name", "one", "--listen-peer-urls", peer,
                                 "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(etcd.wait)
        self.addCleanup(etcd.kill)
        where = ("--rdzv_backend", "etcd", "--rdzv_endpoint", f"{self.hosts.address(3)}:2379")
        for host, name in enumerate("abc"):
            self.on_host(name, host, *where)
        first = self.names_in(0, 3)
        self.hosts.cable("abc".index(first[0]), plugged=False)
        others = self.names_in(1, 2)
        self.assertEqual(set(others), set(first[1:]))
        self.said(first[0], "this node no longer coordinates the job")
        self.hosts.cable("abc".index(first[0]), plugged=True)
        self.assertEqual(self.names_in(2, 3), [*others, first[0]])
        self.finish_well(*first)


if NO_ETCD:
    del WithEtcd

if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
