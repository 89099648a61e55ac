#include "comm/device_choice.h"

#include <gmock/gmock.h>

#include <stdexcept>

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr bool kOnePerRank = true;
constexpr bool kShared = false;

std::string error_of(int local_rank, int local_world_size, int device_count, bool one_per_rank) {
  try {
    choose_cuda_device(local_rank, local_world_size, device_count, one_per_rank, "'0,1'");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceChoice, GivesEachLocalRankADeviceOfItsOwn) {
  for (const bool one_per_rank : {kOnePerRank, kShared}) {
    for (int rank = 0; rank < 4; ++rank) {
      const DeviceChoice choice = choose_cuda_device(rank, 4, 8, one_per_rank, "unset");
      EXPECT_EQ(choice.index, rank);
      EXPECT_EQ(choice.notice, "");
    }
    EXPECT_EQ(choose_cuda_device(3, 4, 4, one_per_rank, "unset").index, 3);
  }
}

TEST(DeviceChoice, TakesTheOnlyVisibleDeviceWhateverTheLocalRank) {
  const DeviceChoice choice = choose_cuda_device(3, 4, 1, kOnePerRank, "'3'");
  EXPECT_EQ(choice.index, 0);
  EXPECT_EQ(choice.notice, "");
}

TEST(DeviceChoice, RefusesMoreRanksThanDevicesWhereEachNeedsItsOwn) {
  // Every rank refuses, also those that would have a device: otherwise they would wait for the ones that cannot start.
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(error_of(rank, 4, 2, kOnePerRank),
                AllOf(HasSubstr("LOCAL_RANK=" + std::to_string(rank)), HasSubstr("LOCAL_WORLD_SIZE=4"),
                      HasSubstr("visible CUDA devices: 2"), HasSubstr("CUDA_VISIBLE_DEVICES='0,1'"),
                      HasSubstr("Start at most 2 ranks here, or use backend 'gloo'")));
  }
}

TEST(DeviceChoice, WrapsAroundWithANoticeWhereDevicesMayBeShared) {
  for (int rank = 0; rank < 5; ++rank) {
    const DeviceChoice choice = choose_cuda_device(rank, 5, 2, kShared, "unset");
    EXPECT_EQ(choice.index, rank % 2);
    EXPECT_THAT(choice.notice, AllOf(HasSubstr("sharing GPU " + std::to_string(rank % 2)),
                                     HasSubstr("LOCAL_RANK=" + std::to_string(rank))));
  }
}

TEST(DeviceChoice, RefusesToDoWithoutADevice) {
  for (const bool one_per_rank : {kOnePerRank, kShared}) {
    EXPECT_THAT(error_of(0, 1, 0, one_per_rank), AllOf(HasSubstr("no CUDA device is visible"), HasSubstr("'gloo'")));
  }
}

}  // namespace
}  // namespace ddp
