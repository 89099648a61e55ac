// Internal: what c10d::Reducer's constructor takes in addition: batched_grad_copy since LibTorch 2.12,
// lazy_bucket_allocation since 2.15.
#pragma once

#include <torch/headeronly/version.h>

#include <memory>
#include <string>
#include <utility>

namespace ddp::versions {

struct ReducerOptions {
  bool batched_grad_copy = false;
  bool lazy_bucket_allocation = false;
};

/// Why this LibTorch cannot do what `options` ask for, or "".
inline std::string unsupported(const ReducerOptions& options) {
  const auto needs = [](const char* name, int minor) {
    return std::string(name) + " needs LibTorch 2." + std::to_string(minor) + " or newer, this is " + TORCH_VERSION;
  };
  if (options.batched_grad_copy && TORCH_VERSION_MINOR < 12) return needs("batched_grad_copy", 12);
  if (options.lazy_bucket_allocation && TORCH_VERSION_MINOR < 15) return needs("lazy_bucket_allocation", 15);
  return "";
}

/// `Engine` is c10d::Reducer or derived from it, `arguments` are those that all versions take.
template <typename Engine, typename... Arguments>
std::shared_ptr<Engine> make_reducer([[maybe_unused]] const ReducerOptions& options, Arguments&&... arguments) {
#if TORCH_VERSION_MINOR < 12
  return std::make_shared<Engine>(std::forward<Arguments>(arguments)...);
#elif TORCH_VERSION_MINOR < 15
  return std::make_shared<Engine>(std::forward<Arguments>(arguments)..., options.batched_grad_copy);
#else
  return std::make_shared<Engine>(std::forward<Arguments>(arguments)..., options.batched_grad_copy,
                                  options.lazy_bucket_allocation);
#endif
}

}  // namespace ddp::versions
