// What happens to tensors that autograd saves in the calling thread: LibTorch asks the default engine for hooks, and
// its engine can only give hooks of Python. This one asks the thread's mode.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace ddp::recompute {

/// Makes the hooks for each tensor that autograd saves.
class SavedTensorMode {
 public:
  virtual ~SavedTensorMode() = default;
  SavedTensorMode(const SavedTensorMode&) = delete;
  SavedTensorMode& operator=(const SavedTensorMode&) = delete;
  SavedTensorMode(SavedTensorMode&&) = delete;
  SavedTensorMode& operator=(SavedTensorMode&&) = delete;

  /// The hooks of the next saved tensor; nullptr keeps it as LibTorch does.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> next_hooks() = 0;

 protected:
  SavedTensorMode() = default;
};

/// While it lives, the calling thread has `mode`, which must outlive it; nullptr: tensors are saved as LibTorch does.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorMode* mode) noexcept;
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  SavedTensorMode* previous_;
};

/// The calling thread's mode, or nullptr.
SavedTensorMode* current_mode() noexcept;
/// Sets the calling thread's mode and returns the previous one.
SavedTensorMode* exchange_mode(SavedTensorMode* mode) noexcept;

/// Makes LibTorch ask this thread's mode, in this process, from now on. Throws std::runtime_error where another engine
/// than LibTorch's own is installed, as in a process that hosts Python.
void install_engine();

}  // namespace ddp::recompute
