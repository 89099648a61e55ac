#include "ddprun/detail/ddp/ddp_core.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/ddp/ddp_wrapper.h>
#include <ddprun/detail/comm/shard_group.h>

#include "base/progress/own_page.h"
#include "base/timeline/own_timeline.h"
#include "comm/collectives/device_events.h"
#include "comm/core/bucket_text.h"
#include "comm/core/graph_capture.h"
#include "comm/core/recomputation.h"
#include "comm/group/group_state.h"
#include "comm/group/verify_across_ranks.h"
#include "comm/reducer/option_rules.h"
#include "comm/reducer/parameter_checks.h"
#include "comm/reducer/reducer.h"
#include "ddp/module_parameters.h"
#include "ddp/named_tensors.h"
#include "ddp/output_sink.h"
#include "ddp/wrap_checks.h"

namespace ddp {
namespace {

std::unique_ptr<const ModelParameters> parameters_of(std::shared_ptr<torch::nn::Module> module,
                                                     const GroupHandle& group, const DdpOptions& options) {
  if (module) return std::make_unique<ModuleParameters>(std::move(module), options);
  throw std::invalid_argument(who(group.info()) + ": DistributedDataParallel got an empty module holder");
}

at::Tensor find(const ModelParameters& parameters, const std::string& name, const std::string& what) {
  for (const NamedTensor& parameter : parameters.with_ignored()) {
    if (parameter.name == name) return parameter.tensor;
  }
  throw std::invalid_argument(what + " '" + name + "' is not a parameter of the model");
}

std::vector<at::Tensor> all_of(const OutputTensors& outputs) {
  std::vector<at::Tensor> all = outputs.tensors;
  all.insert(all.end(), outputs.fixed.begin(), outputs.fixed.end());
  return all;
}

// Tensors of deferred_init() and fully_shard() have a dispatch key of their own, and maybe no memory.
void require_memory(const std::vector<at::Tensor>& parameters, const std::string& rank) {
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.key_set().has(c10::DispatchKey::DeferredInit)) continue;
    throw std::logic_error(rank + ": DistributedDataParallel: a parameter of the model has no memory. Call " +
                           "materialize() on a model of deferred_init() first. Do not wrap a model of fully_shard(), "
                           "which reduces its gradients itself.");
  }
}

// A forward without gradients has no backward.
void leave_evaluation() {
  if (!at::GradMode::is_enabled()) detail::own_page().enter_phase(progress::Phase::kOther);
}

}  // namespace

// On a rank that has joined, repeats the collectives of the other ranks' forwards and backwards. Reference:
// _DDPJoinHook.
class DdpJoinHook final : public JoinHook {
 public:
  DdpJoinHook(DdpCore& core, bool keep_gradients) : core_(core), keep_gradients_(keep_gradients) {}

  void main_hook() override {
    if (!core_.reducer_) return;
    core_.reducer_->shadow_forward();
    if (core_.buffers_stale_ && detail::syncs_buffers_in_forward(core_.options_)) {
      std::vector<at::Tensor> buffers;
      for (const NamedTensor& buffer : core_.parameters_->buffers()) buffers.push_back(buffer.tensor);
      if (!buffers.empty()) broadcast_coalesced(buffers, core_.common_rank(false), core_.group_);
    }
    core_.buffers_stale_ = core_.any_rank_reduces(false);
    if (core_.buffers_stale_) core_.reducer_->shadow_backward(keep_gradients_);
  }
  /// Takes the last joiner's parameters and buffers.
  void post_hook(bool is_last_joiner) override {
    if (!core_.reducer_) return;
    core_.broadcast_state(core_.common_rank(is_last_joiner), detail::syncs_buffers_in_forward(core_.options_));
  }

 private:
  DdpCore& core_;
  bool keep_gradients_;
};

DdpCore::DdpCore(std::shared_ptr<torch::nn::Module> module, const GroupHandle& group, const DdpOptions& options)
    : DdpCore(parameters_of(std::move(module), group, options), group, options) {}

