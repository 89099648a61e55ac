#include "optim/own_optimizer.h"

#include <ATen/ops/_foreach_copy.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include <ddprun/detail/comm/device_copy.h>

#include "base/rank_prefix.h"
#include "optim/elementwise/block_elementwise.h"
#include "optim/elementwise/tensor_elementwise.h"

namespace ddp::optim {
namespace {

constexpr const char* kNameKey = "optimizer_name";

// Writes options to an archive in the format of LibTorch's optimizers; tuples are written as lists.
struct Writer {
  torch::serialize::OutputArchive& archive;
  const char* name;

  void operator()(const double* value) const { archive.write(name, c10::IValue(*value)); }
  void operator()(const bool* value) const { archive.write(name, c10::IValue(*value)); }
  void operator()(const int64_t* value) const { archive.write(name, c10::IValue(*value)); }
  void operator()(const std::optional<std::string>* value) const {
    archive.write(name, *value ? c10::IValue(**value) : c10::IValue());
  }
  template <typename... Numbers>
  void operator()(const std::tuple<Numbers...>* value) const {
    const auto number = [](const auto& each) { return c10::IValue(each); };
    archive.write(name, std::apply(
                            [&](const auto&... each) {
                              return c10::IValue(c10::ivalue::Tuple::create(std::vector<c10::IValue>{number(each)...}));
                            },
                            *value));
  }
};

struct Reader {
  const c10::IValue& stored;

