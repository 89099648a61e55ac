// Stands in for libddprun_comm_cuda.so where there is no GPU: says when it is loaded, and what NCCL would be told.
#include "comm/backends/cuda_plugin.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

class SilentBackend final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  void setSequenceNumberForGroup() override {}
  void shutdown() override {}
  void abort() override {}
};

class Plugin final : public ddp::detail::CudaPlugin {
 public:
  void check_nccl_version() const override {}
  std::string device_uuid(int device_index) const override { return "fake" + std::to_string(device_index); }
  bool is_capturing() const override { return std::getenv("DDPRUN_TEST_CAPTURES") != nullptr; }
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>&,
                                              const ddp::detail::GroupPlan& plan) const override {
    const std::lock_guard lock(mutex_);
    std::string ranks;
    for (const int rank : plan.members) ranks.append(" ").append(std::to_string(rank));
    std::string split;
    if (plan.split.from) {
      split = ", color " + std::to_string(plan.split.color) + " of rank " + std::to_string(plan.split.from->getRank()) +
              "'s communicator of " + std::to_string(plan.split.from->getSize());
    }
    std::printf("nccl %s (%s) rank %d of %d, members:%s%s\n", plan.name.c_str(), plan.description.c_str(),
                plan.info.rank, plan.info.world_size, ranks.c_str(), split.c_str());
    return c10::make_intrusive<SilentBackend>(plan.info.rank, plan.info.world_size);
  }

  bool can_split(const c10d::Backend&) const override { return std::getenv("DDPRUN_TEST_SPLITS") != nullptr; }
  void split_as_non_member(c10d::Backend& communicator, c10::Device) const override {
    const std::lock_guard lock(mutex_);
    std::printf("nccl: rank %d is in no part\n", communicator.getRank());
  }

 private:
  mutable std::mutex mutex_;
};

[[gnu::constructor]] void say_loaded() {
  std::puts("the CUDA part is loaded");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const ddp::detail::CudaPlugin* ddprun_cuda_plugin() {
  static const Plugin plugin;
  return &plugin;
}
