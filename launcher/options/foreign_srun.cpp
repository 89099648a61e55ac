// srun, whose requests only Slurm can fulfil.
#include <array>

#include "launcher/options/foreign_options.h"

namespace launcher {
namespace {

using enum ForeignOption::Treatment;

constexpr std::string_view kResources =
    "give it to Slurm's salloc, sbatch or srun, and start ddprun inside the job: srun --ntasks-per-node=1 ddprun ...";
constexpr std::string_view kFile =
    "--output_filename DIR writes DIR/rank.<rank>/stdout and stderr; for a single file put > FILE at the end of the "
    "command";

constexpr std::array kSrunOptions = std::to_array<ForeignOption>({
    {"srun", "--ntasks", "N", kTranslated, "-np=$1"},
    {"srun", "--ntasks-per-node", "N", kTranslated, "--nproc_per_node=$1"},
    {"srun", "--nodes", "1|1-1", kAccepted, kOneNode},
    {"srun", "--nodes", "COUNT", kRefused,
     "use --nnodes=N and start ddprun once on each node, or let ddprun start the ranks by ssh: -H HOST:N,..."},
    {"srun", "-w,--nodelist", "HOSTS", kRefused, "-H HOST:N,... starts N ranks on each of these hosts by ssh"},
    {"srun", "--cpus-per-task", "N", kRefused, kCpusOfRanks},
    {"srun",
     "--gres,--gpus-per-node,--gpus-per-task,--gpus-per-socket,-G,--cpus-per-gpu,--ntasks-per-gpu,--mem,--mem-per-cpu,"
     "--mem-per-gpu,--mem-bind,--partition,--account,-A,--qos,--time,--constraint,-C,--reservation,--jobid,--begin,"
     "--deadline,--dependency,--licenses,-J,--job-name,--threads-per-core,--cores-per-socket,--sockets-per-node,--tmp,"
     "--nice,--priority,--switches,--network,--clusters,-M,--comment,--mail-type,--mail-user,--wckey,--het-group,"
     "--propagate,--prolog,--epilog,--task-prolog,--task-epilog,--container,--container-image,"
     "--container-mounts",
     "VALUE", kRefused, kResources},
    {"horovodrun srun", "-p", "VALUE", kRefused,
     "horovodrun's port of ssh is --ssh_port=N; srun's partition is for salloc, sbatch or srun, with ddprun inside "
     "the job: srun --ntasks-per-node=1 ddprun ..."},
    {"srun", "--exclusive,--overlap,--immediate,-I,--test-only,--no-kill,-k,--preserve-env,-E", "", kRefused,
     kResources},
    {"srun", "--gpus", "LIST", kSame, "the numbers of the GPUs (0,1), not how many"},
    {"srun", "-o,-e,--error", "FILE", kRefused, kFile},
    {"mpirun srun", "--output", "FILE", kRefused, kFile},
    {"srun", "--input", "FILE", kRefused, "put < FILE at the end of the command; --stdin chooses which ranks read it"},
    {"srun", "-D,--chdir", "FOLDER", kTranslated, "--wdir=$1"},
    {"srun", "--export", "ALL|all", kAccepted, "all variables are passed on"},
    {"srun", "--export", "NONE|NIL", kRefused, kEnvironmentAdvice},
    {"srun", "-K,--kill-on-bad-exit", "0", kRefused, "a rank that fails ends the job; there is no option to continue"},
    {"srun", "-K,--kill-on-bad-exit", "1", kAccepted, "what ddprun does anyway"},
    {"srun", "-K,--kill-on-bad-exit,-u,--unbuffered,--pty", "", kAccepted, "what ddprun does anyway"},
    {"srun", "-W,--wait", "SECONDS", kIgnored,
     "ranks that have ended well wait for the others; --timeout ends the job"},
    {"srun", "--cpu-bind", "none|no", kAccepted, "the default"},
    {"srun", "--cpu-bind", "cores", kTranslated, "--bind_to=core"},
    {"srun", "--cpu-bind", "sockets|ldoms", kTranslated, "--bind_to=numa"},
    {"srun", "--cpu-bind", "OTHER", kRefused, "use --bind_to none, core or numa"},
    {"srun", "--gpu-bind", "WHAT", kRefused, "--virtual_local_rank gives each rank one GPU; --gpus LIST chooses them"},
    {"srun", "--distribution", "WHAT", kIgnored, "ranks are numbered host by host, slot by slot"},
    {"srun", "--hint", "WHAT", kIgnored, "--bind_to core gives each rank its own share of the CPUs"},
    {"srun", "--signal", "WHAT", kRefused,
     "send the signal to ddprun, which passes USR1, USR2 and others on to the ranks"},
    {"srun", "--multi-prog", "", kRefused, kOnlyOneProgram},
});

}  // namespace

std::span<const ForeignOption> scheduler_options() {
  return kSrunOptions;
}

}  // namespace launcher
