// DistributedDataParallel without a torch::nn::Module: tensors under names, and TorchScript.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/ddp/script_distributed_data_parallel.h>
#include <ddprun/ddp/untyped_distributed_data_parallel.h>

#include "tests/ddp/support.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::expect_equal;
using test::here;
using test::make;
using test::numbers;
using test::run_ranks;

struct NormedNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(NormedNet);

/// The model's tensors as a list, as a binding to another language would give them.
ModelTensors tensors_in(const NormedNet& net) {
  ModelTensors model;
  for (const auto& item : net->named_parameters()) model.parameters.push_back({item.key(), item.value()});
  model.buffers = [net] {
    std::vector<NamedTensor> buffers;
    for (const auto& item : net->named_buffers()) buffers.push_back({item.key(), item.value()});
    return buffers;
  };
  return model;
}

torch::jit::Module linear_script(const torch::nn::Linear& values) {
  torch::jit::Module module("Linear");
  module.register_parameter("weight", values->weight.detach().clone().requires_grad_(), false);
  module.register_parameter("bias", values->bias.detach().clone().requires_grad_(), false);
  module.define("def forward(self, x):\n  return torch.addmm(self.bias, x, self.weight.t())\n");
  return module;
}

/// The same net as `values` in TorchScript; its own tensors.
torch::jit::Module script_of(const NormedNet& values, const std::string& forward) {
  torch::jit::Module module("NormedNet");
  module.register_module("first", linear_script(values->first));
  torch::jit::Module norm("Norm");
  norm.register_parameter("weight", values->norm->weight.detach().clone().requires_grad_(), false);
  norm.register_parameter("bias", values->norm->bias.detach().clone().requires_grad_(), false);
  norm.register_parameter("running_mean", values->norm->running_mean.clone(), true);
  norm.register_parameter("running_var", values->norm->running_var.clone(), true);
  norm.register_parameter("num_batches_tracked", values->norm->num_batches_tracked.clone(), true);
  norm.define(
      "def forward(self, x):\n"
      "  self.num_batches_tracked.add_(1)\n"
      "  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, True, 0.1, 1e-5, "
      "False)\n");
  module.register_module("norm", norm);
  module.register_module("second", linear_script(values->second));
  module.define("def forward(self, x):\n" + forward);
  return module;
}

const std::string kPlainForward =
    "  return self.second.forward(torch.relu(self.norm.forward(self.first.forward(x))))\n";

template <typename Forward>
void train_steps(const std::vector<at::Tensor>& parameters, const GroupHandle& group, const Forward& forward) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    forward(numbers({4, 6}, group.rank() + 10 * step)).square().mean().backward();
    optimizer.step();
  }
}

void expect_equal_values(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  RANK_REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) expect_equal(actual[i], expected[i]);
}

TEST_CASE_METHOD(test::EveryWire, "Untyped DDP: tensors under names train to the bits of the wrapped module") {
  const DdpOptions options =
      GENERATE(DdpOptions{}, DdpOptions{.find_unused_parameters = true}, DdpOptions{.static_graph = true});
  run(3, [&](const GroupHandle& group) {
    NormedNet typed = make<NormedNet>(group.rank());
    NormedNet untyped = make<NormedNet>(group.rank());
    DistributedDataParallel<NormedNet> expected(typed, group, options);
    UntypedDistributedDataParallel actual(tensors_in(untyped), group, options);
    train_steps(typed->parameters(), group, [&](const at::Tensor& x) { return expected(x); });
    train_steps(untyped->parameters(), group, [&](const at::Tensor& x) {
      actual.before_forward();
      return actual.after_forward({untyped(x)})[0];
    });
    expect_equal_values(untyped->parameters(), typed->parameters());
    expect_equal_values(untyped->buffers(), typed->buffers());
    RANK_CHECK(actual.bucket_layout().save() == expected->bucket_layout().save());
  });
}

TEST_CASE_METHOD(test::EveryWire, "Untyped DDP: no_sync, a skipped parameter and join behave as with a module") {
  run(2, [&](const GroupHandle& group) {
    const at::Tensor used = numbers({3}, 1).requires_grad_();
    const at::Tensor skipped = numbers({2}, 2).requires_grad_();
    UntypedDistributedDataParallel model({.parameters = {{"used", used}, {"skipped", skipped}}}, group,
                                         {.find_unused_parameters = true});
    const auto backward = [&](double factor) {
      model.before_forward();
      model.after_forward({used * factor})[0].sum().backward();
    };
    {
      const NoSyncGuard local = model.no_sync();
      backward(group.rank());
      expect_equal(used.grad(), at::full({3}, group.rank(), used.options()));
    }
    backward(group.rank() + 1);
    expect_equal(used.grad(), at::full({3}, 2.0, used.options()));  // the mean of 0 + 1 and 1 + 2
    used.mutable_grad().reset();
    model.join([&] {
      for (int i = 0; i <= group.rank(); ++i) backward(1);
    });
  });
}

