// Trainings on simulated devices whose result must not depend on the order in which streams come.
#pragma once

#include <ATen/ops/equal.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include <ddprun/comm/spawn.h>

#include "tests/device/training.h"
#include "tests/support/device/device.h"

namespace ddp::test {

using State = std::vector<at::Tensor>;

inline constexpr const char* kOnDevices = "cpu:shm,cuda:nccl";

inline int schedules(int usual) {
  const char* text = std::getenv("DDPRUN_TEST_SCHEDULES");
  return text == nullptr ? usual : std::atoi(text);
}

/// The seed before the first schedule's, so that a long test can run in parts.
inline uint64_t seed_before() {
  const char* text = std::getenv("DDPRUN_TEST_SEED_BEFORE");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

inline std::vector<c10::Device> simulated(int size) {
  std::vector<c10::Device> devices;
  for (int i = 0; i < size; ++i) devices.push_back(device::device_at(i));
  return devices;
}

/// What `work` returns on rank 0 of ranks on these devices.
inline State result_of_rank_0(const std::vector<c10::Device>& devices, const char* backend,
                              const std::function<State(const GroupHandle&)>& work) {
  State state;
  spawn(static_cast<int>(devices.size()),
        [&](const GroupHandle& group) {
          State own = work(group);
          if (group.rank() == 0) state = std::move(own);
        },
        {.backend = backend, .timeout = std::chrono::seconds(100), .devices = devices});
  return state;
}

// Not where every step was skipped because its gradients were not finite.
template <typename Net>
bool has_trained(const State& state, const std::function<Net()>& construct) {
  const std::vector<at::Tensor> first = make_net<Net>(construct)->parameters();
  for (size_t i = 0; i < first.size(); ++i) {
    if (at::equal(state.at(i), first[i].to(state[i].scalar_type()))) return false;
    if (!state[i].isfinite().all().template item<bool>()) return false;
  }
  return true;
}

inline bool same_bits(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

}  // namespace ddp::test
