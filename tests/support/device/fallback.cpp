// Operators that the device has no kernel of its own for: the CPU's, run by the device's thread.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/support/device/devices.h"
#include "tests/support/device/generator.h"
#include "tests/support/device/kernel_thread.h"
#include "tests/support/device/launch.h"
#include "tests/support/device/operators.h"
#include "tests/support/device/rehearsal.h"

namespace ddp::test::device {
namespace {

using Values = std::vector<c10::IValue>;

// Whose results have a shape that depends on values: a GPU's host waits for them as well.
bool is_shaped_by_values(const std::string& name) {
  static const std::set<std::string> names{"aten::nonzero",
                                           "aten::_unique2",
                                           "aten::unique_dim",
                                           "aten::masked_select",
                                           "aten::unique_consecutive",
                                           "aten::bincount",
                                           "aten::repeat_interleave",
                                           "aten::_unique",
                                           "aten::unique_dim_consecutive"};
  return names.contains(name);
}

// Whose kernels read the scalars that they are given through pointers: those of the host are no memory of a GPU's.
bool reads_scalars_of_device(const std::string& name) {
  return name.starts_with("aten::_fused_") || name.starts_with("aten::_amp_");
}

// A mask among the indices is turned into numbers first, of which the host has to know how many there are.
bool is_indexed_by_mask(const std::string& name, const Values& arguments) {
  if (name != "aten::_index_put_impl_") return false;
  const auto is_mask = [](const std::optional<at::Tensor>& index) {
    return index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  };
  return std::ranges::any_of(arguments.at(1).toOptionalTensorVector(), is_mask);
}

// Not all schemas say what is written.
bool is_written(const c10::FunctionSchema& schema, size_t index) {
  const auto& argument = schema.arguments()[index];
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  return argument.name().starts_with("running_") && schema.name().find("batch_norm") != std::string::npos &&
         schema.name().find("backward") == std::string::npos;
}

// One call, in the making.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), schema_(op.schema()), stack_(stack) {
    const size_t count = schema_.arguments().size();
    given_.assign(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    stack->resize(stack->size() - count);
    find_device();
    for (size_t i = 0; i < count; ++i) seen_.push_back(as_seen(i));
  }

  void run() {
    const c10::DeviceGuard guard(device_);
    if (returns_numbers() || is_shaped_by_values(name())) return run_now();
    if (is_indexed_by_mask(name(), given_) && !is_masked_fill()) wait_for(current_stream(device_.index()), name());
    if (returns_what_it_wrote()) return write();
    make();
  }

 private:
  std::string name() const { return schema_.name(); }

