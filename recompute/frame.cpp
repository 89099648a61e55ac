#include "recompute/frame.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <sstream>
#include <utility>

#include "base/rank_prefix.h"
#include "comm/core/recomputation.h"
#include "ddprun/base/progress.h"
#include "recompute/kept_buffers.h"
#include "recompute/kept_graph.h"

namespace ddp::recompute {
namespace {

// Thrown to end a second run that has collected all needed tensors. It has no base class, so that `catch (const
// std::exception&)` in the region's function does not catch it.
struct EnoughCollected {};

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl()) : nullptr;
}

std::string described(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device) {
  std::ostringstream text;
  text << c10::toString(dtype) << " " << sizes << " on " << device;
  return text.str();
}

std::string node_in_backward() {
  const auto node = torch::autograd::get_current_node();
  return node ? " (needed by " + node->name() + ")" : "";
}

// The hooks of a tensor that was saved in a first run. They store the tensor's position instead of the tensor.
class PositionHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PositionHooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  ~PositionHooks() override {
    if (position_) frame_->forget(*position_);
  }
  void call_pack_hook(const at::Tensor& tensor) override { position_ = frame_->add(tensor); }
  at::Tensor call_unpack_hook() override { return frame_->unpack(*position_); }

 private:
  std::shared_ptr<Frame> frame_;
  std::optional<size_t> position_;
};

// The hooks of a tensor that was saved in a second run. The graph of that run is released with the run, so these hooks
// are used only by a backward inside the region.
class CollectingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit CollectingHooks(SecondRun& run) : run_(run) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    run_.custom_outputs().note(tensor);
    // tensor_data() is not an operator. An operator call would be logged, and an error about a difference between the
    // runs names the last operator of the region.
    tensor_ = tensor.requires_grad() ? tensor.tensor_data() : tensor;
    run_.collect(tensor_, tensor.requires_grad());
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  SecondRun& run_;  // used only in call_pack_hook(), directly after the construction
  at::Tensor tensor_;
};

}  // namespace

SavedInput::SavedInput(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_inference()) {
    plain_ = tensor;
    return;
  }
  saved_ = torch::autograd::SavedVariable(tensor, /*is_output=*/false);
}

at::Tensor SavedInput::get() const {
  if (!saved_.has_hooks() && !saved_.get_raw_data()->defined()) return plain_;
  try {
    return saved_.unpack();
  } catch (const c10::Error& error) {
    throw RecomputeError(
        rank_prefix() + "checkpoint(): an input of the region was changed in place after the forward: " +
        error.what_without_backtrace() + " Give the region a copy of it, or change it after the backward.");
  }
}

Frame::Frame(const RecomputeOptions& options, const std::vector<at::Tensor>& inputs, Recompute recompute)
    : options_(options),
      recompute_(std::move(recompute)),
      devices_(devices_of(inputs)),
      autocast_(AutocastState::current()),
      kept_operators_(options.must_save) {
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
  if (options_.preserve_rng_state) random_states_ = RandomStates::current(devices_);
}

void Frame::run_first(const std::function<void()>& function) {
  FirstRun mode(*this);
  const SavedTensorScope scope(mode);
  std::optional<OperatorLog> log;
  if (options_.debug) log.emplace(first_calls_);
  function();
  is_first_run_complete_ = true;
}

void Frame::abandon() noexcept {
  inputs_.clear();
  kept_.clear();
  kept_operators_.clear();
  recompute_ = [](const std::vector<at::Tensor>& /*inputs*/) {
    throw RecomputeError(rank_prefix() +
                         "checkpoint(): a tensor of a region whose forward failed is needed by a backward");
  };
}

size_t Frame::add(const at::Tensor& tensor) {
  const std::lock_guard lock(guard_);
  positions_.push_back({.sizes = tensor.sizes().vec(),
                        .dtype = tensor.scalar_type(),
                        .device = tensor.device(),
                        .storage = storage_of(tensor),
                        .version = version_of(tensor),
                        .requires_grad = tensor.requires_grad()});
  return positions_.size() - 1;
}

at::Tensor Frame::unpack(size_t position) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (at::Tensor tensor = take(task, position); tensor.defined()) return tensor;
  const std::lock_guard lock(recomputing_);
  // Another thread of this backward may have run the region again while this thread waited for the lock.
  if (at::Tensor tensor = take(task, position); tensor.defined()) return tensor;
  run_again(task);
  at::Tensor tensor = take(task, position);
  if (task == -1) {  // outside a backward, nothing indicates when the other tensors are no longer needed
    const std::lock_guard guard(guard_);
    collected_.erase(task);
  }
  return tensor;
}

