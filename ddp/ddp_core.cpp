#include "ddp/ddp_core.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "comm/collectives.h"
#include "comm/manual_seed.h"

namespace ddp {
namespace {

// named_parameters() and named_buffers() of LibTorch walk as Python's do but repeat what is shared.
template <typename Named, typename Keep>
void each_once(const Named& named, Keep keep) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : named) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
      keep(item.key(), item.value());
  }
}

std::vector<at::Tensor> buffers_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  each_once(module.named_buffers(), [&](const std::string&, const at::Tensor& value) { buffers.push_back(value); });
  return buffers;
}

// What Python's DDP broadcasts at its construction, in its order.
std::vector<at::Tensor> state_of(const torch::nn::Module& module, bool with_buffers) {
  std::vector<at::Tensor> state;
  each_once(module.named_parameters(),
            [&](const std::string&, const at::Tensor& value) { state.push_back(value.detach()); });
  if (!with_buffers) return state;
  for (at::Tensor& buffer : buffers_of(module)) state.push_back(std::move(buffer));
  return state;
}

}  // namespace

DdpCore::DdpCore(std::shared_ptr<torch::nn::Module> module, GroupHandle group, const DdpOptions& options)
    : group_(std::move(group)), options_(options), module_(std::move(module)) {
  if (!module_)
    throw std::invalid_argument(who(group_.info()) + ": DistributedDataParallel got an empty module holder");
  if (options.bucket_cap_bytes <= 0 || options.first_bucket_bytes <= 0) {
    throw std::invalid_argument(
        who(group_.info()) + ": DistributedDataParallel: bucket_cap_bytes=" + std::to_string(options.bucket_cap_bytes) +
        " and first_bucket_bytes=" + std::to_string(options.first_bucket_bytes) + ": both must be positive");
  }
  each_once(module_->named_parameters(), [&](const std::string& name, const at::Tensor& value) {
    if (!value.requires_grad()) return;
    names_.push_back(name);
    parameters_.push_back(value);
  });
  if (parameters_.empty()) {
    throw std::invalid_argument(
        who(group_.info()) +
        ": DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.");
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].device().type() == parameters_[0].device().type()) continue;
    std::ostringstream text;
    text << who(group_.info()) << ": DistributedDataParallel needs all parameters on one type of device, but '"
         << names_[0] << "' is on " << parameters_[0].device() << " and '" << names_[i] << "' on "
         << parameters_[i].device();
    throw std::invalid_argument(text.str());
  }
  first_options_ = parameters_.front().options();
  last_options_ = parameters_.back().options();

  if (options_.init_sync) {
    verify_parameters(parameters_, group_);
    broadcast_coalesced(state_of(*module_, options_.broadcast_buffers), 0, group_);
  }
  reducer_ = std::make_unique<GradientReducer>(
      parameters_, names_, group_,
      GradientReducerOptions{.bucket_cap_bytes = options_.bucket_cap_bytes,
                             .first_bucket_bytes = std::min(options_.first_bucket_bytes, options_.bucket_cap_bytes),
                             .gradient_as_bucket_view = options_.gradient_as_bucket_view});
  take_rank_stream(group_);
}

bool DdpCore::will_reduce() const {
  return at::GradMode::is_enabled() && sync_enabled_;
}

void DdpCore::check_not_moved() const {
  const auto same = [](const at::TensorOptions& before, const at::Tensor& now) {
    return before.device() == now.device() && before.dtype() == now.dtype();
  };
  if (!same(first_options_, parameters_.front()) || !same(last_options_, parameters_.back())) refuse_to_move();
}

void DdpCore::before_forward() {
  check_not_moved();
  if (at::GradMode::is_enabled()) reducer_->before_forward(will_reduce());
  if (!buffers_stale_ || !options_.broadcast_buffers) return;
  // Collected anew each time: modules may replace their buffers.
  const std::vector<at::Tensor> buffers = buffers_of(*module_);
  if (!buffers.empty()) broadcast_coalesced(buffers, 0, group_);
}

void DdpCore::after_forward() {
  // As in Python: a forward without gradients, or under no_sync, leaves the buffers to this rank until the next one.
  buffers_stale_ = will_reduce();
  if (will_reduce()) reducer_->after_forward();
}

NoSyncGuard::NoSyncGuard(std::shared_ptr<DdpCore> core) : core_(std::move(core)), previous_(core_->sync_enabled()) {
  core_->set_sync_enabled(false);
}

NoSyncGuard::~NoSyncGuard() {
  if (core_) core_->set_sync_enabled(previous_);
}

void refuse_to_move() {
  throw std::logic_error(
      "a model wrapped in DistributedDataParallel cannot be moved to another device or dtype: its gradient buckets "
      "would stay behind. Call to() on the model before wrapping it.");
}

}  // namespace ddp
