#include "comm/core/device_choice.h"

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr const char* kOnePerRank = "NCCL";
constexpr const char* kShared = "";

std::string error_of(int local_rank, int local_world_size, int device_count, const std::string& exclusive) {
  try {
    choose_cuda_device(local_rank, local_world_size, device_count, exclusive, "'0,1'");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("DeviceChoice: gives each local rank a device of its own") {
  for (const char* exclusive : {kOnePerRank, kShared}) {
    for (int rank = 0; rank < 4; ++rank) {
      const DeviceChoice choice = choose_cuda_device(rank, 4, 8, exclusive, "unset");
      CHECK(choice.index == rank);
      CHECK(choice.notice == "");
    }
    CHECK(choose_cuda_device(3, 4, 4, exclusive, "unset").index == 3);
  }
}

TEST_CASE("DeviceChoice: takes the only visible device whatever the local rank") {
  const DeviceChoice choice = choose_cuda_device(3, 4, 1, kOnePerRank, "'3'");
  CHECK(choice.index == 0);
  CHECK(choice.notice == "");
}

TEST_CASE("DeviceChoice: refuses more ranks than devices where each needs its own") {
  // Every rank refuses, also those that would have a device: otherwise they would wait for the ones that cannot start.
  for (int rank = 0; rank < 4; ++rank) {
    CHECK_THAT(error_of(rank, 4, 2, kOnePerRank),
               ContainsSubstring("LOCAL_RANK=" + std::to_string(rank)) && ContainsSubstring("LOCAL_WORLD_SIZE=4") &&
                   ContainsSubstring("visible CUDA devices: 2") && ContainsSubstring("CUDA_VISIBLE_DEVICES='0,1'") &&
                   ContainsSubstring("and NCCL needs one GPU per rank") &&
                   ContainsSubstring("Start at most 2 ranks here, or use backend 'gloo'"));
  }
}

TEST_CASE("DeviceChoice: wraps around with a notice where devices may be shared") {
  for (int rank = 0; rank < 5; ++rank) {
    const DeviceChoice choice = choose_cuda_device(rank, 5, 2, kShared, "unset");
    CHECK(choice.index == rank % 2);
    CHECK_THAT(choice.notice, ContainsSubstring("sharing GPU " + std::to_string(rank % 2)) &&
                                  ContainsSubstring("LOCAL_RANK=" + std::to_string(rank)));
  }
}

TEST_CASE("DeviceChoice: refuses to do without a device") {
  for (const char* exclusive : {kOnePerRank, kShared}) {
    CHECK_THAT(error_of(0, 1, 0, exclusive),
               ContainsSubstring("no CUDA device is visible") && ContainsSubstring("'gloo'"));
  }
}

TEST_CASE("DeviceChoice: a rank that Slurm tells no local rank takes device rank % devices") {
  const auto with = [](std::map<std::string, std::string> variables) {
    return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
  };
  const std::map<std::string, std::string> rank_alone{
      {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "host0"}, {"MASTER_PORT", "1"}};
  const auto source = rank_info_from_environment(with(rank_alone)).source;
  CHECK(lacks_local_rank(source, with(rank_alone)));
  auto whole = rank_alone;
  whole["SLURM_LOCALID"] = "1";
  CHECK_FALSE(lacks_local_rank(rank_info_from_environment(with(whole)).source, with(whole)));
  const std::map<std::string, std::string> torchs{
      {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "host0"}, {"MASTER_PORT", "1"}};
  CHECK_FALSE(lacks_local_rank(rank_info_from_environment(with(torchs)).source, with(torchs)));
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(choose_cuda_device_by_rank(rank, 4, "unset").index == rank % 4);
    CHECK(choose_cuda_device_by_rank(rank, 1, "unset").index == 0);
  }
  CHECK(choose_cuda_device_by_rank(5, 4, "unset").notice == "");
  CHECK_THROWS_AS(choose_cuda_device_by_rank(0, 0, "''"), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