DdpCore::DdpCore(std::unique_ptr<const ModelParameters> parameters, GroupHandle group, const DdpOptions& options)
    : group_(std::move(group)),
      options_(options),
      parameters_(std::move(parameters)),
      rank_(who(group_.info())),
      device_(c10::kCPU) {
  detail::refuse_capture(rank_ + ": wrapping a model in DistributedDataParallel",
                         "the ranks compare it on the host. Do it before, under the stream that will be captured");
  detail::check_options(options_, rank_);
  if (!options_.delayed.names.empty() || detail::option_not_in_python(options_) != nullptr) {
    python_ranks_ = ranks_running_python(group_);
  }
  refuse_python_ranks(options_, python_ranks_, rank_);
  require_unwrapped(tensors_of(parameters_->with_ignored()), rank_ + ": DistributedDataParallel");
  require_memory(tensors_of(parameters_->with_ignored()), rank_);
  refuse_shards(tensors_of(parameters_->with_ignored()), "DistributedDataParallel",
                "fully_shard() reduces the gradients itself: train its result without DistributedDataParallel.");
  check_parameters(*parameters_, options_, group_);
  const std::vector<NamedTensor> trainable = parameters_->trainable();
  device_ = parameters_->all().empty() ? group_.device() : parameters_->all().front().tensor.device();
  if (options_.init_sync) compare_with_other_ranks(*parameters_, options_, group_);
  check_can_be_broadcast(*parameters_, options_, group_);
  if (!options_.delayed.names.empty()) make_delayed();
  if (options_.init_sync && !trainable.empty()) {
    verify_parameters(tensors_of(trainable), group_);
    broadcast_state(0, detail::syncs_buffers_at_start(options_));
  }
  const bool is_alone = detail::backends_of(group_).with(&BackendTraits::for_one_rank) != nullptr;
  const bool nothing_to_reduce = trainable.empty() || (is_alone && !options_.comm_hook);
  if (nothing_to_reduce) {
    mark_ = std::make_unique<WrappedParameters>(tensors_of(trainable));
  } else {
    reducer_ = std::make_shared<detail::GradientReducer>(reduced_model(), group_, options_);
  }
  take_rank_stream(group_);
}

// The timeline still needs the device's records of the last steps. In training itself nothing waits for them.
DdpCore::~DdpCore() {
  constexpr std::chrono::milliseconds kRecordsTimeout{200};
  if (!device_.is_cpu()) detail::finish_device_ranges(kRecordsTimeout);
  if (!reducer_ || std::uncaught_exceptions() > 0) return;
  // The next forward would have thrown this error.
  if (const std::string unfinished = reducer_->unfinished(); !unfinished.empty()) {
    std::fprintf(stderr, "%s\n", unfinished.c_str());
  }
}

// Broadcasts what Python's DDP broadcasts, in the same order.
void DdpCore::broadcast_state(int root, bool with_buffers) const {
  std::vector<at::Tensor> state;
  for (const NamedTensor& parameter : parameters_->all()) state.push_back(parameter.tensor.detach());
  if (with_buffers) {
    for (const NamedTensor& buffer : parameters_->buffers()) state.push_back(buffer.tensor.detach());
  }
  if (!state.empty()) broadcast_coalesced(state, root, group_);
}

void DdpCore::make_delayed() {
  const std::string what = rank_ + ": DistributedDataParallel: delayed parameter";
  std::vector<at::Tensor> delayed;
  std::vector<at::Tensor> values;
  for (const std::string& name : options_.delayed.names) {
    delayed.push_back(find(*parameters_, name, what));
    values.push_back(delayed.back().detach());
  }
  // Python always broadcasts these parameters, in pieces of as many bytes as bucket_cap_mb has MiB, and also reduces
  // them under no_sync(). (The sums of several reductions are right: what earlier ones left is equal on all ranks, so
  // the mean leaves it unchanged.)
  const bool as_python = !python_ranks_.empty();
  if (as_python) {
    broadcast_coalesced(values, 0, group_, std::max<int64_t>(1, detail::largest_bucket_bytes(options_) >> 20));
  } else if (options_.init_sync) {
    broadcast_coalesced(values, 0, group_);
  }
  delayed_ = std::make_unique<DelayedReduction>(
      std::move(delayed), find(*parameters_, options_.delayed.trigger, what), group_,
      DelayedReductionRules{.is_wanted =
                                [this, as_python] {
                                  if (group_.size() == 1) return false;
                                  return as_python || (reducer_ ? reducer_->reduces_backward() : sync_enabled_);
                                },
                            .is_busy = [this] { return reducer_ && reducer_->is_in_reduced_backward(); },
                            .differs_among_ranks = options_.find_unused_parameters,
                            .has_python_ranks = as_python},
      what, options_.delayed);
}

