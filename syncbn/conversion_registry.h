// Internal: the registry of the synchronised batch norms of the process, and the dispatcher kernel that uses it.
// LibTorch's typed batch norms have no virtual forward, so the dispatcher is the only place through which all their
// calls pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <atomic>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "syncbn/sync_layer.h"

namespace ddp::detail {

/// A converted torch::nn::BatchNorm1d, 2d or 3d. It is identified by its running_mean, or by its weight if it has no
/// running_mean. to(), loading and zero_grad() do not replace these tensors.
struct ConvertedLayer {
  std::weak_ptr<torch::nn::Module> module{};
  const at::Tensor* member = nullptr;  ///< the identifying member of the module; valid while the module exists
  /// The tensor in `member` at conversion; the weak pointer keeps its address from being reused.
  c10::weak_intrusive_ptr<c10::TensorImpl> key;
  std::shared_ptr<SyncLayer> layer{};
  std::weak_ptr<const ConvertedLayer> neighbour{};  ///< the next layer of the same model; the layers form a ring
};

class ConversionRegistry {
 public:
  /// The only instance of the process, because there is one dispatcher. It is never destroyed, because models may
  /// outlive static objects.
  static ConversionRegistry& instance();

  /// Adds layers, which the dispatcher kernel finds from now on. An entry is removed when its tensor is destroyed.
  void add(const std::vector<std::shared_ptr<ConvertedLayer>>& layers);
  /// Returns whether `key` was registered.
  bool remove(const at::Tensor& key);
  std::shared_ptr<const ConvertedLayer> find(const at::Tensor& key) const;
  /// Removes the entries of destroyed tensors, and unregisters the kernel if no entry is left.
  void purge();

 private:
  ConversionRegistry() = default;
  void drop_dead_and_unregister();

  mutable std::shared_mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<const ConvertedLayer>> layers_;
  std::vector<torch::Library> kernels_;
};

}  // namespace ddp::detail