void Frame::forget(size_t position) {
  std::vector<at::Tensor> released;  // destroyed after `guard_` is released
  const std::lock_guard lock(guard_);
  positions_[position].is_alive = false;
  for (auto at = collected_.begin(); at != collected_.end();) {
    auto& [tensors, versions, count, left] = at->second;
    if (position < tensors.size() && tensors[position].defined()) {
      released.push_back(std::exchange(tensors[position], {}));
      --left;
    }
    at = left == 0 ? collected_.erase(at) : std::next(at);
  }
}

// Returns the tensor that a second run for `task` has collected, or an undefined tensor if the run has not saved it.
// Each tensor is returned only once.
at::Tensor Frame::take(int task, size_t position) {
  const std::lock_guard lock(guard_);
  const auto found = collected_.find(task);
  if (found == collected_.end()) return {};
  Collected& collected = found->second;
  if (position >= collected.tensors.size() || !collected.tensors[position].defined()) return {};
  at::Tensor tensor = std::exchange(collected.tensors[position], {});
  const bool is_changed = version_of(tensor) != collected.versions[position];
  if (--collected.left == 0) collected_.erase(found);
  if (is_changed && options_.determinism_check == DeterminismCheck::kDefault) {
    throw RecomputeError(rank_prefix() + "checkpoint(): the region changed saved tensor " + std::to_string(position) +
                         " (" + described(tensor.sizes(), tensor.scalar_type(), tensor.device()) +
                         ") in place after autograd had saved it" + node_in_backward() +
                         ". Use the operator that returns a new tensor.");
  }
  return tensor;
}

// Runs the region a second time and compares the run with the first one.
Frame::Collected Frame::collected_again() {
  Collected collected;
  run_second(collected);
  if (!ignores_extra_tensors_ && collected.count != positions_.size()) {
    throw RecomputeError(rank_prefix() + "checkpoint(): the region saved " + std::to_string(positions_.size()) +
                         " tensors in the forward and " + std::to_string(collected.count) +
                         " in the recomputation. A region must call the same operators in both" + explanation());
  }
  return collected;
}

void Frame::run_again(int task) {
  Collected collected;
  try {
    collected = collected_again();
  } catch (const RecomputeError&) {
    if (options_.debug) throw;
    // Runs the region again with a log to find the operator for the message. If this run succeeds, the region does not
    // compute the same results in every run.
    logs_second_run_ = true;
    collected_again();
    throw;
  }
  const std::lock_guard lock(guard_);
  // Tensors whose positions were released during the run are not needed.
  for (size_t position = 0; position < collected.tensors.size(); ++position) {
    at::Tensor& tensor = collected.tensors[position];
    if (!tensor.defined()) continue;
    if (positions_[position].is_alive) {
      ++collected.left;
    } else {
      tensor.reset();
    }
  }
  collected_.insert_or_assign(task, std::move(collected));
}

void Frame::run_second(Collected& collected) {
  const c10::InferenceMode graph_is_recorded(false);  // also if the backward is called in inference mode
  std::vector<at::Tensor> inputs;
  // Unpacked before the modes change, because this may run an outer region again.
  for (const SavedInput& input : inputs_) inputs.push_back(input.get());
  const progress::PhaseScope phase("recompute");
  std::optional<RandomStatesScope> random_states;
  if (random_states_) random_states.emplace(*random_states_);
  const AutocastStateScope autocast(autocast_);
  const KeptBuffers buffers(options_.update_buffers_once);
  const c10::AutoGradMode grad_mode(true);
  const RecomputationScope recomputation;
  SecondRun mode(*this, collected);
  const SavedTensorScope scope(mode);
  std::optional<OperatorLog> log;
  second_calls_ = {};
  if (options_.debug || logs_second_run_) log.emplace(second_calls_);
  try {
    recompute_(std::move(inputs));
  } catch (const EnoughCollected&) {
    mode.custom_outputs().release();
  } catch (...) {
    mode.custom_outputs().release();
    throw;
  }
}

