"""A real Slurm on one machine: munged, slurmctld and one slurmd per host, each host a network and UTS namespace with a
name of its own. All files are in one folder; close() ends every daemon by its id."""

import ctypes
import os
import shutil
import signal
import subprocess

import hosts
from harness import wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

CONFIGURATION = """\
ClusterName=ddprun
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
JobRequeue=1
KillWait={kill_wait}
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
NodeName={nodes} NodeAddr={addresses} CPUs=16 State=UNKNOWN
PartitionName=all Nodes={nodes} Default=YES State=UP MaxTime=INFINITE
"""


PR_SET_CHILD_SUBREAPER = 36


def reap_one():
    """False when this process has no children any more."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def skip_reason():
    """Why there can be no cluster here, "" when there can."""
    missing = [name for name in (*DAEMONS, "srun", "sbatch", "scontrol", "unshare", "setpriv") if shutil.which(name, path=SEARCH) is None]
    if missing:
        return "not installed: " + ", ".join(missing)
    return hosts.skip_reason()


class Cluster:
    """Hosts n01, n02, ...; commands run on the first."""

    def __init__(self, folder, count, kill_wait=10, own_name_is_loopback=False):
        """own_name_is_loopback: as Debian has it in /etc/hosts."""
        self.own_name_is_loopback = own_name_is_loopback
        self.folder = folder
        self.count = count
        self.daemons = []
        self.names = [f"n{host + 1:02}" for host in range(count)]
        # slurmstepd outlives slurmd for a moment: it is to be waited for here.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.hosts = hosts.Hosts(count, kinds=(4,))
        try:
            self.write_files(kill_wait)
            self.start_daemons()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def write_files(self, kill_wait):
        for name in ("munge", "state", *(f"spool.{node}" for node in self.names)):
            os.mkdir(self.path(name), mode=0o755)
        with open(os.open(self.path("munge/key"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(128))
        lines = ["127.0.0.1 localhost", *(f"{self.hosts.address(host)} {name}" for host, name in enumerate(self.names))]
        self.write("hosts", "\n".join(lines) + "\n")
        for name in self.names:
            self.write(f"hosts.{name}", f"127.0.1.1 {name}\n" + "\n".join(line for line in lines if name not in line) + "\n")
        addresses = self.hosts.address(0).rpartition(".")[0] + f".[1-{self.count}]"
        self.write("slurm.conf", CONFIGURATION.format(folder=self.folder, first=self.names[0], kill_wait=kill_wait, addresses=addresses,
                                                      nodes=f"n[01-{self.count:02}]"))

        # Named, so that slurmd does not look for what is mounted; no plugin that is chosen above uses it.
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")

    def environment(self):
        # What ctest, or a Slurm around the test, says must not be mixed with what this one says.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "PET_", "OMP_"))}
        return {**kept, "PATH": SEARCH, "SLURM_CONF": self.path("slurm.conf")}

    def on(self, host):
        """What to put in front of a command that is to run on the host, under the host's name."""
        entry = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'
        names = self.path(f"hosts.{self.names[host]}" if self.own_name_is_loopback else "hosts")
        return [*self.hosts.on(host), "unshare", "--uts", "--mount", "sh", "-c", entry, "sh", self.names[host], names]

    def start(self, *words):
        log = open(self.path(f"daemon.{len(self.daemons)}.log"), "wb")
        with log:
            # Should this process be killed, they are not to stay.
            command = ["setpriv", "--pdeathsig", "TERM", *words]
            self.daemons.append(subprocess.Popen(command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 cwd=self.folder))

    def start_daemons(self):
        munge = self.path("munge")
        self.start("munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key", f"--log-file={munge}/log",
                   f"--pid-file={munge}/pid", f"--seed-file={munge}/seed")
        wait_until(lambda: os.path.exists(f"{munge}/socket"), "munged's socket")
        self.start(*self.on(0), "slurmctld", "-D")
        for host, name in enumerate(self.names):
            self.start(*self.on(host), "slurmd", "-D", "-N", name)
        wait_until(self.are_nodes_idle, "idle nodes; see the logs in " + self.folder)

    def are_nodes_idle(self):
        ended = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
        if ended:
            raise AssertionError(f"a daemon ended: {ended}; see the logs in {self.folder}")
        states = self.run("sinfo", "--noheader", "--Node", "--format=%T", check=False).stdout.split()
        return states == ["idle"] * self.count

    def command(self, *words, host=0):
        return [*self.on(host), *words]

    def run(self, *words, check=True, **options):
        return subprocess.run(self.command(*words), env={**self.environment(), **options.pop("variables", {})}, check=check,
                              capture_output=True, text=True, timeout=120, cwd=self.folder, stdin=subprocess.DEVNULL, **options)

    def end_jobs(self):
        """Their processes would outlive slurmd."""
        self.run("scancel", "--full", "--signal=KILL", "--user=root", check=False)
        self.run("scancel", "--user=root", check=False)
        wait_until(lambda: self.run("squeue", "--noheader", check=False).stdout == "", "jobs that are over")

    def close(self):
        if len(self.daemons) > self.count + 1 and self.daemons[1].poll() is None:
            self.end_jobs()
        for daemon in reversed(self.daemons):  # slurmd and slurmctld before munged
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []
        self.hosts.close()
        wait_until(lambda: not reap_one(), "the end of all processes that Slurm has started")
