// The checkpoints of a directory, as its readers see them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ddprun/detail/checkpoint/storage/file_system.h>

#include "checkpoint/storage/inventory.h"
#include "tests/support/catch.h"

namespace ddp::test {

/// Their steps, in the order of list_checkpoints(); a damaged one fails the test.
inline std::vector<int64_t> steps_in(storage::FileSystem& file_system, const std::filesystem::path& directory) {
  std::vector<int64_t> steps;
  for (const auto& entry : storage::list_checkpoints(file_system, directory)) {
    CHECK(!entry.failure);
    steps.push_back(entry.step);
  }
  return steps;
}

}  // namespace ddp::test
