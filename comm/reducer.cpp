#include "comm/reducer.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "comm/group_state.h"
#include "comm/store.h"

namespace ddp {
namespace {

// Calls `hook` after a gradient was accumulated.
class AfterAccumulate final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulate(std::function<void()> hook) : hook_(std::move(hook)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    hook_();
    return outputs;
  }

 private:
  std::function<void()> hook_;
};

std::unique_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            const std::vector<std::string>& names, const GroupHandle& group,
                                            const GradientReducerOptions& options) {
  const std::vector<bool> expect_sparse(parameters.size(), false);
  // As in Python's DDP: a single bucket until the first backward has told the order in which gradients become ready.
  const auto unlimited = static_cast<size_t>(std::numeric_limits<int64_t>::max());
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {unlimited}, expect_sparse));
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t i = 0; i < names.size(); ++i) names_by_index.emplace(i, names[i]);
  return std::make_unique<c10d::Reducer>(
      parameters, std::move(buckets), group.state().group("DistributedDataParallel"), expect_sparse,
      options.bucket_cap_bytes, /*find_unused_parameters=*/false, options.gradient_as_bucket_view,
      std::move(names_by_index), options.first_bucket_bytes, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
}

}  // namespace

class GradientReducer::Impl : public std::enable_shared_from_this<GradientReducer::Impl> {
 public:
  Impl(std::vector<at::Tensor> parameters, const std::vector<std::string>& names, const GroupHandle& group,
       const GradientReducerOptions& options)
      : group_(group),
        parameters_(std::move(parameters)),
        bucket_views_(options.gradient_as_bucket_view),
        aliases_(parameters_.size()),
        reducer_(make_reducer(parameters_, names, group, options)) {}

  ~Impl() {
    for (auto& [node, key] : hooks_) node->del_post_hook(key);
  }

  // After construction, since the hooks need a weak reference to this.
  void add_hooks() {
    if (!bucket_views_) return;
    for (const at::Tensor& parameter : parameters_) {
      auto node = torch::autograd::impl::grad_accumulator(parameter);
      const auto key = node->add_post_hook(std::make_unique<AfterAccumulate>([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->queue_alias_swap();
      }));
      hooks_.emplace_back(std::move(node), key);
    }
  }

  void before_forward(bool will_reduce) {
    group_.state().group("DistributedDataParallel forward");  // throws when closed
    swap_queued_.store(false, std::memory_order_relaxed);
    if (will_reduce) reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
  }

  void after_forward() { reducer_->prepare_for_backward({}); }

 private:
  // The Reducer's bucket views are autograd views, which optimizer.zero_grad() refuses to detach, so they are replaced
  // after each backward. That has to follow the Reducer's own final callback, which is queued late in backward: a
  // callback that is queued from a callback runs after all earlier ones.
  void queue_alias_swap() {
    if (swap_queued_.exchange(true, std::memory_order_relaxed)) return;
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([weak = weak_from_this()] {
      torch::autograd::Engine::get_default_engine().queue_callback([weak] {
        if (const auto self = weak.lock()) self->swap_views_for_aliases();
      });
    });
  }

  void swap_views_for_aliases() {
    swap_queued_.store(false, std::memory_order_relaxed);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (gradient.defined() && gradient.layout() == at::kStrided && gradient.is_view()) {
        gradient = alias_of(gradient, aliases_[i]);
      }
    }
  }

  // A tensor on the same memory that is no autograd view. Kept from step to step while the bucket stays the same.
  static at::Tensor alias_of(const at::Tensor& view, at::Tensor& kept) {
    const bool fits = kept.defined() && kept.storage().is_alias_of(view.storage()) &&
                      kept.storage_offset() == view.storage_offset() && kept.sizes() == view.sizes() &&
                      kept.strides() == view.strides();
    if (!fits) {
      kept = at::empty({0}, view.options());
      kept.set_(view.storage(), view.storage_offset(), view.sizes(), view.strides());
    }
    return kept;
  }

  const GroupHandle group_;
  std::vector<at::Tensor> parameters_;
  const bool bucket_views_;
  std::vector<at::Tensor> aliases_;
  // auto-typed through decltype: autograd nodes are held differently from version to version.
  std::vector<std::pair<decltype(torch::autograd::impl::grad_accumulator(at::Tensor())), uintptr_t>> hooks_;
  std::atomic<bool> swap_queued_{false};
  std::unique_ptr<c10d::Reducer> reducer_;  // last: it dies first, and its hooks refer to the parameters
};

GradientReducer::GradientReducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
                                 const GroupHandle& group, const GradientReducerOptions& options)
    : impl_(std::make_shared<Impl>(std::move(parameters), names, group, options)) {
  impl_->add_hooks();
}

GradientReducer::~GradientReducer() = default;
void GradientReducer::before_forward(bool will_reduce) {
  impl_->before_forward(will_reduce);
}
void GradientReducer::after_forward() {
  impl_->after_forward();
}

void verify_parameters(const std::vector<at::Tensor>& parameters, const GroupHandle& group) {
  const auto c10d_group = group.state().group("DistributedDataParallel");
  try {
    c10d::verify_params_across_processes(c10d_group, parameters, std::nullopt);
  } catch (const std::exception& error) {
    throw std::runtime_error(who(group.info()) + ": " + detail::brief(error));
  }
}

}  // namespace ddp
