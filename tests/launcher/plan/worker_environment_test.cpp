#include "launcher/plan/worker_environment.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::StartsWith;
using ddp::test::ElementsAre;
using ddp::test::UnorderedElementsAre;

const JobEnvironment kJob{.role = "trainer",
                          .run_id = "job7",
                          .master_addr = "10.0.0.1",
                          .master_port = 29501,
                          .restart_count = 1,
                          .max_restarts = 3,
                          .default_omp_threads = 4};
const RankPlace kRankPlace{.rank = 5,
                           .local_rank = 1,
                           .world_size = 8,
                           .local_world_size = 4,
                           .group_rank = 1,
                           .group_world_size = 2,
                           .role_rank = 5,
                           .role_world_size = 8};

TEST_CASE("WorkerEnvironment: holds every variable of torchrun") {
  CHECK_THAT(worker_variables({}, kJob, kRankPlace, "/tmp/error.json"),
             UnorderedElementsAre(
                 "RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2",
                 "ROLE_NAME=trainer", "ROLE_RANK=5", "ROLE_WORLD_SIZE=8", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29501",
                 "TORCHELASTIC_RESTART_COUNT=1", "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_RUN_ID=job7",
                 "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                 "TORCHELASTIC_ERROR_FILE=/tmp/error.json", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "OMP_NUM_THREADS=4"));
}

TEST_CASE("WorkerEnvironment: keeps the user's threads and NCCL settings") {
  const std::vector<std::string> inherited = {"OMP_NUM_THREADS=7", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"};
  const auto variables = worker_variables(inherited, kJob, kRankPlace, "");
  CHECK_THAT(variables, !Contains(StartsWith("OMP_NUM_THREADS=")));
  CHECK_THAT(variables, !Contains(StartsWith("TORCH_NCCL_ASYNC_ERROR_HANDLING=")));
  CHECK_THAT(inherited_entries(inherited, kJob), ElementsAre(inherited[0], inherited[1]));
}

TEST_CASE("WorkerEnvironment: replaces what was inherited from an outer job") {
  const std::vector<std::string> inherited = {
      "RANK=3",         "HOME=/root", "MASTER_PORT=1", "RANKS=x",
      "no-equals-sign", "EMPTY=",     "=C:=odd",       "TORCHELASTIC_RUN_ID=outer"};
  CHECK_THAT(inherited_entries(inherited, kJob),
             ElementsAre("HOME=/root", "RANKS=x", "no-equals-sign", "EMPTY=", "=C:=odd"));
}

TEST_CASE("WorkerEnvironment: without the agent store Python is told of none") {
  JobEnvironment job = kJob;
  job.agent_store = false;
  CHECK_THAT(worker_variables({}, job, kRankPlace, ""), !Contains("TORCHELASTIC_USE_AGENT_STORE=True"));
}

TEST_CASE("WorkerEnvironment: virtual local ranks see one GPU") {
  JobEnvironment job = kJob;
  job.virtual_local_rank = true;
  const std::vector<std::string> inherited = {"CUDA_VISIBLE_DEVICES=5,GPU-7"};
  CHECK_THAT(worker_variables(inherited, job, kRankPlace, ""), Contains("CUDA_VISIBLE_DEVICES=GPU-7"));
  CHECK_THAT(worker_variables({}, job, kRankPlace, ""), Contains("CUDA_VISIBLE_DEVICES=1"));
  CHECK_THAT(worker_variables({}, job, kRankPlace, ""), Contains("LOCAL_RANK=0"));
  CHECK_THAT(inherited_entries(inherited, job), IsEmpty());
  CHECK(shown_gpu(inherited, job, 1) == "GPU-7");
}

TEST_CASE("WorkerEnvironment: named GPUs replace the inherited ones") {
  JobEnvironment job = kJob;
  job.gpus = {"2", "4"};
  const std::vector<std::string> inherited = {"CUDA_VISIBLE_DEVICES=5,6"};
  CHECK_THAT(worker_variables(inherited, job, kRankPlace, ""), Contains("CUDA_VISIBLE_DEVICES=2,4"));
  CHECK(shown_gpu(inherited, job, 1) == "4");
  CHECK(shown_gpu(inherited, kJob, 1) == "6");
  CHECK(shown_gpu({}, kJob, 3) == "3");
}

TEST_CASE("WorkerEnvironment: a variable is found by its whole name") {
  const std::vector<std::string> environment = {"OMP_NUM_THREADS_X=1", "A=", "B"};
  CHECK_FALSE(has_variable(environment, "OMP_NUM_THREADS"));
  CHECK(has_variable(environment, "A"));
  CHECK_FALSE(has_variable(environment, "B"));
}

}  // namespace
}  // namespace launcher
