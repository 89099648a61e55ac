// Takes the steps of random_steps_test.py: random_steps_program CASES FOLDER. CASES is a JSON list; for each case
// FOLDER/<number>.bin gets the parameters and their states, in the order of the parameters and of the states' names.
// With DDPRUN_TEST_ON_DEVICES=1 they are on a simulated device.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/optim/more_optimizers.h>

#include "tests/support/placement.h"

namespace {

using ddp::optim::FusedOptimizer;
using ddp::optim::ListedOptions;
using nlohmann::json;
using torch::optim::OptimizerParamGroup;

at::ScalarType dtype_named(const std::string& name) {
  if (name == "float64") return at::kDouble;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  return at::kFloat;
}

// Normal numbers of a seed; with "transposed", in memory the other way round.
at::Tensor drawn_numbers(const json& parameter, uint64_t seed, const std::string& layout, double scale) {
  auto shape = parameter["shape"].get<std::vector<int64_t>>();
  const bool is_transposed = layout == "transposed" && shape.size() > 1;
  if (is_transposed) std::swap(shape[0], shape[1]);
  auto generator = at::detail::createCPUGenerator(seed);
  at::Tensor result = (at::randn(shape, generator, at::kDouble) * scale).to(dtype_named(parameter["dtype"]));
  if (is_transposed) result = result.transpose(0, 1);
  return ddp::test::here(result);
}

void set_option(const ddp::optim::OptionValue& option, const json& value) {
  std::visit(
      [&](auto* target) {
        using Value = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Value, std::optional<std::string>>) {
          if (!value.is_null()) *target = value.get<std::string>();
        } else if constexpr (std::is_same_v<Value, std::tuple<std::optional<double>, double>>) {
          if (!value[0].is_null()) std::get<0>(*target) = value[0].get<double>();
          std::get<1>(*target) = value[1].get<double>();
        } else {
          value.get_to(*target);
        }
      },
      option);
}

template <typename Options>
Options drawn_options(const json& values) {
  Options options;
  for (const auto& [name, option] : options.list()) {
    if (values.contains(name)) set_option(option, values[name]);
  }
  if (values.contains("lr_tensor")) {
    options.lr_tensor(ddp::test::here(at::scalar_tensor(options.lr(), dtype_named(values["lr_tensor"]))));
    options.lr() = 7;  // which nothing reads
  }
  return options;
}

template <typename Options>
std::unique_ptr<FusedOptimizer> make_drawn(const json& test, const std::vector<at::Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  for (const auto& group : test["groups"]) {
    std::vector<at::Tensor> members;
    for (const size_t index : group["members"]) members.push_back(parameters[index]);
    groups.emplace_back(std::move(members), std::make_unique<Options>(drawn_options<Options>(group["options"])));
  }
  return std::make_unique<ddp::optim::OwnOptimizer<Options>>(groups, Options());
}

std::unique_ptr<FusedOptimizer> make_drawn(const std::string& name, const json& test,
                                           const std::vector<at::Tensor>& parameters) {
  using namespace ddp::optim;
  if (name == "RMSprop") return make_drawn<RMSpropOptions>(test, parameters);
  if (name == "Adadelta") return make_drawn<AdadeltaOptions>(test, parameters);
  if (name == "Adamax") return make_drawn<AdamaxOptions>(test, parameters);
  if (name == "NAdam") return make_drawn<NAdamOptions>(test, parameters);
  if (name == "RAdam") return make_drawn<RAdamOptions>(test, parameters);
  if (name == "ASGD") return make_drawn<ASGDOptions>(test, parameters);
  if (name == "Rprop") return make_drawn<RpropOptions>(test, parameters);
  if (name == "Adafactor") return make_drawn<AdafactorOptions>(test, parameters);
  if (name == "Muon") return make_drawn<MuonOptions>(test, parameters);
  if (name == "Lamb") return make_drawn<LambOptions>(test, parameters);
  if (name == "Lion") return make_drawn<LionOptions>(test, parameters);
  throw std::invalid_argument("no optimizer " + name);
}

void write_numbers(std::ofstream& out, const at::Tensor& tensor) {
  const auto contiguous = tensor.detach().cpu().contiguous();
  out.write(static_cast<const char*>(contiguous.const_data_ptr()), static_cast<std::streamsize>(contiguous.nbytes()));
}

void run_random_steps(const json& test, const std::string& path) {
  const uint64_t seed = test["seed"];
  const auto& described = test["parameters"];
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < described.size(); ++i) {
    parameters.push_back(drawn_numbers(described[i], seed + i, described[i]["layout"], 1).requires_grad_());
  }
  const auto optimizer = make_drawn(test["optimizer"], test, parameters);
  const auto& steps = test["steps"];
  for (size_t step = 0; step < steps.size(); ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad().reset();
      if (steps[step]["without"].contains(std::to_string(i))) continue;
      parameters[i].mutable_grad() = drawn_numbers(described[i], seed + 1000 * (step + 1) + i,
                                                   described[i]["gradient_layout"], steps[step]["scale"]);
    }
    for (auto& group : optimizer->param_groups()) {
      group.options().set_lr(group.options().get_lr() * steps[step]["lr_factor"].get<double>());
    }
    optimizer->step();
    if (step != 0 || !test.contains("count")) continue;
    for (const auto& parameter : parameters) {
      auto state = optimizer->parameter_state(parameter);
      if (state.contains("step")) state["step"].fill_(test["count"].get<double>());
    }
  }
  std::ofstream out(path, std::ios::binary);
  for (const auto& parameter : parameters) write_numbers(out, parameter);
  for (const auto& parameter : parameters) {
    for (const auto& [name, tensor] : optimizer->parameter_state(parameter)) write_numbers(out, tensor);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  size_t number = 0;
  for (const auto& test : json::parse(file))
    run_random_steps(test, std::string(argv[2]) + "/" + std::to_string(number++) + ".bin");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