detail::ReducedModel DdpCore::reduced_model() const {
  const std::vector<NamedTensor> trainable = parameters_->trainable();
  return {.name = parameters_->model_name(),
          .parameters = tensors_of(trainable),
          .names = names_of(trainable),
          .sparse_gradients = parameters_->sparse()};
}

bool DdpCore::will_reduce() const {
  return at::GradMode::is_enabled() && sync_enabled_;
}

bool DdpCore::is_frozen() const {
  return reducer_ && !reducer_->has_trainable_parameters();
}

bool DdpCore::wants_outputs() const {
  if (!reducer_) return false;
  return detects_unused() || !reducer_->knows_static_graph();
}

bool DdpCore::looks_at_outputs() const {
  return reducer_ && at::GradMode::is_enabled();
}

void DdpCore::refuse_output(const std::type_info& type, OutputFault fault) const {
  const std::string name = c10::demangle(type.name());
  const auto why = [&]() -> std::string {
    switch (fault) {
      case OutputFault::kConst:
        return "and to put copies in their place, but " + name +
               " holds some of them const (through a pointer to const, in a const member, as const references): return "
               "tensors that can be written to";
      case OutputFault::kCopies:
        return "and to put copies in their place, but a visit_tensors() or a range in " + name +
               " returns copies: let it return references to the output's own tensors";
      case OutputFault::kNothing:
        return "and this one returns nothing: return the tensors that the loss is computed from";
      case OutputFault::kUnknown:
        break;
    }
    return "and does not know the type " + name + " or one in it: define visit_tensors() for it, as " +
           "<ddprun/comm/output_tensors.h> says";
  };
  throw std::logic_error(rank_ + ": DistributedDataParallel with " +
                         (options_.static_graph ? "static_graph" : "find_unused_parameters") +
                         " has to see the tensors in the forward's output, " + why());
}

void DdpCore::before_forward() {
  if (!group_.is_open()) throw std::runtime_error(rank_ + ": DistributedDataParallel: the process group is closed");
  if (thread_recomputes()) {
    throw std::logic_error(rank_ +
                           ": DistributedDataParallel: its forward runs in the backward, because a region of "
                           "checkpoint() contains it. Call checkpoint() inside the wrapped model.");
  }
  const auto phase = at::GradMode::is_enabled() ? progress::Phase::kForward : progress::Phase::kEvaluation;
  detail::own_page().enter_phase(phase);
  detail::end_event(std::exchange(forward_event_, 0));  // ends the event of a forward that threw
  forward_event_ = detail::begin_event(detail::event_kind(phase), progress::name_of(phase));
  detail::end_on_device(std::exchange(forward_range_, 0));
  forward_range_ = detail::begin_on_device(progress::name_of(phase), device_);
  parameters_->check_unchanged(rank_);
  if (!reducer_) return mark_->keep();
  reducer_->before_forward({.records_gradients = at::GradMode::is_enabled(),
                            .will_reduce = will_reduce() && !is_frozen(),
                            .active_ranks = notify_join_context(),
                            .divide_by_initial_world_size = divide_by_initial_world_size_});
  sync_buffers();
  if (join_enabled()) any_rank_reduces(sync_enabled_ && !is_frozen());
}

