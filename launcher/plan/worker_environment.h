// The environment of a worker: all variables of torchrun, in addition to ddprun's own environment. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/plan/options.h"

namespace launcher {

// The place of a worker in the job.
struct RankPlace {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;        // the node's number
  int group_world_size = 1;  // the number of nodes
  int role_rank = 0;
  int role_world_size = 1;
};

// The values that all workers of one attempt share.
struct JobEnvironment {
  std::string role = ProcessOptions{}.role;
  std::string run_id{};
  std::string master_addr{};
  int master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  int default_omp_threads = 1;          // used when OMP_NUM_THREADS is unset
  std::vector<std::string> exported{};  // the user's own "NAME=value"; they override all others
  std::string stop_signals = signal_list(EndingOptions{}.stop_signals);
  std::vector<std::string> gpus{};  // --gpus: the GPUs that CUDA shows; empty: those that it shows by default
  bool virtual_local_rank = false;  // each rank sees one GPU and has local rank 0
  bool agent_store = true;          // the launcher hosts the store; false: rank 0 does
  std::string interface {};         // for gloo and NCCL; "": as they choose
  std::string store{};              // "host0:29500" where this node has a proxy of it, which listens at
  std::string store_proxy{};        // "127.0.0.1:4711"
  std::string timer_file{};         // the named pipe of the file timer; "": none
};

// True when `environment` (entries "NAME=value") has a variable `name`.
bool has_variable(std::span<const std::string> environment, const std::string& name);

// The entry of CUDA_VISIBLE_DEVICES that a local rank uses by convention: the one with its own number (the only one
// with virtual local ranks), or "".
std::string shown_gpu(std::span<const std::string> inherited, const JobEnvironment& job, int local_rank);

// The inherited entries that a worker keeps: all except those that worker_variables() sets.
std::vector<std::string> inherited_entries(std::span<const std::string> inherited, const JobEnvironment& job);

// The entries "NAME=value" that ddprun adds for one rank. Some variables are only defaults, and are added only if
// `inherited` does not have them.
std::vector<std::string> worker_variables(std::span<const std::string> inherited, const JobEnvironment& job,
                                          const RankPlace& place, const std::string& error_file);

}  // namespace launcher
