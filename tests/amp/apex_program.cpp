// Trains a small net under amp as apex_test.py does in Python: apex_program CASES FOLDER. CASES is a JSON list of
// {"name", "level", "dtype", "seed", "class", "optimizer", "loss_scale"}; for each, FOLDER/<name>.bin gets the
// parameters that the optimizer steps, as float64, after every step.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/optim/optimizers.h>

namespace {

using nlohmann::json;

constexpr int kSteps = 8;

at::Tensor random_numbers(at::IntArrayRef shape, int64_t seed) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  return at::randn(shape, generator);
}

struct TwoLayersImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return second(first(x).tanh()); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(12, 20));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(20, 3));
};
TORCH_MODULE(TwoLayers);

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const json& test, const std::vector<at::Tensor>& parameters) {
  const auto& values = test.at("optimizer");
  auto options = torch::optim::SGDOptions(values.at("lr").get<double>())
                     .momentum(values.value("momentum", 0.0))
                     .dampening(values.value("dampening", 0.0))
                     .weight_decay(values.value("weight_decay", 0.0))
                     .nesterov(values.value("nesterov", false));
  if (test.at("class") == "ddp::optim::SGD") return std::make_unique<ddp::optim::SGD>(parameters, options);
  return std::make_unique<torch::optim::SGD>(parameters, options);
}

void run_level(const json& test, const std::string& folder) {
  const auto seed = test.at("seed").get<int64_t>();
  TwoLayers net;
  {
    const at::NoGradGuard no_grad;
    int64_t i = 0;
    for (auto& parameter : net->parameters()) parameter.copy_(random_numbers(parameter.sizes(), seed + i++) * 0.3);
  }
  const auto optimizer_owner = optimizer_of(test, net->parameters());
  auto& optimizer = *optimizer_owner;
  ddp::amp::Options options{.opt_level = test.at("level").get<std::string>()};
  if (test.at("dtype") == "bfloat16") options.dtype = c10::kBFloat16;
  options.loss_scale = ddp::amp::LossScale(test.at("loss_scale").get<double>());
  auto amp = ddp::amp::initialize(net, optimizer, options);
  auto model = amp.model(net);
  std::ofstream out(folder + "/" + test.at("name").get<std::string>() + ".bin", std::ios::binary);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss =
        at::mse_loss(model(random_numbers({16, 12}, seed + 100 + step)), random_numbers({16, 3}, seed + 200 + step));
    amp.scale_loss(loss, optimizer).backward();
    amp.step(optimizer);
    for (const auto& parameter : ddp::amp::master_params(optimizer)) {
      const auto wide = parameter.detach().to(c10::kDouble).contiguous();
      out.write(static_cast<const char*>(wide.const_data_ptr()), static_cast<std::streamsize>(wide.nbytes()));
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  for (const auto& test : json::parse(file)) run_level(test, argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
