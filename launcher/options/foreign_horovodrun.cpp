// horovodrun, deepspeed and accelerate launch.
#include <array>

#include "launcher/options/foreign_options.h"

namespace launcher {
namespace {

using enum ForeignOption::Treatment;

constexpr std::string_view kElasticNodesAdvice =
    "for a number of nodes that changes during the run, start ddprun once on each node with --nnodes=MIN:MAX "
    "--rdzv_backend=c10d --rdzv_endpoint=HOST:PORT, with the same host and port everywhere";
constexpr std::string_view kTuning = "it tunes Horovod's core, which ddprun does not start";

constexpr std::array kHorovodrunOptions = std::to_array<ForeignOption>({
    {"horovodrun", "--num-proc", "N", kTranslated, "-np=$1"},
    {"horovodrun", "-p", "N", kTranslated, "--ssh_port=$1"},
    {"horovodrun deepspeed", "--ssh-port", "PORT", kSame, ""},
    {"horovodrun", "-i,--ssh-identity-file", "FILE", kTranslated, "--ssh_identity=$1"},
    {"srun", "--mpi", "pmix|pmi2|pmix_v2|pmix_v3|pmix_v4|pmix_v5|none|openmpi|cray_shasta", kIgnored,
     "ranks get their numbers in RANK and WORLD_SIZE"},
    {"horovodrun", "--gloo,--use-gloo,--mpi,--use-mpi", "", kAccepted, "the program chooses its backend"},
    {"horovodrun", "--jsrun,--use-jsrun", "", kRefused, "ddprun uses ssh; under LSF it reads the hosts automatically"},
    {"horovodrun", "--start-timeout", "SECONDS", kSame, "the missing ranks are named"},
    {"horovodrun", "--check-build,-cb", "", kTranslated, "--check"},
    {"horovodrun", "--network-interfaces,--network-interface,--nics", "NAME", kTranslated, "--iface=$1"},
    {"horovodrun", "--min-np,--max-np,--min-num-proc,--max-num-proc,--slots-per-host,--host-discovery-script", "VALUE",
     kRefused, kElasticNodesAdvice},
    {"horovodrun", "--slots,--elastic-timeout", "VALUE", kRefused, kElasticNodesAdvice},
    {"horovodrun", "--blacklist-cooldown-range", "MIN MAX", kRefused, kElasticNodesAdvice},
    {"horovodrun", "--reset-limit", "N", kTranslated, "--max_restarts=$1"},
    {"horovodrun accelerate", "--config-file", "FILE", kRefused,
     "ddprun has no configuration file: use the command line, or variables such as PET_NPROC_PER_NODE=4"},
    {"horovodrun", "--prefix-output-with-timestamp,--prefix-timestamp", "", kTranslated, "--prefix={time} [{rank}] "},
    {"horovodrun", "--disable-cache,--mpi-threads-disable,--no-mpi-threads-disable,--timeline-mark-cycles,--tcp", "",
     kAccepted, ""},
    {"horovodrun", "--stall-check", "", kAccepted, ""},
    {"horovodrun", "--no-stall-check", "", kTranslated, "--hang_timeout=0"},
    {"horovodrun", "--stall-check-warning-time-seconds", "N", kTranslated, "--hang_timeout=$1"},
    {"horovodrun", "--stall-check-shutdown-time-seconds", "N", kTranslated, "--hang_timeout=$1\n--on_hang=stop"},
    {"horovodrun", "--timeline-filename", "FILE", kSame, ""},
    {"horovodrun",
     "--fusion-threshold-mb,--cycle-time-ms,--cache-capacity,--thread-affinity,--gloo-timeout-seconds,--num-nccl-"
     "streams,"
     "--autotune-log-file,--binding-args,--mpi-args",
     "VALUE", kIgnored, kTuning},
    {"horovodrun",
     "--hierarchical-allreduce,--no-hierarchical-allreduce,--hierarchical-allgather,--no-hierarchical-allgather,"
     "--autotune,--no-autotune",
     "", kIgnored, kTuning},
    {"horovodrun", "--log-with-timestamp,--log-without-timestamp,--log-hide-timestamp,--no-log-hide-timestamp", "",
     kAccepted, "ddprun's own lines have no time"},
    {"horovodrun", "--log-level", "LEVEL", kIgnored, "--events FILE has what happened, as JSON lines"},

    {"deepspeed", "--num-gpus", "N", kTranslated, "--nproc_per_node=$1"},
    {"deepspeed", "--num-nodes", "1", kAccepted, kOneNode},
    {"deepspeed", "--num-nodes", "N", kRefused,
     "choose hosts of --hostfile with --include HOST@HOST, or start ddprun on each node with --nnodes=N --node_rank=R "
     "--master_addr=HOST"},
    {"deepspeed", "--include,--exclude", "HOST:SLOT@...", kSame, ""},
    {"deepspeed", "--master-addr,--master-port", "VALUE", kSame, ""},
    {"deepspeed", "--bind-cores-to-rank", "", kTranslated, "--bind_to=core"},
    {"deepspeed", "--bind-core-list", "LIST", kRefused, kCpuList},
    {"deepspeed", "--enable-each-rank-log", "DIR", kTranslated, "--log_dir=$1\n--tee=3"},
    {"deepspeed", "--launcher-args", "ARGUMENTS", kTranslated, "--ssh_command=ssh $1"},
    {"deepspeed", "--force-multi,--no-ssh-check,--no-local-rank", "", kAccepted, ""},
    {"deepspeed", "--save-pid", "", kIgnored, "--events FILE has the process IDs"},
    {"deepspeed", "--elastic-training,--no-ssh", "", kRefused, kElasticNodesAdvice},

    {"accelerate", "--num-processes", "N", kTranslated, "-np=$1"},
    {"accelerate", "--num-machines", "1", kAccepted, kOneNode},
    {"accelerate", "--num-machines", "N", kRefused,
     "start ddprun on each machine with --nnodes=N --node_rank=R --master_addr=HOST, and -n for its ranks"},
    {"accelerate", "--machine-rank", "N", kTranslated, "--node_rank=$1"},
    {"accelerate", "--main-process-ip", "HOST", kTranslated, "--master_addr=$1"},
    {"accelerate", "--main-process-port", "PORT", kTranslated, "--master_port=$1"},
    {"accelerate", "--gpu-ids", "all", kAccepted, "all GPUs are visible"},
    {"accelerate", "--gpu-ids", "LIST", kTranslated, "--gpus=$1"},
    {"accelerate", "--multi-gpu,--cpu,--same-network", "", kAccepted, ""},
    {"accelerate", "--num-cpu-threads-per-process", "N", kTranslated, "--export=OMP_NUM_THREADS=$1"},
    {"accelerate", "--enable-cpu-affinity", "", kTranslated, "--bind_to=numa"},
    {"accelerate", "--mixed-precision,--dynamo-backend,--gradient-accumulation-steps", "VALUE", kRefused,
     "the program chooses it: ddp::Autocast, ddp::update_part()"},
    {"accelerate", "--use-deepspeed,--use-fsdp,--use-megatron-lm,--tpu", "", kRefused,
     "the program chooses it; ddprun only starts the ranks"},
});

}  // namespace

std::span<const ForeignOption> horovodrun_options() {
  return kHorovodrunOptions;
}

}  // namespace launcher
