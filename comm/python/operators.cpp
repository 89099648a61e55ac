// The operators by which torch.distributed's Python gets our backend, and ddprun.checkpoint its checksums. This library
// knows nothing of Python: c10d's process groups are objects of TorchBind, so one reaches C++ through an operator, and
// its backend reaches Python again as ProcessGroup._get_backend(), an object of torch's own binding of c10d::Backend.
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "comm/python/python_backend.h"

namespace ddp::detail {
namespace {

// Gives `group`, which is there for nothing else, the backend of the ranks that all call this. `ranks` are those of a
// sub-group in the job, or empty.
void connect_shm_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int64_t timeout_ms, const std::string& name,
                       at::IntArrayRef ranks) {
  GroupPlan plan;
  plan.info.rank = group->getRank();
  plan.info.world_size = group->getSize();
  plan.timeout = std::chrono::milliseconds(timeout_ms);
  plan.name = name;
  plan.reports_job_ranks = true;
  for (const int64_t rank : ranks) plan.members.push_back(static_cast<int>(rank));
  if (!plan.members.empty()) {
    plan.info.parent = "rank " + std::to_string(plan.members.at(static_cast<size_t>(group->getRank())));
  }
  group->setBackend(c10::kCPU, c10d::ProcessGroup::CUSTOM, make_python_backend(plan, group->getStore()));
}

// The CRC-32C of each block of `block_bytes` of `data`, bytes in host memory; the last one may be shorter.
std::vector<int64_t> crc32c_of_blocks(const at::Tensor& data, int64_t block_bytes) {
  TORCH_CHECK(data.device().is_cpu() && data.scalar_type() == at::kByte && data.dim() == 1 && data.is_contiguous(),
              "ddprun::crc32c: expected a contiguous one-dimensional tensor of uint8 on the CPU");
  TORCH_CHECK(block_bytes > 0, "ddprun::crc32c: expected a positive block_bytes, got ", block_bytes);
  std::vector<int64_t> checksums;
  const auto* const bytes = data.const_data_ptr<uint8_t>();
  for (int64_t begin = 0; begin < data.numel(); begin += block_bytes) {
    checksums.push_back(crc32c(bytes + begin, static_cast<size_t>(std::min(block_bytes, data.numel() - begin))));
  }
  return checksums;
}

}  // namespace
}  // namespace ddp::detail

TORCH_LIBRARY_FRAGMENT(ddprun, library) {
  library.def("connect_shm", ddp::detail::connect_shm_group);
  library.def("crc32c", ddp::detail::crc32c_of_blocks);
}
