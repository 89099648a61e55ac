#include "launcher/machine/gpu_information.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace launcher {
namespace {

const std::vector<GpuInformation> kTwo = {{"0000:1b:00.0", "NVIDIA H200", "GPU-aa11"},
                                          {"0000:43:00.0", "NVIDIA H200", "GPU-bb22"}};

TEST(VisibleEntry, CountsInTheListOrInAllGpus) {
  EXPECT_EQ(visible_entry(nullptr, 3), "3");
  EXPECT_EQ(visible_entry("2,4, GPU-x ", 1), "4");
  EXPECT_EQ(visible_entry("2,4, GPU-x ", 2), "GPU-x");
  EXPECT_EQ(visible_entry("2,4", 2), "");
  EXPECT_EQ(visible_entry("", 0), "");
  EXPECT_EQ(visible_entry("0,-1,2", 2), "") << "nothing behind an entry that names no device";
}

TEST(DescribeGpu, WithWhatIsKnown) {
  EXPECT_EQ(describe_gpu(kTwo, "1"), "GPU 1 (NVIDIA H200, GPU-bb22)");
  EXPECT_EQ(describe_gpu(kTwo, "GPU-aa"), "GPU 0 (NVIDIA H200, GPU-aa11)");
  EXPECT_EQ(describe_gpu(kTwo, "7"), "GPU 7");
  EXPECT_EQ(describe_gpu({}, "GPU-cc"), "GPU-cc");
  EXPECT_EQ(describe_gpu(kTwo, "MIG-1"), "MIG-1");
}

TEST(DriverGpus, ReadsTheDriversFilesInTheOrderOfTheBus) {
  const std::filesystem::path folder = testing::TempDir() + "/driver_gpus";
  std::filesystem::create_directories(folder / "0000:43:00.0");
  std::filesystem::create_directories(folder / "0000:1b:00.0");
  std::ofstream(folder / "0000:1b:00.0" / "information")
      << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 5\nGPU UUID: \t GPU-aa11\nDevice Minor: \t 0\n";
  const auto gpus = driver_gpus(folder.string());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(describe_gpu(gpus, "0"), "GPU 0 (NVIDIA H200, GPU-aa11)");
  EXPECT_EQ(describe_gpu(gpus, "1"), "GPU 1");
  EXPECT_TRUE(driver_gpus((folder / "nowhere").string()).empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace launcher
