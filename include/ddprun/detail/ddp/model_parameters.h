// The parameters and buffers of a model as DistributedDataParallel sees them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_set>
#include <vector>

#include <ddprun/comm/ddp_options.h>

namespace ddp {

/// What DistributedDataParallel needs to know of a model, whatever holds it.
class ModelParameters {
 public:
  virtual ~ModelParameters() = default;

  /// The parameters in the model's order, each once, without ignored and delayed ones.
  const std::vector<NamedTensor>& all() const { return all_; }
  /// Those that require gradients.
  std::vector<NamedTensor> trainable() const;
  /// Which of trainable() get sparse gradients.
  std::vector<bool> sparse() const;
  /// Named in DdpOptions::ignored or DdpOptions::delayed.
  bool is_ignored(const std::string& name) const { return ignored_.contains(name); }

  /// Of the model, for logging.
  virtual std::string model_name() const = 0;
  /// The parameters as they are now, ignored ones and those with several names included.
  virtual std::vector<NamedTensor> with_ignored() const = 0;
  /// The buffers as they are now, each once, without the ignored ones: a model may replace its buffers.
  virtual std::vector<NamedTensor> buffers() const = 0;
  /// Throws std::runtime_error, naming it, when a parameter was added, replaced, cast, resized or moved to another
  /// device since construction, or was frozen then and is not any more. `rank` begins the message. Costs some
  /// nanoseconds per parameter.
  virtual void check_unchanged(const std::string& rank) const = 0;

 protected:
  explicit ModelParameters(const DdpOptions& options);
  /// Appends a parameter to all(), unless it is ignored or there already.
  void add_parameter(const std::string& name, const at::Tensor& tensor, bool has_sparse_gradients);

 private:
  std::unordered_set<std::string> ignored_;
  std::unordered_set<const c10::TensorImpl*> known_;  // those of all_
  std::vector<NamedTensor> all_;
  std::vector<bool> sparse_;  // like all_
};

}  // namespace ddp
