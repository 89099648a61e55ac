#include "ddprun/optim/averaged_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/serialize/input-archive.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rank_prefix.h"

namespace ddp::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

// clone() creates each layer with new random initial values. This must not change the random numbers that the program
// draws later.
class GeneratorStateGuard {
 public:
  GeneratorStateGuard() : state_(read()) {}
  ~GeneratorStateGuard() {
    at::Generator drawn = generator();
    const std::lock_guard lock(drawn.mutex());
    drawn.set_state(state_);
  }
  GeneratorStateGuard(const GeneratorStateGuard&) = delete;
  GeneratorStateGuard& operator=(const GeneratorStateGuard&) = delete;

 private:
  static at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }
  static at::Tensor read() {
    at::Generator drawn = generator();
    const std::lock_guard lock(drawn.mutex());
    return drawn.get_state();
  }

  at::Tensor state_;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;          // detached
  const void* identity = {};  // equal if one tensor is registered under two names
};

std::vector<NamedTensor> defined(const auto& items) {
  std::vector<NamedTensor> found;
  for (const auto& item : items) {
    const at::Tensor& tensor = item.value();
    if (tensor.defined()) found.push_back({item.key(), tensor.detach(), tensor.unsafeGetTensorImpl()});
  }
  return found;
}

// Pairs the tensors of the copy with those of the model by position, since a wrapper changes their names. Tied tensors
// appear once, as in Python's parameters().
std::pair<Tensors, Tensors> matched(const auto& of_copy, const auto& of_model, const char* kind) {
  const auto copies = defined(of_copy), currents = defined(of_model);
  if (copies.size() != currents.size()) {
    throw std::invalid_argument(rank_prefix() + "AveragedModel: expected the model that was copied, with " +
                                std::to_string(copies.size()) + " " + kind + ", got one with " +
                                std::to_string(currents.size()));
  }
  Tensors averaged, current;
  std::set<const void*> seen;
  for (size_t i = 0; i < copies.size(); ++i) {
    const at::Tensor& copy = copies[i].tensor;
    if (copy.sizes() != currents[i].tensor.sizes()) {
      throw std::invalid_argument(rank_prefix() + "AveragedModel: expected the model that was copied; its '" +
                                  currents[i].name + "' has a different shape than '" + copies[i].name + "'");
    }
    if (!seen.insert(copies[i].identity).second) continue;
    averaged.push_back(copy);
    current.push_back(currents[i].tensor.to(copy.device()));
  }
  return {averaged, current};
}

void copy_all(const Tensors& to, const Tensors& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

void check_decay(double decay) {
  if (decay >= 0 && decay <= 1) return;
  throw std::invalid_argument(rank_prefix() + "Invalid decay value " + std::to_string(decay) +
                              " provided. Please provide a value in [0,1] range.");
}

// LibTorch's lerp supports floating-point and complex tensors only.
bool can_lerp(const std::vector<at::Tensor>& tensors) {
  return tensors.front().is_floating_point() || tensors.front().is_complex();
}

}  // namespace

std::shared_ptr<torch::nn::Module> AveragedModelBase::copy_of(const torch::nn::Module* model,
                                                              const AveragedModelOptions& options) {
  if (model == nullptr) throw std::invalid_argument("AveragedModel got an empty module holder");
  const GeneratorStateGuard kept;
  if (options.make_copy) {
    auto copy = options.make_copy();
    if (!copy) throw std::invalid_argument("AveragedModel: make_copy returned nothing");
    if (copy.get() == model) throw std::invalid_argument("AveragedModel: make_copy returned the model itself");
    return copy;
  }
  try {
    return model->clone();
  } catch (const std::logic_error&) {
    throw;  // the error of a wrapper, which says what can be cloned
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw std::invalid_argument("AveragedModel: the model cannot be copied: " + what.substr(0, what.find('\n')) +
                                ". Derive it and its children from torch::nn::Cloneable, or give "
                                "AveragedModelOptions::make_copy.");
  }
}

void AveragedModelBase::refuse_other_class() {
  throw std::invalid_argument("AveragedModel: make_copy returned a module of another class");
}

AveragedModelBase::AveragedModelBase(std::shared_ptr<torch::nn::Module> copy, const torch::nn::Module& model,
                                     AveragedModelOptions options)
    : torch::nn::Module("AveragedModel"), copy_(std::move(copy)), options_(std::move(options)) {
  if (options_.avg_fn && options_.multi_avg_fn) {
    throw std::invalid_argument("AveragedModel: only one of avg_fn and multi_avg_fn should be provided");
  }
  if (!options_.avg_fn && !options_.multi_avg_fn) options_.avg_fn = get_swa_avg_fn();
  const at::NoGradGuard no_grad;
  matched(copy_->named_parameters(), model.named_parameters(), "parameters");
  matched(copy_->named_buffers(), model.named_buffers(), "buffers");
  const auto parameters = model.parameters();
  auto copies = copy_->parameters();
  for (size_t i = 0; i < std::min(parameters.size(), copies.size()); ++i) {
    // A copy made by clone() has lost the dtype, the device and the frozen state of layers; a copy made by make_copy
    // never had them.
    copies[i].set_data(parameters[i].detach().clone());
    copies[i].set_requires_grad(parameters[i].requires_grad());
  }
  const auto buffers = model.buffers();
  auto buffer_copies = copy_->buffers();
  for (size_t i = 0; i < std::min(buffers.size(), buffer_copies.size()); ++i) {
    if (buffers[i].defined() && buffer_copies[i].defined()) buffer_copies[i].set_data(buffers[i].detach().clone());
  }
  if (options_.device) copy_->to(*options_.device);
  register_module("module", copy_);
  n_averaged_ = register_buffer("n_averaged", at::scalar_tensor(0, at::kLong));
  copy_->train(model.is_training());
}

