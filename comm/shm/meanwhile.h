// Internal: what a caller does while the other ranks come. No LibTorch.
#pragma once

#include <utility>

namespace ddp::shm {

/// Refers to a function that must not throw, and calls it at most once.
class Meanwhile {
 public:
  Meanwhile() = default;
  template <typename Function>
  explicit Meanwhile(const Function& function)
      : context_(&function), call_([](const void* context) noexcept { (*static_cast<const Function*>(context))(); }) {}

  void operator()() {
    if (auto* const call = std::exchange(call_, nullptr)) call(context_);
  }

 private:
  const void* context_ = nullptr;
  void (*call_)(const void*) noexcept = nullptr;
};

}  // namespace ddp::shm