void Frame::collect(Collected& collected, const at::Tensor& tensor, bool requires_grad) {
  const size_t position = collected.count++;
  size_t wanted = 0;
  {
    const std::lock_guard lock(guard_);
    wanted = positions_.size();
    collected.tensors.resize(wanted);
    collected.versions.resize(wanted);
    if (position < wanted && positions_[position].is_alive) {
      collected.tensors[position] = tensor;
      collected.versions[position] = version_of(tensor);
    }
  }
  if (position >= wanted) {
    // Without early stop, a backward inside the region may run before the first run has saved all its tensors.
    if (!is_first_run_complete_) {
      ignores_extra_tensors_ = true;
      return;
    }
    throw RecomputeError(rank_prefix() + "checkpoint(): the region saved " + std::to_string(wanted) +
                         " tensors in the forward and more in the recomputation. A region must call the same operators "
                         "in both" +
                         explanation());
  }
  check(collected, position, tensor, requires_grad);
  if (options_.early_stop && collected.count == wanted) throw EnoughCollected();
}

void Frame::check(const Collected& collected, size_t position, const at::Tensor& tensor, bool requires_grad) const {
  if (options_.determinism_check == DeterminismCheck::kNone || !collected.tensors[position].defined()) return;
  const SavedPosition& first = positions_[position];
  if (tensor.sizes() != first.sizes || tensor.scalar_type() != first.dtype || tensor.device() != first.device) {
    throw RecomputeError(rank_prefix() + "checkpoint(): saved tensor " + std::to_string(position) + " was " +
                         described(first.sizes, first.dtype, first.device) + " in the forward and is " +
                         described(tensor.sizes(), tensor.scalar_type(), tensor.device()) +
                         " in the recomputation. A region must call the same operators in both" + explanation());
  }
  // Whether tensors require gradients determines which tensors autograd saves.
  if (requires_grad != first.requires_grad) {
    throw RecomputeError(rank_prefix() + "checkpoint(): saved tensor " + std::to_string(position) + " (" +
                         described(first.sizes, first.dtype, first.device) + ") " +
                         (requires_grad ? "requires grad in the recomputation and did not"
                                        : "does not require grad in the recomputation and did") +
                         " in the forward. Freeze or thaw parameters after the backward" + explanation());
  }
  // The same storage with another version means that a parameter or buffer was changed in place. A tensor that the
  // region itself computes has either another storage or the same version.
  if (first.storage == storage_of(tensor) && first.version != version_of(tensor)) {
    throw RecomputeError(rank_prefix() + "checkpoint(): saved tensor " + std::to_string(position) + " (" +
                         described(first.sizes, first.dtype, first.device) +
                         ") was changed in place between the forward and the backward" + node_in_backward() +
                         ": its recomputation would give the gradient of other values. Call the optimizer's step after "
                         "the backward.");
  }
}

std::string Frame::explanation() const {
  if (options_.debug) {
    const std::string difference = first_difference(first_calls_.all, second_calls_.all);
    return node_in_backward() + ": " + (difference.empty() ? "both called the same operators" : difference) + ".";
  }
  const auto& calls = second_calls_.active.empty() ? second_calls_.all : second_calls_.active;
  const std::string where = calls.empty() ? "" : ": the recomputation was in " + calls.back();
  return node_in_backward() + where + ". RecomputeOptions::debug names the first operator that differs.";
}

void Frame::store_kept(KeptResult result) {
  const std::lock_guard lock(guard_);
  kept_.push_back(std::move(result));
}

const KeptResult& Frame::kept(size_t index) const {
  if (index >= kept_.size()) {
    throw RecomputeError(rank_prefix() + "keep(): the region called it " + std::to_string(kept_.size()) +
                         " times in the forward and more often in the recomputation");
  }
  return kept_[index];
}

std::unique_ptr<torch::autograd::SavedVariableHooks> FirstRun::next_hooks() {
  return std::make_unique<PositionHooks>(frame_.shared_from_this());
}

void FirstRun::add_kept(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    if (result.defined() && result.requires_grad()) kept_.push_back(result);
  }
}

bool FirstRun::before_backward(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& targets) {
  if (goes_beyond(roots, targets, kept_)) refuse_backward_through_kept();
  return true;
}

void FirstRun::run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                            const std::function<void()>& call) {
  call();
  frame_.kept_operators().note(op, stack, frame_.preserves_rng_state() ? &frame_.devices() : nullptr);
}

void SecondRun::run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                             const std::function<void()>& call) {
  const KeptOperators& operators = frame_.kept_operators();
  if (!operators.has(op)) return call();
  operators.put(kept_operators_++, op, stack);
}

std::unique_ptr<torch::autograd::SavedVariableHooks> SecondRun::next_hooks() {
  return std::make_unique<CollectingHooks>(*this);
}

}  // namespace ddp::recompute

namespace ddp {

bool is_recomputing() noexcept {
  return thread_recomputes();
}

}  // namespace ddp
