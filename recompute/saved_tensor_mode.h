// What happens to tensors that autograd saves in the calling thread: LibTorch asks the default engine for hooks, and
// its engine can only give hooks of Python. This one asks the thread's mode.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

namespace c10 {
class OperatorHandle;
}

namespace ddp::recompute {

/// Makes the hooks for each tensor that autograd saves, and receives the backwards and operators that the thread calls.
class SavedTensorMode {
 public:
  virtual ~SavedTensorMode() = default;
  SavedTensorMode(const SavedTensorMode&) = delete;
  SavedTensorMode& operator=(const SavedTensorMode&) = delete;
  SavedTensorMode(SavedTensorMode&&) = delete;
  SavedTensorMode& operator=(SavedTensorMode&&) = delete;

  /// The hooks of the next saved tensor; nullptr keeps it as LibTorch does.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() = 0;
  /// Whether it also holds in a backward that the thread calls, as far as that runs in this thread.
  virtual bool holds_in_backwards() const { return true; }
  /// The thread begins a backward from `roots` to `targets` (to all leaves if `targets` is empty). May throw. Returns
  /// whether the modes outside of this one are to be told as well.
  virtual bool before_backward(const torch::autograd::edge_list& /*roots*/,
                               const torch::autograd::edge_list& /*targets*/) {
    return true;
  }
  /// The thread calls an operator that some region keeps the results of (kept_operators.h), whose arguments are on
  /// `stack`: replaces them by its results, by `call` or otherwise.
  virtual void run_operator(const c10::OperatorHandle& /*op*/, torch::jit::Stack& /*stack*/,
                            const std::function<void()>& call) {
    call();
  }
  /// The mode that holds outside of this one, or nullptr.
  SavedTensorMode* outer() const { return outer_; }

 protected:
  SavedTensorMode() = default;

 private:
  friend void begin_mode(SavedTensorMode& mode) noexcept;
  friend void end_mode(SavedTensorMode& mode) noexcept;
  SavedTensorMode* outer_ = nullptr;
};

/// Tensors are saved as LibTorch does.
class PlainMode final : public SavedTensorMode {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() override { return nullptr; }
  bool before_backward(const torch::autograd::edge_list& /*roots*/,
                       const torch::autograd::edge_list& /*targets*/) override {
    return false;
  }
};

/// The calling thread has `mode` until end_mode(), which may come in any order but in the same thread.
void begin_mode(SavedTensorMode& mode) noexcept;
void end_mode(SavedTensorMode& mode) noexcept;
/// The calling thread's mode, or nullptr.
SavedTensorMode* current_mode() noexcept;

/// While it lives, the calling thread has `mode`, which must outlive it.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorMode& mode) noexcept : mode_(mode) { begin_mode(mode); }
  ~SavedTensorScope() { end_mode(mode_); }
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorMode& mode_;
};

/// Makes LibTorch ask this thread's mode, in this process, from now on. Throws std::runtime_error where another engine
/// than LibTorch's own is installed, as in a process that hosts Python.
void install_engine();

}  // namespace ddp::recompute
