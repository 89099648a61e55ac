// Decides per thread how the tensors that autograd saves are stored. LibTorch asks the default engine for hooks, and
// its own engine supports only hooks written in Python. This engine asks the thread's mode.
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

/// Makes the hooks for each tensor that autograd saves. It is also notified of the backwards and operators that the
/// thread calls.
class SavedTensorMode {
 public:
  virtual ~SavedTensorMode() = default;
  SavedTensorMode(const SavedTensorMode&) = delete;
  SavedTensorMode& operator=(const SavedTensorMode&) = delete;
  SavedTensorMode(SavedTensorMode&&) = delete;
  SavedTensorMode& operator=(SavedTensorMode&&) = delete;

  /// Returns the hooks for the next saved tensor. With nullptr, the tensor is saved as usual.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() = 0;
  /// Whether the mode also applies to the parts of a backward called by this thread that run in this thread.
  virtual bool holds_in_backwards() const { return true; }
  /// Called when the thread begins a backward from `roots` to `targets` (to all leaves if `targets` is empty). May
  /// throw. Returns whether the outer modes must be notified as well.
  virtual bool before_backward(const torch::autograd::edge_list& /*roots*/,
                               const torch::autograd::edge_list& /*targets*/) {
    return true;
  }
  /// Called instead of an operator whose results some region stores (kept_operators.h). Replaces the arguments on
  /// `stack` by the results, by `call` or otherwise.
  virtual void run_operator(const c10::OperatorHandle& /*op*/, torch::jit::Stack& /*stack*/,
                            const std::function<void()>& call) {
    call();
  }
  /// Returns the mode that this one replaced in its thread, or nullptr.
  SavedTensorMode* outer() const { return outer_; }

 protected:
  SavedTensorMode() = default;

 private:
  friend void begin_mode(SavedTensorMode& mode) noexcept;
  friend void end_mode(SavedTensorMode& mode) noexcept;
  SavedTensorMode* outer_ = nullptr;
};

/// Saves tensors as LibTorch does by default.
class PlainMode final : public SavedTensorMode {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() override { return nullptr; }
  bool before_backward(const torch::autograd::edge_list& /*roots*/,
                       const torch::autograd::edge_list& /*targets*/) override {
    return false;
  }
};

/// Sets the mode of the calling thread until end_mode(). Modes may end in any order, but each must end in the thread in
/// which it began.
void begin_mode(SavedTensorMode& mode) noexcept;
void end_mode(SavedTensorMode& mode) noexcept;
/// Returns the mode of the calling thread, or nullptr.
SavedTensorMode* current_mode() noexcept;

/// Sets the mode of the calling thread during its lifetime. `mode` must outlive it.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorMode& mode) noexcept : mode_(mode) { begin_mode(mode); }
  ~SavedTensorScope() { end_mode(mode_); }
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorMode& mode_;
};

/// Makes LibTorch ask the modes from now on, in the whole process. Throws std::runtime_error if an engine other than
/// LibTorch's own is installed, as in a process that hosts Python.
void install_engine();

}  // namespace ddp::recompute
