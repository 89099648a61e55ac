// Stands in for libddprun_comm_cuda.so: what ddprun asks its CUDA part for is answered by the simulated devices.
#include <cstdlib>
#include <string>

#include "comm/backends/cuda_plugin.h"
#include "tests/support/device/communicator.h"

namespace ddp::test::device {
namespace {

class Plugin final : public detail::CudaPlugin {
 public:
  void check_nccl_version() const override {}
  std::string device_uuid(int device_index) const override { return "simulated" + std::to_string(device_index); }
  bool is_capturing() const override { return false; }
  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                              const detail::GroupPlan& plan) const override {
    return make_communicator(plan, store);
  }
  bool can_split(const c10d::Backend&) const override { return false; }
  void split_as_non_member(c10d::Backend&, c10::Device) const override {}
};

}  // namespace
}  // namespace ddp::test::device

extern "C" __attribute__((visibility("default"))) const ddp::detail::CudaPlugin* ddprun_cuda_plugin() {
  static const ddp::test::device::Plugin plugin;
  return &plugin;
}
