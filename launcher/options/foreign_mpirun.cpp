// mpirun and mpiexec: Open MPI's, and MPICH's (hydra).
#include <array>

#include "launcher/options/foreign_options.h"

namespace launcher {
namespace {

using enum ForeignOption::Treatment;

constexpr std::string_view kDryRun = "--dry_run shows what is started where";
constexpr std::string_view kNoCopies =
    "ddprun copies no files: the program must have the same path on every host, such as in a shared folder";
constexpr std::string_view kNoComponents = "it sets up Open MPI, which ddprun does not use";

constexpr std::array kMpirunOptions = std::to_array<ForeignOption>({
    {"mpirun hydra horovodrun", "-n,-np", "N", kSame, ""},
    {"mpirun hydra", "--n,--np", "N", kTranslated, "-np=$1"},
    {"mpirun srun", "-N", "COUNT", kRefused,
     "for N ranks on each host (mpirun) use --nproc_per_node=N, for N nodes (srun) --nnodes=N"},
    {"mpirun", "--npernode", "N", kTranslated, "--nproc_per_node=$1"},
    {"mpirun", "--pernode", "", kTranslated, "--nproc_per_node=1"},
    {"mpirun srun", "--npersocket,--ntasks-per-socket,--ntasks-per-core", "N", kRefused,
     "--nproc_per_node=N is the number of ranks on each host; --bind_to numa or core binds them to CPUs"},
    {"hydra", "-ppn,-perhost", "N", kTranslated, "--nproc_per_node=$1"},
    {"mpirun srun", "-c", "COUNT", kRefused,
     "for the number of ranks (mpirun) use -n; for CPUs per rank (srun), --bind_to core divides the CPUs among the "
     "ranks"},
    {"mpirun hydra horovodrun", "-H,--host,--hosts", "HOST:N,...", kSame, ""},
    {"mpirun hydra horovodrun deepspeed", "--hostfile", "FILE", kSame, ""},
    {"mpirun hydra", "--machinefile,--machine,--default-hostfile", "FILE", kTranslated, "--hostfile=$1"},
    {"mpirun", "--rankfile,-rf", "FILE", kRefused,
     "ranks are numbered host by host in the order of -H or --hostfile; --bind_to core gives each its share of the "
     "CPUs"},
    {"hydra", "-f", "FILE", kTranslated, "--hostfile=$1"},
    {"mpirun", "-x", "NAME[=VALUE]", kSame, "all of ddprun's variables are passed on anyway"},
    {"hydra", "-genv,-env", "NAME=VALUE", kTranslated, "--export=$1"},
    {"hydra", "-genv,-env", "NAME VALUE", kTranslated, "--export=$1=$2"},
    {"hydra", "-genvlist,-envlist", "NAMES", kTranslated, "--export=$each"},
    {"hydra", "-genvall,-envall", "", kAccepted, "all variables are passed on"},
    {"hydra", "-genvnone,-envnone", "", kRefused, kEnvironmentAdvice},
    {"mpirun", "--wdir", "FOLDER", kSame, ""},
    {"mpirun", "--wd", "FOLDER", kTranslated, "--wdir=$1"},
    {"mpirun", "--timeout", "SECONDS", kSame, "status 124"},
    {"mpirun", "--bind-to", "none|core|numa", kSame, "none unless given"},
    {"mpirun hydra", "--bind-to", "socket|package|board|l3cache", kTranslated, "--bind_to=numa"},
    {"mpirun hydra", "--bind-to", "hwthread|l1cache|l2cache|cpu", kTranslated, "--bind_to=core"},
    {"mpirun", "--bind-to-core", "", kTranslated, "--bind_to=core"},
    {"mpirun", "--bind-to-socket", "", kTranslated, "--bind_to=numa"},
    {"mpirun", "--bind-to-none", "", kAccepted, "the default"},
    {"hydra", "-binding", "WHAT", kRefused, "use --bind_to none, core or numa"},
    {"hydra", "-membind", "WHAT", kIgnored, "--bind_to numa gives each rank the memory of its NUMA node"},
    {"mpirun", "--cpu-set,--cpu-list", "LIST", kRefused, kCpuList},
    {"mpirun", "--cpus-per-proc,--cpus-per-rank", "N", kRefused, kCpusOfRanks},
    {"mpirun", "--byslot", "", kAccepted, "the order of ranks"},
    {"mpirun hydra", "--map-by,--rank-by", "slot|core|hwthread|socket|package|numa|l3cache|user", kAccepted,
     "ranks are numbered host by host, slot by slot"},
    {"mpirun", "--map-by", "ppr:N:node|ppr:N:node:*", kTranslated, "--nproc_per_node=$1"},
    {"mpirun", "--map-by", "ppr:N:socket*|ppr:N:package*|ppr:N:numa*|ppr:N:core*|ppr:N:l3cache*", kRefused,
     "--nproc_per_node=N is the number of ranks on each host; --bind_to numa or core binds them to CPUs"},
    {"mpirun", "--map-by", "slot:PE=N|node:PE=N|core:PE=N|socket:PE=N|package:PE=N|numa:PE=N|slot:pe=N|node:pe=N",
     kIgnored, kCpusOfRanks},
    {"mpirun hydra", "--map-by,--rank-by", "OTHER", kIgnored, "ranks are numbered host by host, slot by slot"},
    {"mpirun", "--bynode", "", kIgnored, "ranks are numbered host by host, slot by slot"},
    {"mpirun", "--oversubscribe,--overload-allowed", "", kAccepted,
     "-n alone may exceed the CPUs; with -H, HOST:N counts"},
    {"mpirun", "--nooversubscribe,--use-hwthread-cpus,--nolocal", "", kIgnored, kDryRun},
    {"mpirun", "--allow-run-as-root", "", kAccepted, "root may start jobs"},
    {"mpirun", "--mca,--gmca,--prtemca", "plm_rsh_agent|plm_ssh_agent COMMAND", kTranslated, "--ssh_command=$2"},
    {"mpirun", "--mca,--gmca,--prtemca", "plm_rsh_args|plm_ssh_args ARGUMENTS", kTranslated, "--ssh_command=ssh $2"},
    {"mpirun", "--mca,--gmca,--prtemca", "btl_tcp_if_include|oob_tcp_if_include INTERFACE", kTranslated, "--iface=$2"},
    {"mpirun", "--mca,--gmca,--prtemca", "btl_tcp_if_exclude|oob_tcp_if_exclude INTERFACES", kIgnored,
     "--iface NAME chooses the network interface"},
    {"mpirun", "--mca,--gmca,--prtemca,--pmixmca", "NAME VALUE", kIgnored, kNoComponents},
    {"mpirun", "--am,--tune,--ompi-server", "FILE", kIgnored, kNoComponents},
    {"mpirun", "--preload-binary", "", kRefused, kNoCopies},
    {"mpirun hydra", "--path", "FOLDERS", kRefused,
     "PATH is searched for the program: set it for ddprun, as in PATH=FOLDER:$PATH ddprun ..."},
    {"mpirun", "--hetero-nodes,--noprefix", "", kAccepted, ""},
    {"mpirun", "--preload-files", "FILES", kRefused, kNoCopies},
    {"mpirun", "--forward-signals", "LIST", kAccepted, "ddprun passes signals on to the ranks"},
    {"mpirun", "--tag-output", "", kAccepted,
     "the default with several ranks; --prefix='[1,{rank}]<{stream}>:' gives the same text"},
    {"mpirun", "--timestamp-output", "", kTranslated, "--prefix={time} [{rank}] "},
    {"mpirun", "--output", "tag|tag-detailed|rank", kAccepted, "the default with several ranks"},
    {"mpirun", "--output", "timestamp|tag,timestamp|timestamp,tag", kTranslated, "--prefix={time} [{rank}] "},
    {"mpirun", "--merge-stderr-to-stdout", "", kIgnored, "let the shell do it: put 2>&1 at the end of the command"},
    {"mpirun horovodrun", "--output-filename", "DIR", kSame, "DIR/rank.<rank>/{stdout,stderr}"},
    {"mpirun", "--stdin", "RANK|all|none", kSame, ""},
    {"hydra", "-s", "TARGET", kTranslated, "--stdin=$1"},
    {"mpirun", "--xterm", "RANKS", kRefused, "--debug RANK runs one rank under gdb in this terminal"},
    {"hydra", "-gdb", "", kRefused, "--debug RANK runs one rank under gdb in this terminal"},
    {"mpirun", "--tv,--debugger", "", kRefused, "--debug RANK runs one rank under gdb in this terminal"},
    {"mpirun", "--display-map,--display-allocation,--display-devel-map,--report-bindings", "", kIgnored, kDryRun},
    {"mpirun", "--display", "WHAT", kIgnored, kDryRun},
    {"mpirun", "--do-not-launch", "", kTranslated, "--dry_run"},
    {"mpirun", "--report-pid,--report-uri", "FILE", kIgnored, "--events FILE has the process IDs"},
    {"mpirun", "--get-stack-traces,--report-state-on-timeout", "", kIgnored,
     "--hang_timeout reports where each rank is"},
    {"mpirun", "--enable-recovery,--disable-recovery,--abort-on-non-zero-status,--continuous", "", kIgnored,
     "a rank that fails ends the job; --max_restarts starts it again"},
    {"mpirun", "--app", "FILE", kRefused, kOnlyOneProgram},
    {"hydra", "-configfile", "FILE", kRefused, kOnlyOneProgram},
    {"mpirun hydra horovodrun srun", "-v,--verbose", "", kIgnored, "--dry_run and --events FILE show what ddprun does"},
    {"mpirun", "-d,--debug-devel,--debug-daemons,--leave-session-attached", "", kIgnored,
     "--dry_run and --events FILE show what ddprun does"},
    {"mpirun srun", "-q,--quiet", "", kAccepted, "ddprun is silent unless something is wrong"},
    {"mpirun hydra srun", "-V", "", kTranslated, "--version"},
    {"hydra", "-info", "", kTranslated, "--check"},
    {"hydra", "-launcher,-bootstrap", "ssh|fork", kAccepted, "ssh is what ddprun uses"},
    {"deepspeed", "--launcher", "pdsh|openmpi|mpich|impi|mvapich", kIgnored, "ddprun reaches the hosts by ssh"},
    {"hydra deepspeed", "-launcher,-bootstrap", "NAME", kRefused,
     "ddprun uses ssh (--ssh_command); under Slurm: srun --ntasks-per-node=1 ddprun ..."},
    {"hydra", "-launcher-exec,-bootstrap-exec", "COMMAND", kTranslated, "--ssh_command=$1"},
    {"hydra", "-rmk", "NAME", kIgnored, "ddprun reads the variables of Slurm, LSF and others automatically"},
    {"hydra", "-iface", "NAME", kSame, ""},
    {"hydra", "-localhost", "NAME", kTranslated, "--local_addr=$1"},
    {"hydra srun", "-l,--label", "", kAccepted, "the default with several ranks"},
    {"hydra", "-prepend-rank,-ordered-output", "", kAccepted,
     "whole lines after [rank], the default with several ranks"},
    {"hydra", "-prepend-pattern", "PATTERN", kRefused,
     "use --prefix='[{rank}] ', a text before each line of output, in which {rank}, {host}, {stream} and {time} are "
     "replaced"},
    {"hydra", "-outfile-pattern,-errfile-pattern", "PATTERN", kRefused,
     "--output_filename DIR writes DIR/rank.<rank>/stdout and stderr"},
    {"hydra", "-print-all-exitcodes", "", kIgnored, "--events FILE has the status of each rank"},
    {"hydra", "-disable-auto-cleanup", "", kRefused, "a rank that fails ends the job; there is no option to continue"},
    {"hydra", "-pmi-port", "", kIgnored, "it sets up MPICH, which ddprun does not use"},
    {"hydra", "-usize,-order-nodes,-topolib,-demux,-disable-hostname-propagation,-disable-x", "", kAccepted, ""},
    {"hydra", "-gpus-per-proc", "N", kIgnored,
     "--virtual_local_rank gives each rank one GPU; --gpus LIST chooses them"},
});

}  // namespace

std::span<const ForeignOption> mpirun_options() {
  return kMpirunOptions;
}

}  // namespace launcher