std::vector<at::Tensor> DdpCore::after_forward(const OutputTensors& outputs, const std::type_info& type) {
  leave_evaluation();
  detail::end_event(std::exchange(forward_event_, 0));
  detail::end_on_device(std::exchange(forward_range_, 0));
  if (delayed_) delayed_->after_forward();
  if (!reducer_) return {};
  // As in Python: after a forward without gradients or under no_sync(), the ranks' buffers may differ until the next
  // one.
  buffers_stale_ = will_reduce();
  if (!at::GradMode::is_enabled() || is_frozen()) return {};
  const bool needs_sink = wants_outputs() && (detects_unused() || will_reduce());
  const auto passes_sink = [](const at::Tensor& output) { return output.defined() && output.grad_fn(); };
  if (needs_sink && type == typeid(void)) refuse_output(type, OutputFault::kNothing);
  if (needs_sink && std::ranges::any_of(outputs.fixed, passes_sink)) refuse_output(type, OutputFault::kConst);
  const bool are_known = outputs.known && type != typeid(void);
  reducer_->after_forward(outputs.fixed.empty() ? outputs.tensors : all_of(outputs), are_known, will_reduce());
  std::vector<at::Tensor> originals;
  if (needs_sink) std::ranges::copy_if(outputs.tensors, std::back_inserter(originals), passes_sink);
  if (originals.empty()) return {};
  const auto copies = pass_through_sink(originals, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->reducer_->begin_backward();
    if (self->delayed_) self->delayed_->begin_backward();
  });
  std::vector<at::Tensor> replacements;
  auto copy = copies.begin();
  for (const at::Tensor& output : outputs.tensors) replacements.push_back(passes_sink(output) ? *copy++ : at::Tensor());
  return replacements;
}

void DdpCore::sync_buffers() {
  if (!buffers_stale_ || !detail::syncs_buffers_in_forward(options_)) return;
  // Collected in each call: modules may replace their buffers.
  const std::vector<NamedTensor> buffers = parameters_->buffers();
  if (buffers.empty()) return;
  // Written without a change of autograd's version counters: an earlier forward may have saved the buffers for its
  // backward, which must see the new values, as after batch norm's own update.
  std::vector<at::Tensor> values;
  for (const NamedTensor& buffer : buffers) values.push_back(buffer.tensor.variable_data());
  broadcast_coalesced(values, join_enabled() ? common_rank(true) : 0, group_);
}

int DdpCore::common_rank(bool is_candidate) const {
  const at::Tensor rank =
      at::full({1}, is_candidate ? group_.rank() : -1, at::TensorOptions().dtype(at::kLong).device(device_));
  all_reduce(rank, group_, ReduceOp::kMax);
  return static_cast<int>(rank.item<int64_t>());
}

bool DdpCore::any_rank_reduces(bool this_rank_reduces) const {
  const at::Tensor count = at::full({1}, this_rank_reduces ? 1.F : 0.F, at::TensorOptions().device(device_));
  all_reduce(count, group_);
  return count.item<float>() != 0;
}

void DdpCore::set_sync_enabled(bool enabled) {
  sync_enabled_ = enabled;
  if (reducer_) reducer_->set_sync_enabled(enabled);
}

void DdpCore::register_comm_hook(CommHook hook, const std::string& name) {
  if (!hook) throw std::invalid_argument(rank_ + ": DistributedDataParallel: the communication hook is empty");
  if (!reducer_) {
    throw std::logic_error(rank_ + ": DistributedDataParallel in a single process reduces nothing: a communication " +
                           "hook has to be given as DdpOptions::comm_hook there");
  }
  reducer_->register_comm_hook(std::move(hook), name);
}

// A single process has no buckets, and delayed sums have one.
std::string DdpCore::bucket_layout() const {
  return reducer_ ? reducer_->bucket_layout() : detail::to_text(detail::BucketIndices{});
}

void DdpCore::use_bucket_layout(const std::string& text) {
  if (reducer_) reducer_->use_bucket_layout(text);
}

DdpLoggingData DdpCore::logging_data() const {
  return reducer_ ? reducer_->logging_data() : detail::logging_data(options_, reduced_model(), group_);
}

std::unique_ptr<JoinHook> DdpCore::join_hook(const JoinOptions& options) {
  if (delayed_) {
    throw std::logic_error(rank_ +
                           ": DistributedDataParallel: join() and delayed parameters cannot be combined: a rank " +
                           "that has joined could not take part in their reduction");
  }
  divide_by_initial_world_size_ = options.divide_by_initial_world_size;
  if (reducer_) reducer_->stop_tuning();
  return std::make_unique<DdpJoinHook>(*this, options.shadow_gradients);
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
      "would not be moved. Call to() on the model before wrapping it.");
}

}  // namespace ddp