  void operator()(double* value) const { *value = stored.toDouble(); }
  void operator()(bool* value) const { *value = stored.toBool(); }
  void operator()(int64_t* value) const { *value = stored.toInt(); }
  void operator()(std::optional<std::string>* value) const { *value = stored.toOptional<std::string>(); }
  template <typename... Numbers>
  void operator()(std::tuple<Numbers...>* value) const {
    const auto& elements = stored.toTupleRef().elements();
    if (elements.size() != sizeof...(Numbers))
      throw std::invalid_argument("an option has " + std::to_string(elements.size()) + " values, expected " +
                                  std::to_string(sizeof...(Numbers)));
    auto next = elements.begin();
    std::apply([&](Numbers&... each) { ((each = (next++)->template to<Numbers>()), ...); }, *value);
  }
};

double largest_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace

std::vector<std::string> option_names(std::string_view members) {
  std::vector<std::string> names;
  while (!members.empty()) {
    const auto end = std::min(members.find(','), members.size());
    names.emplace_back(members.substr(0, end - 1));  // without the underscore
    members.remove_prefix(std::min(end + 2, members.size()));
  }
  return names;
}

void check_usual(ListedOptions& options, bool may_ascend) {
  for (const auto& [key, value] : options.list()) {
    const std::string_view name = key;
    if (const auto* const* betas = std::get_if<std::tuple<double, double>*>(&value); betas && name == "betas") {
      require_betas(**betas);
    } else if (const auto* const* number = std::get_if<double*>(&value)) {
      const bool is_free = name == "t0" || (name == "lr" && may_ascend);
      const auto what = name == "lr" ? "learning rate" : name == "eps" ? "epsilon value" : std::string(name) + " value";
      require_value(is_free || **number >= 0, ("Invalid " + what).c_str(), **number);
    }
  }
}

void check_range(ListedOptions& options, const std::vector<at::Tensor>& parameters) {
  const auto* rate = dynamic_cast<const RateTensor*>(&options);
  for (const auto& [name, value] : options.list()) {
    const auto* const* number = std::get_if<double*>(&value);
    // t0 is a number of steps, which is never multiplied with a parameter.
    const bool is_of_steps = std::string_view(name) == "t0";
    if (number == nullptr || is_of_steps) continue;
    const bool is_tensor = rate && rate->lr_tensor().defined() && std::string_view(name) == "lr";
    if (is_tensor && !rate->lr_tensor().is_cpu()) continue;  // reading it would make the host wait
    const double magnitude = std::abs(is_tensor ? rate->lr_tensor().item<double>() : **number);
    if (magnitude <= largest_of(at::kHalf)) continue;
    for (const at::Tensor& parameter : parameters) {
      if (magnitude <= largest_of(parameter.scalar_type())) continue;
      throw std::invalid_argument(rank_prefix() + options.optimizer_name() + ": " + name + " is " +
                                  number_text(**number) + ", more than a parameter of " +
                                  c10::toString(parameter.scalar_type()) + " can hold");
    }
  }
}

void refuse_on_host(const torch::optim::OptimizerParamGroup& group, const std::string& type) {
  for (const at::Tensor& parameter : group.params()) {
    if (!parameter.grad().defined() || !parameter.is_cpu()) continue;
    throw std::invalid_argument(rank_prefix() + type +
                                ": If capturable=True, params and state_steps must be on supported devices: ['cuda'], "
                                "but a parameter is on the CPU; set capturable(false)");
  }
}

UpdateScalar rate_of(const RateTensor& options, double number, const c10::Device& device) {
  return options.lr_tensor().defined() ? UpdateScalar(to_device(options.lr_tensor(), device)) : UpdateScalar(number);
}

template <>
void Scalars<UpdateScalar>::replace(size_t field, const UpdateScalar& values) const {
  at::_foreach_copy_(batch_.state[field], values.each);
}

// Archives of LibTorch and of earlier versions lack these options. They are false then.
bool is_new_flag(std::string_view name) {
  return name == "maximize" || name == "capturable";
}

void write_options(torch::serialize::OutputArchive& archive, ListedOptions& options) {
  archive.write(kNameKey, c10::IValue(std::string(options.optimizer_name())));
  for (const auto& [name, value] : options.list()) std::visit(Writer{archive, name}, value);
}

void read_options(torch::serialize::InputArchive& archive, ListedOptions& options) {
  const std::string name = options.optimizer_name();
  c10::IValue stored;
  const bool is_named = archive.try_read(kNameKey, stored);
  if (is_named && stored.toStringRef() != name) {
    throw std::invalid_argument("it holds the state of " + stored.toStringRef());
  }
  for (const auto& [key, value] : options.list()) {
    if (archive.try_read(key, stored)) {
      std::visit(Reader{stored}, value);
    } else if (!is_new_flag(key)) {
      throw std::invalid_argument("it holds no state of " + name + ": its options lack " + key);
    }
  }
}

Operand decayed_gradient(Elementwise& elementwise, double weight_decay, bool maximize) {
  Operand gradient = kGradient;
  if (maximize) {
    gradient = elementwise.temporary();
    elementwise.neg(gradient, kGradient);
  }
  if (weight_decay != 0) {
    const Operand decayed = maximize ? gradient : elementwise.temporary();
    elementwise.add(decayed, gradient, kParameter, weight_decay);
    gradient = decayed;
  }
  return gradient;
}

void update_operands(const std::vector<at::Tensor>& operands, const std::function<void(Elementwise&)>& update) {
  if (can_update_by_blocks(operands)) return update_by_blocks(operands, update);
  std::vector<std::vector<at::Tensor>> lists;
  for (const at::Tensor& operand : operands) lists.push_back({operand});
  TensorElementwise elementwise(std::move(lists));
  update(elementwise);
}

void ElementwiseStep::run(FusedBatch& batch) const {
  if (batch.device.is_cpu()) {
    run_on_host(batch);
  } else {
    run_on_device(batch);
  }
}

void ElementwiseStep::run_on_host(FusedBatch& batch) const {
  for (size_t j = 0; j < batch.parameters.size(); ++j) {
    std::vector<at::Tensor> operands = {batch.parameters[j], batch.gradients[j]};
    for (size_t i = 0; i < fields.size(); ++i) {
      operands.push_back(fields[i].is_number() ? at::Tensor() : batch.state[i][j]);
    }
    if (results) operands.push_back((*results)[j]);
    const Numbers values = numbers(j);
    update_operands(operands, [&](Elementwise& elementwise) { update(elementwise, values); });
  }
}

void ElementwiseStep::run_on_device(FusedBatch& batch) const {
  const Numbers values = numbers(std::nullopt);
  std::vector<std::vector<at::Tensor>> operands = {batch.parameters, batch.gradients};
  for (size_t i = 0; i < fields.size(); ++i) operands.push_back(batch.state[i]);
  if (results) operands.push_back(*results);
  TensorElementwise elementwise(std::move(operands));
  update(elementwise, values);
}

}  // namespace ddp::optim
