#include "launcher/machine/gpus.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

const std::vector<std::string> kFour = {"GPU-aaaa1111", "GPU-aabb2222", "GPU-cccc3333", "GPU-dddd4444"};

TEST(VisibleGpus, AllWhenTheVariableIsUnset) {
  EXPECT_EQ(visible_gpus(kFour, nullptr), 4);
  EXPECT_EQ(visible_gpus({}, nullptr), 0);
}

TEST(VisibleGpus, IndicesAndUuids) {
  EXPECT_EQ(visible_gpus(kFour, "2,0"), 2);
  EXPECT_EQ(visible_gpus(kFour, " 1 , 3 "), 2);
  EXPECT_EQ(visible_gpus(kFour, "GPU-cccc3333"), 1);
  EXPECT_EQ(visible_gpus(kFour, "GPU-c,GPU-aabb,0"), 3);
  EXPECT_EQ(visible_gpus(kFour, "MIG-1234,MIG-5678"), 2);
}

TEST(VisibleGpus, InTheOrderOfTheVariable) {
  EXPECT_EQ(visible_gpu_uuids(kFour, nullptr), kFour);
  EXPECT_EQ(visible_gpu_uuids(kFour, "2,GPU-aabb"), (std::vector<std::string>{"GPU-cccc3333", "GPU-aabb2222"}));
  EXPECT_EQ(visible_gpu_uuids(kFour, "1,1"), std::vector<std::string>{});
}

TEST(VisibleGpus, NothingBehindAnEntryThatNamesNoDevice) {
  EXPECT_EQ(visible_gpus(kFour, ""), 0);
  EXPECT_EQ(visible_gpus(kFour, "-1"), 0);
  EXPECT_EQ(visible_gpus(kFour, "0,4,1"), 1);
  EXPECT_EQ(visible_gpus(kFour, "0,,1"), 1);
  EXPECT_EQ(visible_gpus(kFour, "1,GPU-aa"), 1) << "an ambiguous beginning";
  EXPECT_EQ(visible_gpus(kFour, "0,1x"), 1);
  EXPECT_EQ(visible_gpus(kFour, "99999999999999999999"), 0);
}

TEST(VisibleGpus, ARepeatedDeviceHidesAll) {
  EXPECT_EQ(visible_gpus(kFour, "0,1,0"), 0);
  EXPECT_EQ(visible_gpus(kFour, "0,GPU-aaaa1111"), 0);
}

}  // namespace
}  // namespace launcher