  void find_device() {
    std::vector<at::Tensor> tensors;
    const auto add = [&](const at::Tensor& tensor) { tensors.push_back(tensor); };
    std::optional<c10::Device> named;
    for (const c10::IValue& value : given_) {
      if (value.isTensor()) add(value.toTensor());
      if (value.isTensorList()) std::ranges::for_each(value.toTensorVector(), add);
      if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) add(tensor.value_or(at::Tensor()));
      }
      if (value.isDevice() && is_ours(value.toDevice())) named = value.toDevice();
    }
    const bool has_own = std::ranges::any_of(
        tensors, [](const at::Tensor& tensor) { return tensor.defined() && is_ours(tensor.device()); });
    device_ = has_own || !named ? one_device(tensors, name()) : *named;
    if (!device_.has_index()) device_ = current_device();
  }

  at::Tensor use(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (is_ours(tensor.device())) {
      uses_.push_back({.tensor = tensor, .is_written = written});
      return for_kernel(tensor);
    }
    const bool may_be_of_host =
        (tensor.dim() == 0 && !reads_scalars_of_device(name())) || name().find("index") != std::string::npos;
    if (!may_be_of_host) {
      devices().ledger.wrong_device(name() + " got a tensor of the CPU beside those of " + device_.str());
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", device_,
                  " and cpu! (in ", name(), ")");
    }
    if (tensor.dim() != 0) devices().ledger.count([](Counts& counts) { ++counts.to_device, ++counts.pageable; });
    at::Tensor copy = tensor.detach().clone();  // a kernel's arguments are those of its launch
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    return copy;
  }

  c10::IValue as_seen(size_t index) {
    const c10::IValue& value = given_[index];
    const bool written = is_written(schema_, index);
    if (value.isTensor()) return use(value.toTensor(), written);
    if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(use(tensor, written));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional(use(*tensor, written)) : std::nullopt);
      }
      return list;
    }
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (schema_.arguments()[index].name() == "generator") {
      return for_kernel(value.isGenerator() ? value.toGenerator() : default_generator(device_.index()));
    }
    if (schema_.arguments()[index].name() == "pin_memory") return c10::IValue();
    return value;
  }

  bool returns_numbers() const {
    return std::ranges::any_of(schema_.returns(), [](const c10::Argument& result) {
      const auto kind = result.type()->kind();
      return kind != c10::TensorType::Kind && kind != c10::ListType::Kind && kind != c10::OptionalType::Kind;
    });
  }
  bool returns_what_it_wrote() const {
    return std::ranges::all_of(schema_.returns(), [](const c10::Argument& result) {
      return result.alias_info() != nullptr && result.alias_info()->isWrite();
    });
  }

  // LibTorch puts one number of the host's at a mask without counting its places.
  bool is_masked_fill() const {
    const at::Tensor& values = given_.at(2).toTensor();
    return values.numel() == 1 && !is_ours(values.device()) && given_.at(1).toOptionalTensorVector().size() == 1;
  }

  void queue(std::function<void(torch::jit::Stack&)> take_results) {
    launch(current_stream(device_.index()), uses_, name(),
           [op = op_, seen = seen_, take_results = std::move(take_results)]() mutable {
             torch::jit::Stack stack(seen.begin(), seen.end());
             try {
               op.callBoxed(stack);
             } catch (const c10::Error& error) {
               throw std::runtime_error("kernel " + op.schema().name() + ": " + error.what_without_backtrace());
             }
             take_results(stack);
           });
  }

  // Outputs of any size are given the right one first.
  void size_outputs() {
    for (size_t i = 0; i < given_.size(); ++i) {
      if (!given_[i].isTensor() || !is_written(schema_, i) || !schema_.arguments()[i].is_out()) continue;
      const at::Tensor output = given_[i].toTensor();
      if (output.numel() > 0) continue;
      const Shape shape = shape_of_output(op_, seen_, i);
      if (output.sizes() == c10::IntArrayRef(shape.sizes)) continue;
      resize_memory(output, shape.sizes);
      uses_.push_back({.tensor = output, .is_written = true});
      seen_[i] = for_kernel(output);
    }
  }

  void write() {
    size_outputs();
    queue([](torch::jit::Stack&) {});
    for (const c10::Argument& result : schema_.returns()) {
      for (size_t i = 0; i < given_.size(); ++i) {
        const auto* alias = schema_.arguments()[i].alias_info();
        if (alias != nullptr && *alias == *result.alias_info()) stack_->push_back(given_[i]);
      }
    }
  }

  void make() {
    for (const c10::Argument& result : schema_.returns()) {
      TORCH_CHECK(result.alias_info() == nullptr, "simulated device: ", name(), " makes a view and has no kernel");
    }
    std::vector<at::Tensor> outputs;
    for (const auto& shapes : shapes_of_results(op_, seen_)) {
      std::vector<at::Tensor> made;
      for (const Shape& shape : shapes) {
        made.push_back(shape.is_defined ? empty_on(device_, shape.sizes, shape.strides, shape.dtype) : at::Tensor());
        outputs.push_back(made.back());
      }
      const auto kind = schema_.returns()[stack_results_++].type()->kind();
      stack_->push_back(kind == c10::ListType::Kind ? c10::IValue(made) : c10::IValue(made.at(0)));
    }
    std::vector<at::Tensor> targets;
    for (const at::Tensor& output : outputs) {
      uses_.push_back({.tensor = output, .is_written = true});
      targets.push_back(for_kernel(output));
    }
    queue([targets = std::move(targets)](torch::jit::Stack& results) {
      size_t next = 0;
      const auto take = [&](const at::Tensor& result) {
        if (const at::Tensor& target = targets.at(next++); target.defined()) target.copy_(result);
      };
      for (const c10::IValue& result : results) {
        if (result.isTensor()) take(result.toTensor());
        if (result.isTensorList()) std::ranges::for_each(result.toTensorVector(), take);
      }
    });
  }

  // The host waits for the result, as on a GPU.
  void run_now() {
    auto results = std::make_shared<torch::jit::Stack>();
    queue([results](torch::jit::Stack& stack) { *results = std::move(stack); });
    const c10::Stream stream = current_stream(device_.index());
    wait_for(stream, name());
    for (const c10::IValue& result : *results) {
      if (!result.isTensor()) {
        stack_->push_back(result);
        continue;
      }
      const at::Tensor& value = result.toTensor();
      at::Tensor output = empty_on(device_, value.sizes(), value.strides(), value.scalar_type());
      launch(stream, {{.tensor = output, .is_written = true}}, name(),
             [target = for_kernel(output), value] { target.copy_(value); });
      stack_->push_back(std::move(output));
    }
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack* const stack_;
  Values given_;
  Values seen_;  // by the kernel
  std::vector<Use> uses_;
  c10::Device device_{c10::kCPU};
  size_t stack_results_ = 0;
};

}  // namespace

void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call(op, stack).run();
}

// The losses' kernels use the output that they are given for something larger, where LibTorch would hand them one.
void register_whole_kernels(torch::Library& aten) {
  for (const char* name : {"convolution", "convolution_backward", "native_layer_norm", "native_group_norm",
                           "native_batch_norm", "mse_loss", "smooth_l1_loss"}) {
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
  }
}

}  // namespace ddp::test::device
