// Copies of a model on several devices that stay between iterations, and the way of their gradients back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Keeps one copy of `model` per further device. On the model's own device (the CPU) copies share the parameters'
/// memory; elsewhere values are copied in one piece per dtype, when they have changed. The copies' parameters are
/// outputs of an autograd node whose backward adds all their gradients, moved in one piece per device and dtype, to the
/// model's: they arrive there together with those of the model's own forward, once per backward.
class Replicas {
 public:
  using MakeReplica = std::function<std::shared_ptr<torch::nn::Module>(c10::Device)>;

  /// `make_replica` returns a module of the same class and structure on the device; its values do not matter.
  Replicas(std::shared_ptr<torch::nn::Module> model, std::vector<c10::Device> devices, MakeReplica make_replica);
  ~Replicas();

  /// Brings the first `count` - 1 copies up to date: parameter values, buffers, train/eval, requires_grad. Makes them
  /// anew when the model's parameters or buffers are others than before. To be called before each forward.
  void refresh(size_t count);

  /// The model itself, then its copies.
  const std::vector<std::shared_ptr<torch::nn::Module>>& modules() const { return modules_; }

  /// Throws std::runtime_error when the model is not wholly on the first device.
  void check_devices() const;

 private:
  struct Values;

  void make(size_t count);
  bool same_structure(size_t replica) const;
  void connect(size_t count, bool with_gradients);

  const std::vector<c10::Device> devices_;
  const MakeReplica make_replica_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;  // the model and its copies
  std::vector<std::unique_ptr<Values>> values_;              // of the same modules
};

}  // namespace ddp
