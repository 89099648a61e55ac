// Whether this is one rank of several, from the environment and in ranks that are threads.
#include "base/job.h"

#include <map>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Variables = std::map<std::string, std::string>;

std::pair<int, int> place_in(const Variables& variables) {
  const JobPlace place = job_of_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
  return {place.rank, place.size};
}

TEST_CASE("Job: is read from the variables of every launcher") {
  CHECK(place_in({}) == std::pair(0, 1));
  UNSCOPED_INFO("neither address nor port is needed");
  CHECK(place_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}) == std::pair(1, 2));
  CHECK(place_in({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}) == std::pair(3, 8));
  CHECK(place_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}) == std::pair(0, 4));
  CHECK(place_in({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}) == std::pair(1, 2));
  INFO("what is typed into an interactive shell is a program of its own");
  CHECK(place_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NAME", "bash"}}) == std::pair(0, 1));
}

TEST_CASE("Job: variables that make no sense are left to init_process_group") {
  for (const Variables& variables : std::initializer_list<Variables>{{{"RANK", "1"}},
                                                                     {{"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "x"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "0"}, {"WORLD_SIZE", "2 "}}}) {
    CHECK(place_in(variables) == std::pair(0, 1));
  }
}

TEST_CASE("Job: of a thread comes before that of the environment and ends with its object") {
  CHECK(job_of_this_thread().size == 1);
  {
    const ThreadJob outer({.rank = 2, .size = 3});
    CHECK(job_of_this_thread().rank == 2);
    std::thread([] {
      RANK_INFO("another thread's");
      RANK_CHECK(job_of_this_thread().size == 1);
    }).join();
    test::report_rank_checks();
    {
      const ThreadJob inner({.rank = 0, .size = 1});
      CHECK(job_of_this_thread().size == 1);
    }
    CHECK(job_of_this_thread().size == 3);
  }
  CHECK(job_of_this_thread().size == 1);
}

}  // namespace
}  // namespace ddp
