// What a region stores between its forward and its backward: its inputs, how to run it again, and the position and
// shape of each tensor that autograd saved in it. The tensors are computed by a second run, one for each backward, and
// each is released when it has been used. The semantics are those of Python's torch/utils/checkpoint.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <any>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/amp/autocast.h"
#include "ddprun/detail/recompute/region.h"
#include "recompute/custom_outputs.h"
#include "recompute/frame_lock.h"
#include "recompute/kept_operators.h"
#include "recompute/operator_log.h"
#include "recompute/random_states.h"
#include "recompute/saved_tensor_mode.h"

namespace ddp::recompute {

/// An input of a region. It is saved as autograd saves tensors, so that it belongs to the outer region if there is one.
class SavedInput {
 public:
  explicit SavedInput(const at::Tensor& tensor);
  /// Returns the tensor with its original graph. Throws RecomputeError if the tensor was changed in place after it was
  /// saved.
  at::Tensor get() const;

 private:
  at::Tensor plain_;  // a tensor that autograd cannot save: undefined, or made in inference mode
  torch::autograd::SavedVariable saved_;
};

/// What the first run records about a saved tensor.
struct SavedPosition {
  std::vector<int64_t> sizes;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;
  const void* storage = nullptr;  // identifies parameters; never dereferenced
  uint32_t version = 0;
  bool requires_grad = false;
  bool is_alive = true;  // whether the backward may still request it
};

/// The result of one keep().
struct KeptResult {
  std::vector<at::Tensor> tensors;  // detached
  std::vector<bool> requires_grad;
  std::vector<uint32_t> versions;
  std::any structure;
  std::optional<RandomStates> random_states;  // after the call
};

/// One region in one forward. The hooks of the tensors that were saved in it own it.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  using Recompute = detail::Region::Recompute;

  Frame(const RecomputeOptions& options, const std::vector<at::Tensor>& inputs, Recompute recompute);

  /// Runs `function` for the first time.
  void run_first(const std::function<void()>& function);
  /// Called after a first run that failed. Releases the inputs, because they may hold the graph that holds this frame.
  void abandon() noexcept;

  /// Records a tensor that autograd saves in the first run, and returns its position.
  size_t add(const at::Tensor& tensor);
  /// Returns the tensor at `position` for the backward that runs in the calling thread.
  at::Tensor unpack(size_t position);
  /// Called when nothing can request `position` any more.
  void forget(size_t position);

  /// Stores the result of a keep(). Results are in the order of the calls, and `index` counts the calls of one run.
  void store_kept(KeptResult result);
  const KeptResult& kept(size_t index) const;
  bool preserves_rng_state() const { return options_.preserve_rng_state; }
  const std::vector<c10::Device>& devices() const { return devices_; }
  /// The results of operators that are not run again.
  KeptOperators& kept_operators() { return kept_operators_; }

 private:
  friend class SecondRun;

  // The tensors that one second run has collected for one backward.
  struct Collected {
    std::vector<at::Tensor> tensors;
    std::vector<uint32_t> versions;
    size_t count = 0;  // tensors saved so far, including those that are not needed
    size_t left = 0;   // tensors that have not been requested yet
  };

  at::Tensor take(int task, size_t position);
  void run_again(int task);
  Collected collected_again();
  void run_second(Collected& collected);
  void collect(Collected& collected, const at::Tensor& tensor, bool requires_grad);
  void check(const Collected& collected, size_t position, const at::Tensor& tensor, bool requires_grad) const;
  std::string explanation() const;

  RecomputeOptions options_;
  Recompute recompute_;
  std::deque<SavedInput> inputs_;
  std::vector<c10::Device> devices_;
  std::optional<RandomStates> random_states_;
  AutocastState autocast_;
  bool is_first_run_complete_ = false;
  bool ignores_extra_tensors_ = false;

  FrameLock recomputing_;  // allows one second run at a time; locked before `guard_`
  std::mutex guard_;       // protects the members below; never held while a region runs
  std::vector<SavedPosition> positions_;
  std::map<int, Collected> collected_;  // the key is the id of the graph task
  std::vector<KeptResult> kept_;
  KeptOperators kept_operators_;

  OperatorCalls first_calls_;     // recorded with the option debug
  OperatorCalls second_calls_;    // of the latest second run
  bool logs_second_run_ = false;  // set after a second run that differed from the first
};

/// The mode of the thread in which a region runs for the first time.
class FirstRun final : public SavedTensorMode {
 public:
  explicit FirstRun(Frame& frame) : frame_(frame) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() override;
  // Tensors that a backward inside the region saves (with create_graph) must not count. Such a backward runs in the
  // thread of its device. A second run is already in that thread and the first run is not, so those tensors would count
  // in only one of the two runs.
  bool holds_in_backwards() const override { return false; }
  // Refuses a backward through the graph of a result of keep(), because that graph is different in the second run.
  bool before_backward(const torch::autograd::edge_list& roots, const torch::autograd::edge_list& targets) override;
  void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    const std::function<void()>& call) override;
  /// Adds the results of a keep(), with their graph.
  void add_kept(const std::vector<at::Tensor>& results);
  Frame& frame() { return frame_; }

 private:
  Frame& frame_;
  std::vector<at::Tensor> kept_;
};

/// The mode of the thread in which a region runs again.
class SecondRun final : public SavedTensorMode {
 public:
  SecondRun(Frame& frame, Frame::Collected& collected) : frame_(frame), collected_(collected) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() override;
  bool holds_in_backwards() const override { return false; }
  void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    const std::function<void()>& call) override;
  void collect(const at::Tensor& tensor, bool requires_grad) { frame_.collect(collected_, tensor, requires_grad); }
  CustomOutputs& custom_outputs() { return custom_outputs_; }
  Frame& frame() { return frame_; }
  size_t next_kept() { return kept_++; }

 private:
  Frame& frame_;
  Frame::Collected& collected_;
  CustomOutputs custom_outputs_;
  size_t kept_ = 0;
  size_t kept_operators_ = 0;
};

}  // namespace ddp::recompute
