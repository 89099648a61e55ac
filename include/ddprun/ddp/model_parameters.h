// The parameters and buffers of a model as DistributedDataParallel sees them, and whether they are still the same.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace ddp {

/// One parameter or buffer.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Parameters of a model in registration order, submodules after their own module's, each once, without the ignored
/// ones.
class ModelParameters {
 public:
  ModelParameters(std::shared_ptr<torch::nn::Module> module, std::vector<std::string> ignored);

  const std::vector<NamedTensor>& all() const { return all_; }
  /// Those that require gradients.
  std::vector<NamedTensor> trainable() const;
  /// Which of trainable() belong to an Embedding or EmbeddingBag with sparse gradients.
  std::vector<bool> sparse() const;
  /// The buffers as they are now, each once: modules may replace theirs.
  std::vector<NamedTensor> buffers() const;
  bool is_ignored(const std::string& name) const { return ignored_.contains(name); }

  /// Throws std::runtime_error, naming it, when a parameter was added, replaced, cast, resized, moved to another
  /// device or had its requires_grad changed since construction, or a submodule was added or replaced. `rank` begins
  /// the message. Costs some nanoseconds per parameter.
  void check_unchanged(const std::string& rank) const;

 private:
  struct Seen {
    std::string name;
    const c10::TensorImpl* identity;
    at::ScalarType dtype;
    c10::Device device;
    bool requires_grad;
    std::vector<int64_t> sizes;
  };
  struct Part {
    std::string prefix;
    std::shared_ptr<torch::nn::Module> module;
    std::vector<Seen> parameters;
    std::vector<const torch::nn::Module*> children;
  };

  void add(const std::string& prefix, const std::shared_ptr<torch::nn::Module>& module);
  static bool is_same(const Seen& seen, const at::Tensor& now);
  bool is_unchanged(const Part& part) const;
  [[noreturn]] static void explain(const Part& part, const std::string& rank);

  std::unordered_set<std::string> ignored_;
  std::unordered_set<const c10::TensorImpl*> known_;  // those of all_
  std::vector<Part> parts_;                           // every module, pre-order
  std::vector<NamedTensor> all_;
  std::vector<bool> sparse_;  // like all_
};

}  // namespace ddp
