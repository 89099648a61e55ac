// LibTorch's NCCL, which the CUDA part makes.
#include "comm/backends/backend_types.h"
#include "comm/backends/cuda_plugin.h"
#include "comm/backends/gloo.h"

namespace ddp::detail {

BackendType nccl_backend() {
  return {.traits = {.name = "nccl",
                     .title = "NCCL",
                     .serves_cuda = true,
                     .wait_blocks = false,
                     .needs_cuda = true,
                     .needs_torch_store = true,
                     .sends_on_device = true,
                     .coalesces_messages = true,
                     .joins_python = true,
                     .default_timeout = std::chrono::minutes(10)},
          .c10d_type = c10d::ProcessGroup::NCCL,
          .make =
              [](const GroupPlan& plan, const auto& store) {
                return with_checks(require_cuda(plan.info, "NCCL").make_nccl(store, plan), plan, store);
              },
          .check = [](const RankInfo& info) { require_cuda(info, "NCCL").check_nccl_version(); }};
}

}  // namespace ddp::detail
