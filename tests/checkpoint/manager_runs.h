// What the tests of CheckpointManager share: a run to save, and what ranks say.
#pragma once

#include <torch/optim/adam.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/checkpoint/checkpoint_manager.h>

#include "tests/checkpoint/nets.h"
#include "tests/checkpoint/single_process.h"

namespace ddp::test {

/// Collects what ranks, which are threads here, say.
class Said {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  std::vector<std::string> all() const { return texts_; }
  std::set<std::string> different() const { return {texts_.begin(), texts_.end()}; }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// An object in the text form of save and load.
struct Counter {
  int64_t count = 0;
  bool refuses = false;
  std::string save() const { return std::to_string(count); }
  void load(const std::string& bytes) {
    if (refuses) throw std::runtime_error("the counter refuses");
    count = std::stoll(bytes);
  }
};

inline std::vector<int64_t> steps_of(const CheckpointManager& manager) {
  std::vector<int64_t> steps;
  for (const auto& info : manager.list()) steps.push_back(info.step);
  return steps;
}

struct Training {
  Net net;
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(0.01)};
};

}  // namespace ddp::test
