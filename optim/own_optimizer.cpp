#include "optim/own_optimizer.h"

#include <torch/serialize/archive.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "base/rank_prefix.h"
#include "optim/elementwise/block_elementwise.h"
#include "optim/elementwise/tensor_elementwise.h"

namespace ddp::optim {
namespace {

constexpr const char* kNameKey = "optimizer_name";

// Archives hold options as LibTorch's optimizers write theirs, and tuples as lists.
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
    if (elements.size() != sizeof...(Numbers)) throw std::invalid_argument("an option has another number of values");
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

void check_range(ListedOptions& options, const std::vector<at::Tensor>& parameters) {
  for (const auto& [name, value] : options.list()) {
    const auto* const* number = std::get_if<double*>(&value);
    const bool is_of_steps = std::string_view(name) == "t0";  // never multiplied with a parameter
    if (number == nullptr || is_of_steps || std::abs(**number) <= largest_of(at::kHalf)) continue;
    for (const at::Tensor& parameter : parameters) {
      if (std::abs(**number) <= largest_of(parameter.scalar_type())) continue;
      throw std::invalid_argument(rank_prefix() + options.optimizer_name() + ": " + name + " is " +
                                  number_text(**number) + ", more than a parameter of " +
                                  c10::toString(parameter.scalar_type()) + " can hold");
    }
  }
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
    } else if (is_named || std::string_view(key) != "maximize") {  // LibTorch's archives have neither
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

void ElementwiseStep::run(FusedBatch& batch) const {
  if (batch.device.is_cpu()) {
    run_on_host(batch);
  } else {
    run_on_device(batch);
  }
}

void ElementwiseStep::run_on_host(FusedBatch& batch) const {
  std::array<at::Tensor, kMostStateFields> scalars;
  for (size_t j = 0; j < batch.parameters.size(); ++j) {
    std::vector<at::Tensor> operands = {batch.parameters[j], batch.gradients[j]};
    for (size_t i = 0; i < fields.size(); ++i) {
      const bool is_number = fields[i].is_number();
      scalars[i] = is_number ? batch.state[i][j] : at::Tensor();
      operands.push_back(is_number ? at::Tensor() : batch.state[i][j]);
    }
    if (results) operands.push_back((*results)[j]);
    const auto coefficients = on_host(Scalars<double>(scalars));
    const Numbers numbers = {coefficients[0], coefficients[1], coefficients[2], coefficients[3]};
    if (can_update_by_blocks(operands)) {
      update_by_blocks(operands, [&](Elementwise& elementwise) { update(elementwise, numbers); });
      continue;
    }
    std::vector<std::vector<at::Tensor>> lists;
    for (const at::Tensor& operand : operands) lists.push_back({operand});
    TensorElementwise elementwise(std::move(lists));
    update(elementwise, numbers);
  }
}

void ElementwiseStep::run_on_device(FusedBatch& batch) const {
  Numbers numbers = {0, 0, 0, 0};
  for (size_t j = 0; j < batch.parameters.size(); ++j) {
    std::array<at::Tensor, kMostStateFields> scalars;
    for (size_t i = 0; i < fields.size(); ++i) scalars[i] = batch.state[i][j];
    const auto coefficients = on_device(Scalars<at::Tensor>(scalars));
    for (size_t k = 0; k < coefficients.size(); ++k) {
      if (coefficients[k].defined()) numbers[k].tensors.push_back(coefficients[k]);
    }
  }
  std::vector<std::vector<at::Tensor>> operands = {batch.parameters, batch.gradients};
  for (size_t i = 0; i < fields.size(); ++i) operands.push_back(batch.state[i]);
  if (results) operands.push_back(*results);
  TensorElementwise elementwise(std::move(operands));
  update(elementwise, numbers);
}

}  // namespace ddp::optim
