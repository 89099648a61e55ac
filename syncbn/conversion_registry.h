// Internal: which batch norms of the process are synchronised, and the dispatcher's kernel that looks it up. LibTorch's
// typed batch norms have no virtual forward, so their common way into the dispatcher is the only place to meet them
// all.
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

/// A converted torch::nn::BatchNorm1d, 2d or 3d. The tensor that identifies it is its running_mean, or its weight when
/// it has none; to(), loading and zero_grad() leave a tensor's identity alone.
struct ConvertedLayer {
  std::weak_ptr<torch::nn::Module> module{};
  const at::Tensor* member = nullptr;            ///< the identifying member of the module; valid while it lives
  c10::weak_intrusive_ptr<c10::TensorImpl> key;  ///< the member at conversion; weak, but keeps the address from reuse
  std::shared_ptr<SyncLayer> layer{};
  std::weak_ptr<const ConvertedLayer> neighbour{};  ///< the next one of the same model, in a ring
};

class ConversionRegistry {
 public:
  /// The one of this process, as there is one dispatcher. Never destroyed: models may outlive static objects.
  static ConversionRegistry& instance();

  /// Makes the dispatcher's kernel look them up from now on. Entries vanish with their tensors.
  void add(const std::vector<std::shared_ptr<ConvertedLayer>>& layers);
  /// Whether `key` was registered.
  bool remove(const at::Tensor& key);
  std::shared_ptr<const ConvertedLayer> find(const at::Tensor& key) const;
  /// Drops what is dead; takes the kernel off the dispatcher when nothing is left.
  void purge();

 private:
  ConversionRegistry() = default;
  void drop_dead_and_unregister();

  mutable std::shared_mutex mutex_;
  std::unordered_map<const c10::TensorImpl*, std::shared_ptr<const ConvertedLayer>> layers_;
  std::vector<torch::Library> kernels_;
};

}  // namespace ddp::detail
