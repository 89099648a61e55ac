// Whether this is one rank of several, from the environment and in ranks that are threads.
#include "ranks/job.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

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

TEST(Job, is_read_from_the_variables_of_every_launcher) {
  EXPECT_EQ(place_in({}), std::pair(0, 1));
  EXPECT_EQ(place_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), std::pair(1, 2)) << "neither address nor port is needed";
  EXPECT_EQ(place_in({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}), std::pair(3, 8));
  EXPECT_EQ(place_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}), std::pair(0, 4));
  EXPECT_EQ(place_in({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), std::pair(1, 2));
  EXPECT_EQ(place_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NAME", "bash"}}), std::pair(0, 1))
      << "what is typed into an interactive shell is a program of its own";
}

TEST(Job, variables_that_make_no_sense_are_left_to_init_process_group) {
  for (const Variables& variables : std::initializer_list<Variables>{{{"RANK", "1"}},
                                                                     {{"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "x"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "2"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "-1"}, {"WORLD_SIZE", "2"}},
                                                                     {{"RANK", "0"}, {"WORLD_SIZE", "2 "}}}) {
    EXPECT_EQ(place_in(variables), std::pair(0, 1));
  }
}

TEST(Job, of_a_thread_comes_before_that_of_the_environment_and_ends_with_its_object) {
  EXPECT_EQ(job_of_this_thread().size, 1);
  {
    const ThreadJob outer({.rank = 2, .size = 3});
    EXPECT_EQ(job_of_this_thread().rank, 2);
    std::thread([] { EXPECT_EQ(job_of_this_thread().size, 1) << "another thread's"; }).join();
    {
      const ThreadJob inner({.rank = 0, .size = 1});
      EXPECT_EQ(job_of_this_thread().size, 1);
    }
    EXPECT_EQ(job_of_this_thread().size, 3);
  }
  EXPECT_EQ(job_of_this_thread().size, 1);
}

}  // namespace
}  // namespace ddp
