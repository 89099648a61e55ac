#include "comm/group/pair_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/group/store_keys.h"

namespace ddp::detail {
namespace {

constexpr int kRanks = 2;
constexpr size_t kMostBytes = size_t{64} << 10;

}  // namespace

std::unique_ptr<PairExchange> PairExchange::make(const RankInfo& info, c10d::ProcessGroup& group, c10d::Store& store) {
  if (info.world_size != kRanks || !group.hasBackends()) return nullptr;
  const auto types = group.getDeviceTypes();
  if (std::ranges::find(types, c10::kCPU, &c10::Device::type) == types.end()) return nullptr;
  auto backend = group.getBackend(c10::kCPU);
  if (dynamic_cast<c10d::ProcessGroupGloo*>(backend.get()) == nullptr) return nullptr;
  if (!store.check({keys::present(1 - info.rank)})) return nullptr;
  return std::make_unique<PairExchange>(std::move(backend), info.rank);
}

bool PairExchange::takes(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || !tensor.is_contiguous()) return false;
  if (tensor.numel() == 0 || tensor.nbytes() > kMostBytes) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

// What is received is asked for first: gloo sends at once to a rank that has asked.
PairExchange::Sum::Sum(PairExchange& exchange, at::Tensor tensor)
    : tensor_(std::move(tensor)), received_(at::empty_like(tensor_)) {
  const int other = 1 - exchange.rank_;
  std::vector<at::Tensor> tensors{received_};
  recv_ = exchange.gloo_->recv(tensors, other, kPairExchangeTag);
  tensors[0] = tensor_;
  send_ = exchange.gloo_->send(tensors, other, kPairExchangeTag);
}

std::shared_ptr<PairExchange::Sum> PairExchange::start(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  auto sum = std::make_shared<Sum>(*this, tensor.detach());
  const std::lock_guard lock(mutex_);
  under_way_.push_back(sum);
  return sum;
}

void PairExchange::finish(const std::shared_ptr<Sum>& sum) {
  const at::NoGradGuard no_grad;
  sum->recv_->wait();
  sum->send_->wait();
  // In rank order, so that a NaN's bits are the same on both ranks.
  const bool first = rank_ == 0;
  at::add_out(sum->tensor_, first ? sum->tensor_ : sum->received_, first ? sum->received_ : sum->tensor_);
  // Messages keep their order: whatever was started before has been delivered.
  const std::lock_guard lock(mutex_);
  const auto place = std::ranges::find(under_way_, sum);
  if (place != under_way_.end()) under_way_.erase(under_way_.begin(), place + 1);
}

}  // namespace ddp::detail