TEST_CASE("Untyped DDP: bad lists are refused by name") {
  run_ranks(1, [](const GroupHandle& group) {
    const at::Tensor leaf = numbers({2}, 1).requires_grad_();
    const auto refused = [&](ModelTensors model, const std::string& text, const DdpOptions& options = {}) {
      RANK_CHECK_THROWS_MATCHES(UntypedDistributedDataParallel(std::move(model), group, options), std::invalid_argument,
                                ContainsSubstring(text));
    };
    refused({.parameters = {{"", leaf}}}, "parameter 0 has no name");
    refused({.parameters = {{"a", leaf}, {"a", leaf}}}, "two parameters named 'a'");
    refused({.parameters = {{"a", at::Tensor()}}}, "parameter 'a' is an undefined tensor");
    refused({.parameters = {{"a", leaf * 2}}}, "parameter 'a' was computed from other tensors");
    refused({.parameters = {{"a", leaf}}, .sparse_gradients = {"b"}}, "sparse_gradients: 'b' is not a parameter");
    refused({}, "doesn't have any parameter that requires a gradient");
  });
}

TEST_CASE("Untyped DDP: a parameter that was resized and an output that is missing are named") {
  run_ranks(2, [](const GroupHandle& group) {
    at::Tensor weight = numbers({2}, 1).requires_grad_();
    UntypedDistributedDataParallel model({.parameters = {{"weight", weight}}}, group, {.find_unused_parameters = true});
    model.before_forward();
    RANK_CHECK_THROWS_MATCHES(model.after_forward({}), std::logic_error, ContainsSubstring("this one returns nothing"));
    weight.set_data(numbers({3}, 1));
    RANK_CHECK_THROWS_MATCHES(model.before_forward(), std::runtime_error,
                              ContainsSubstring("parameter 'weight' was resized from [2] to [3]"));
  });
}

TEST_CASE_METHOD(test::EveryWire, "Script DDP: a TorchScript module trains to the bits of the same module in C++") {
  const DdpOptions options =
      GENERATE(DdpOptions{}, DdpOptions{.find_unused_parameters = true}, DdpOptions{.static_graph = true});
  run(2, [&](const GroupHandle& group) {
    NormedNet typed = make<NormedNet>(group.rank());
    torch::jit::Module script = script_of(typed, kPlainForward);
    ScriptDistributedDataParallel actual(script, group, options);
    DistributedDataParallel<NormedNet> expected(typed, group, options);
    std::vector<at::Tensor> parameters;
    for (const auto& item : script.named_parameters()) parameters.push_back(item.value);
    train_steps(typed->parameters(), group, [&](const at::Tensor& x) { return expected(x); });
    train_steps(parameters, group, [&](const at::Tensor& x) { return actual.forward({x}).toTensor(); });
    expect_equal_values(parameters, typed->parameters());
    for (const auto& item : script.named_buffers()) expect_equal(item.value, typed->named_buffers()[item.name]);
  });
}

TEST_CASE_METHOD(test::EveryWire, "Script DDP: unused parameters are found through dicts, lists and tuples") {
  const std::string forward =
      GENERATE(std::string("  return {'a': self.first.forward(x), 'b': self.first.forward(x) * 2}\n"),
               std::string("  return [self.first.forward(x)]\n"),
               std::string("  return (self.first.forward(x), [self.first.forward(x), x], 3)\n"));
  run(2, [&](const GroupHandle& group) {
    const NormedNet values = make<NormedNet>(0);
    torch::jit::Module script = script_of(values, forward);
    ScriptDistributedDataParallel model(script, group, {.find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      const c10::IValue output = model.forward({here(at::ones({1, 6})) * (group.rank() + 1)});
      at::Tensor first;
      if (output.isTensor()) first = output.toTensor();
      if (output.isGenericDict()) first = output.toGenericDict().at("a").toTensor();
      if (output.isTensorList()) first = output.toTensorVector()[0];
      if (output.isTuple()) first = output.toTupleRef().elements()[0].toTensor();
      first.sum().backward();
    }
    const at::Tensor gradient = script.attr("first").toModule().attr("weight").toTensor().grad();
    expect_equal(gradient, here(at::full({8, 6}, 3.0)));  // the mean of 1 and 2, twice
    RANK_CHECK(model.logging_data().unused_parameters.size() == 4);
  });
}

}  // namespace
}  // namespace ddp
