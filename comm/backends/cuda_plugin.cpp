#include "comm/backends/cuda_plugin.h"

#include <ATen/cuda/CUDAContext.h>
#include <nccl.h>

#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "comm/versions/nccl_engine.h"

namespace ddp::detail {
namespace {

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

class Plugin final : public CudaPlugin {
 public:
  void check_nccl_version() const override {
    int loaded = 0;
    if (ncclGetVersion(&loaded) != ncclSuccess) throw std::runtime_error("NCCL does not report its version");
    if (loaded != NCCL_VERSION_CODE) {
      throw std::runtime_error(
          "the NCCL that was loaded is " + version_text(loaded) + ", but ddprun was compiled for " +
          version_text(NCCL_VERSION_CODE) +
          ", and ProcessGroupNCCL depends on the data layout of that version. Remove other copies of libnccl.so.2 from "
          "LD_LIBRARY_PATH and LD_PRELOAD, or rebuild ddprun against this NCCL.");
    }
  }

  std::string device_uuid(int device_index) const override {
    const cudaDeviceProp* properties = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device_index));
    std::string text;
    for (const char byte : properties->uuid.bytes) {
      char hex[3];
      std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(byte));
      text += hex;
    }
    return text;
  }

  bool is_capturing() const override { return at::cuda::currentStreamCaptureStatus() != at::cuda::CaptureStatus::None; }

  c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                              const GroupPlan& plan) const override {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = plan.timeout;
    options->group_name = plan.name;
    options->group_desc = plan.description;
    options->global_ranks_in_group.assign(plan.members.begin(), plan.members.end());
    if (plan.split.from) {
      options->split_from = c10::dynamic_intrusive_pointer_cast<c10d::ProcessGroupNCCL>(plan.split.from);
      options->split_color = plan.split.color;
    }
    return versions::make_nccl(std::getenv("TORCH_DIST_USE_NCCL2"), store, plan.info.rank, plan.info.world_size,
                               options);
  }

  // The second engine splits in other ways, which 2.14 and 2.15 do not share.
  bool can_split(const c10d::Backend& communicator) const override {
    return dynamic_cast<const c10d::ProcessGroupNCCL*>(&communicator) != nullptr && communicator.supportsSplitting();
  }

  void split_as_non_member(c10d::Backend& communicator, c10::Device device) const override {
    dynamic_cast<c10d::ProcessGroupNCCL&>(communicator).performNocolorSplit(device);
  }
};

}  // namespace
}  // namespace ddp::detail

extern "C" __attribute__((visibility("default"))) const ddp::detail::CudaPlugin* ddprun_cuda_plugin() {
  static const ddp::detail::Plugin plugin;
  return &plugin;
}
