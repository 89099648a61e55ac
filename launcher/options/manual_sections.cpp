#include "launcher/options/manual_sections.h"

#include "launcher/os/system/exit_status.h"

namespace launcher {
namespace {

// Bold.
std::string marked(ExitStatus status) {
  return std::string("`").append(std::to_string(to_int(status))).append("`");
}

}  // namespace

std::vector<std::string> manual_description() {
  return {
      "`ddprun` starts one process per rank of a distributed program, gives each the environment that torchrun gives, "
      "hosts the store at which the ranks meet, and ends them together. PROGRAM is any program: an executable file, a "
      "Python file (run with `python3 -u`), or with `-m` a Python module.",
      "Options stand before PROGRAM. Everything after it belongs to the program and is passed on byte for byte; "
      "nothing is expanded. With `--` the next argument is PROGRAM, whatever it looks like.",
      "When a rank fails, the others are asked to stop and after `--grace` killed; what failed first is reported on "
      "standard error. Whatever way `ddprun` ends, no process that the ranks started is left behind, unless "
      "`--keep_daemons` asks for that.",
  };
}

std::vector<ManualEntry> variables_of_ranks() {
  return {
      {"`RANK`, `WORLD_SIZE`", "The rank's number in the whole job, and how many there are."},
      {"`LOCAL_RANK`, `LOCAL_WORLD_SIZE`", "The same on this node."},
      {"`GROUP_RANK`, `GROUP_WORLD_SIZE`", "The node's number, and how many nodes there are."},
      {"`ROLE_NAME`, `ROLE_RANK`, `ROLE_WORLD_SIZE`", "`--role`, and the same among the ranks of this role."},
      {"`MASTER_ADDR`, `MASTER_PORT`", "Where the store is."},
      {"`TORCHELASTIC_USE_AGENT_STORE`", "True: ddprun hosts the store. False with `--store rank0`."},
      {"`TORCHELASTIC_RUN_ID`", "`--rdzv_id`."},
      {"`TORCHELASTIC_RESTART_COUNT`, `TORCHELASTIC_MAX_RESTARTS`", "Restarts so far, and `--max_restarts`."},
      {"`TORCHELASTIC_SIGNALS_TO_HANDLE`", "The signals to ddprun that stop the job."},
      {"`TORCHELASTIC_ERROR_FILE`", "Where a rank may write, as JSON, why it fails."},
      {"`CUDA_VISIBLE_DEVICES`", "With `--gpus` or `--virtual_local_rank`; else as in the environment of ddprun."},
      {"`TORCH_NCCL_ASYNC_ERROR_HANDLING`", "1, unless set."},
      {"`OMP_NUM_THREADS`", "Usable CPUs for each rank of this node, at least 1, unless set."},
  };
}

std::vector<ManualEntry> variables_of_ddprun() {
  return {
      {"`PYTHON_EXEC`",
       "The interpreter for Python programs instead of the `python3` of the virtual environment that ddprun is "
       "installed in, or of PATH."},
      {"`CUDA_VISIBLE_DEVICES`", "The GPUs that `-n gpu`, `-n auto` and `--virtual_local_rank` count."},
      {"`TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`", "torchrun's template of prefixes, where `--prefix` is not given."},
      {"`TMPDIR`", "Folder for error files, and for log files without `--log_dir`."},
  };
}

std::vector<ManualEntry> exit_statuses() {
  return {
      {marked(ExitStatus::kSuccess), "Every rank ended with 0."},
      {"the status of a rank, `1` to `255`", "Of the rank that failed first."},
      {marked(ExitStatus::kSignalBase) + " + `N`",
       "The rank that failed first was killed by signal N; or ddprun was told to stop by signal N, and a rank ended "
       "neither with 0 nor with " +
           marked(ExitStatus::kSavedAndStopped) + "."},
      {marked(ExitStatus::kSavedAndStopped),
       "ddprun was told to stop, and a rank ended with this status (saved and stopped), all others with it or with 0."},
      {marked(ExitStatus::kTimeout),
       "`--timeout` or `--start_timeout` was over and no rank had failed before; or the nodes did not all arrive in "
       "time."},
      {marked(ExitStatus::kLauncherError),
       "ddprun itself failed: bad option, port in use, output that cannot be written."},
      {marked(ExitStatus::kNotExecutable), "PROGRAM cannot be executed; nothing was started."},
      {marked(ExitStatus::kNotFound), "There is no such PROGRAM; nothing was started."},
  };
}

std::vector<ManualEntry> manual_examples() {
  return {
      {"ddprun -n 8 ./train --lr 0.1", "8 ranks of a program on this machine."},
      {"ddprun -n gpu train.py", "One rank of a Python program for each GPU."},
      {"ddprun --gpus 2,4 --log_dir logs --tee 3 ./train",
       "Two ranks on two of the GPUs, their output shown and kept in files."},
      {"ddprun --nnodes 2 --node_rank 0 --master_addr host0 -n 8 ./train",
       "16 ranks on two machines; on the other one with `--node_rank 1`."},
      {"ddprun -n 8 --dry_run ./train", "What would be started, and with which variables."},
  };
}

std::vector<std::string> related_pages() {
  return {"mpirun(1)", "nohup(1)", "timeout(1)", "cgroups(7)", "signal(7)"};
}

}  // namespace launcher
