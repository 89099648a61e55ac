// Takes steps that steps_test.py takes in Python as well: steps_program CASES FOLDER. CASES is a JSON list; for each
// case FOLDER/<name>.bin gets the parameters and then their states, in the order of the parameters and of the states'
// names.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/optim/optimizers.h>

namespace {

using nlohmann::json;
using torch::optim::OptimizerParamGroup;

// The first three are group 0, the others group 1.
const std::vector<std::vector<int64_t>> kShapes = {{7, 5}, {33}, {1}, {4, 3, 3, 3}, {1031}};
constexpr size_t kFirstGroup = 3;

at::Tensor numbers(size_t index, int64_t salt, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(salt));
  return at::randn(kShapes[index], generator).to(dtype);
}

void set(ddp::optim::SGDOptions& o, const json& values) {
  o.lr(values.value("lr", o.lr())).momentum(values.value("momentum", 0.0)).dampening(values.value("dampening", 0.0));
  o.nesterov(values.value("nesterov", false));
}
template <typename Options>
void set_adam(Options& o, const json& values) {
  o.lr(values.value("lr", o.lr())).eps(values.value("eps", o.eps())).amsgrad(values.value("amsgrad", false));
  if (values.contains("betas")) o.betas(values["betas"].get<std::tuple<double, double>>());
}
void set(ddp::optim::AdamOptions& o, const json& values) {
  set_adam(o, values);
}
void set(ddp::optim::AdamWOptions& o, const json& values) {
  set_adam(o, values);
}
void set(ddp::optim::AdagradOptions& o, const json& values) {
  o.lr(values.value("lr", o.lr())).lr_decay(values.value("lr_decay", 0.0)).eps(values.value("eps", o.eps()));
  o.initial_accumulator_value(values.value("initial_accumulator_value", 0.0));
}

template <typename Optimizer, typename Options>
std::unique_ptr<ddp::optim::FusedOptimizer> make(const json& test, const std::vector<at::Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  const auto middle = parameters.begin() + kFirstGroup;
  const auto add = [&](std::vector<at::Tensor> members, const json& values) {
    auto options = std::make_unique<Options>();
    set(*options, values);
    options->weight_decay(values.value("weight_decay", options->weight_decay()));
    options->maximize(values.value("maximize", false));
    groups.emplace_back(std::move(members), std::move(options));
  };
  add({parameters.begin(), middle}, test["groups"][0]);
  add({middle, parameters.end()}, test["groups"][1]);
  Options defaults;
  set(defaults, test["groups"][0]);
  return std::make_unique<Optimizer>(groups, defaults);
}

std::unique_ptr<ddp::optim::FusedOptimizer> make(const json& test, const std::vector<at::Tensor>& parameters) {
  const auto name = test["optimizer"].get<std::string>();
  if (name == "SGD") return make<ddp::optim::SGD, ddp::optim::SGDOptions>(test, parameters);
  if (name == "Adam") return make<ddp::optim::Adam, ddp::optim::AdamOptions>(test, parameters);
  if (name == "AdamW") return make<ddp::optim::AdamW, ddp::optim::AdamWOptions>(test, parameters);
  return make<ddp::optim::Adagrad, ddp::optim::AdagradOptions>(test, parameters);
}

void write(std::ofstream& out, const at::Tensor& tensor) {
  const auto contiguous = tensor.detach().contiguous();
  out.write(static_cast<const char*>(contiguous.const_data_ptr()), static_cast<std::streamsize>(contiguous.nbytes()));
}

void run_steps_of(const json& test, const std::string& folder) {
  const auto dtype_name = test.value("dtype", "float32");
  const auto dtype = dtype_name == "float64" ? at::kDouble : dtype_name == "bfloat16" ? at::kBFloat16 : at::kFloat;
  const auto steps = test.value("steps", 100);
  const auto late = test.value("late", 0);  // parameter 1 has no gradient in so many steps
  const auto scale = test.value("scale", 0.0);
  const auto inf_at = test.value("inf_at", std::vector<int>{});
  std::vector<at::Tensor> parameters;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    parameters.push_back(numbers(i, static_cast<int64_t>(i), dtype).requires_grad_());
  }
  const auto optimizer = make(test, parameters);
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i == 1 && step < late) continue;
      auto gradient = numbers(i, 100 + step * 10 + static_cast<int64_t>(i), dtype);
      if (scale != 0) gradient = gradient * scale;
      parameters[i].mutable_grad() = gradient;
    }
    if (scale == 0) {
      optimizer->step();
      continue;
    }
    const bool inf = std::find(inf_at.begin(), inf_at.end(), step) != inf_at.end();
    optimizer->step_scaled({.grad_scale = at::scalar_tensor(scale, at::kFloat),
                            .found_inf = at::scalar_tensor(inf ? 1.0 : 0.0, at::kFloat)});
  }
  std::ofstream out(folder + "/" + test["name"].get<std::string>() + ".bin", std::ios::binary);
  for (const auto& parameter : parameters) write(out, parameter);
  for (const auto& parameter : parameters) {
    for (const auto& [name, tensor] : optimizer->parameter_state(parameter)) write(out, tensor);
  }
  // Fused optimizers leave the gradients unscaled.
  for (const auto& parameter : parameters) write(out, parameter.grad());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  for (const auto& test : json::parse(file)) run_steps_of(test, argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
