#include "launcher/os/machine/gpu_information.h"

#include <filesystem>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using ddp::test::write_file;

const std::vector<GpuInformation> kTwo = {{"0000:1b:00.0", "NVIDIA H200", "GPU-aa11"},
                                          {"0000:43:00.0", "NVIDIA H200", "GPU-bb22"}};

TEST_CASE("VisibleEntry: counts in the list or in all GPUs") {
  CHECK(visible_entry(nullptr, 3) == "3");
  CHECK(visible_entry("2,4, GPU-x ", 1) == "4");
  CHECK(visible_entry("2,4, GPU-x ", 2) == "GPU-x");
  CHECK(visible_entry("2,4", 2) == "");
  CHECK(visible_entry("", 0) == "");
  INFO("nothing behind an entry that names no device");
  CHECK(visible_entry("0,-1,2", 2) == "");
}

TEST_CASE("DescribeGpu: says what is known") {
  CHECK(describe_gpu(kTwo, "1") == "GPU 1 (NVIDIA H200, GPU-bb22)");
  CHECK(describe_gpu(kTwo, "GPU-aa") == "GPU 0 (NVIDIA H200, GPU-aa11)");
  CHECK(describe_gpu(kTwo, "7") == "GPU 7");
  CHECK(describe_gpu({}, "GPU-cc") == "GPU-cc");
  CHECK(describe_gpu(kTwo, "MIG-1") == "MIG-1");
}

TEST_CASE("DriverGpus: reads the driver's files in the order of the bus") {
  const ddp::test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "0000:43:00.0");
  std::filesystem::create_directories(folder / "0000:1b:00.0");
  write_file(folder / "0000:1b:00.0" / "information",
             "Model: \t\t NVIDIA H200\nIRQ:   \t\t 5\nGPU UUID: \t GPU-aa11\nDevice Minor: \t 0\n");
  const auto gpus = driver_gpus(folder.path());
  REQUIRE(gpus.size() == 2U);
  CHECK(describe_gpu(gpus, "0") == "GPU 0 (NVIDIA H200, GPU-aa11)");
  CHECK(describe_gpu(gpus, "1") == "GPU 1");
  CHECK(driver_gpus(folder / "nowhere").empty());
}

}  // namespace
}  // namespace launcher