int64_t AveragedModelBase::n_averaged() const {
  return n_averaged_.item<int64_t>();
}

void AveragedModelBase::update_parameters(AnyModuleRef model) {
  const at::NoGradGuard no_grad;
  const auto& source = model.get();
  auto [averaged, current] = matched(copy_->named_parameters(), source.named_parameters(), "parameters");
  const auto [averaged_buffers, buffers] = matched(copy_->named_buffers(), source.named_buffers(), "buffers");
  if (options_.use_buffers) {
    averaged.insert(averaged.end(), averaged_buffers.begin(), averaged_buffers.end());
    current.insert(current.end(), buffers.begin(), buffers.end());
  }
  const int64_t count = n_averaged();
  if (count == 0) {
    copy_all(averaged, current);
  } else {
    average(std::move(averaged), std::move(current), count);
  }
  if (!options_.use_buffers) copy_all(averaged_buffers, buffers);
  n_averaged_.add_(1);
}

void AveragedModelBase::average(Tensors averaged, Tensors current, int64_t count) const {
  if (options_.avg_fn) {
    for (size_t i = 0; i < averaged.size(); ++i) {
      averaged[i].copy_(options_.avg_fn(averaged[i], current[i], count));
    }
    return;
  }
  std::map<std::pair<std::string, at::ScalarType>, std::pair<Tensors, Tensors>> groups;
  for (size_t i = 0; i < averaged.size(); ++i) {
    auto& group = groups[{averaged[i].device().str(), averaged[i].scalar_type()}];
    group.first.push_back(averaged[i]);
    group.second.push_back(current[i]);
  }
  for (const auto& [kind, group] : groups) options_.multi_avg_fn(group.first, group.second, count);
}

void AveragedModelBase::load(torch::serialize::InputArchive& archive) {
  const at::NoGradGuard no_grad;
  Tensors tensors = parameters();
  for (const auto& buffer : buffers()) {
    if (buffer.defined()) tensors.push_back(buffer);
  }
  Tensors before;
  for (const auto& tensor : tensors) before.push_back(tensor.detach());
  try {
    torch::nn::Module::load(archive);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].sizes() == before[i].sizes() && tensors[i].scalar_type() == before[i].scalar_type()) continue;
      throw std::invalid_argument(
          rank_prefix() + "AveragedModel: the archive is of another model: expected a tensor of " +
          std::to_string(before[i].numel()) + " elements, got one of " + std::to_string(tensors[i].numel()));
    }
  } catch (...) {
    // LibTorch allocates new memory for each tensor while it reads; the earlier memory still holds the earlier values.
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].set_data(before[i]);
    throw;
  }
}

AverageFunction get_ema_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const at::Tensor& averaged, const at::Tensor& current, int64_t /*n_averaged*/) {
    return decay * averaged + (1 - decay) * current;
  };
}

MultiAverageFunction get_ema_multi_avg_fn(double decay) {
  check_decay(decay);
  return [decay](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, int64_t /*n*/) {
    if (can_lerp(averaged)) {
      at::_foreach_lerp_(averaged, current, 1 - decay);
      return;
    }
    for (size_t i = 0; i < averaged.size(); ++i) averaged[i].copy_(averaged[i] * decay + current[i] * (1 - decay));
  };
}

AverageFunction get_swa_avg_fn() {
  return [](const at::Tensor& averaged, const at::Tensor& current, int64_t n_averaged) {
    return averaged + (current - averaged) / (n_averaged + 1);
  };
}

MultiAverageFunction get_swa_multi_avg_fn() {
  return [](const std::vector<at::Tensor>& averaged, const std::vector<at::Tensor>& current, int64_t n_averaged) {
    if (can_lerp(averaged)) {
      // Python divides tensors here, so its weight is rounded to float32 for every dtype.
      at::_foreach_lerp_(averaged, current, static_cast<double>(1.0F / static_cast<float>(n_averaged + 1)));
      return;
    }
    for (size_t i = 0; i < averaged.size(); ++i) {
      averaged[i].copy_(averaged[i] + (current[i] - averaged[i]) / (n_averaged + 1));
    }
  };
}

}  // namespace ddp::optim
