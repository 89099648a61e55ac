// Averages models that averaging_test.py averages in Python as well: averaging_program CASES FOLDER. CASES is a JSON
// list; for each case FOLDER/<its number>.bin gets, for each tensor of the averaged model's state, its name and a
// newline, and its bytes.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/optim/averaged_model.h>
#include <ddprun/syncbn/update_bn.h>

namespace {

using nlohmann::json;

void write_named(std::ofstream& out, const std::string& name, const at::Tensor& tensor) {
  const auto contiguous = tensor.detach().contiguous();
  out << name << "\n";
  out.write(static_cast<const char*>(contiguous.const_data_ptr()), static_cast<std::streamsize>(contiguous.nbytes()));
}

ddp::optim::AveragedModelOptions options_of(const json& test) {
  ddp::optim::AveragedModelOptions options{.use_buffers = test.at("use_buffers").get<bool>()};
  const auto kind = test.at("function").get<std::string>();
  const auto decay = test.at("decay").get<double>();
  if (kind == "ema") options.avg_fn = ddp::optim::get_ema_avg_fn(decay);
  if (kind == "ema_multi") options.multi_avg_fn = ddp::optim::get_ema_multi_avg_fn(decay);
  if (kind == "swa") options.avg_fn = ddp::optim::get_swa_avg_fn();
  if (kind == "swa_multi") options.multi_avg_fn = ddp::optim::get_swa_multi_avg_fn();
  return options;
}

void average(const json& test, const ddp::GroupHandle& group, std::ofstream out) {
  torch::nn::Sequential net(torch::nn::Linear(3, 40), torch::nn::BatchNorm1d(40), torch::nn::Linear(40, 2));
  if (test.at("dtype") == "float64") {
    net->to(at::kDouble);
    net[1]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.set_data(at::zeros({}, at::kLong));  // not in LibTorch
  }
  const auto dtype = net->parameters().front().scalar_type();
  ddp::optim::AveragedModel averaged(net, options_of(test));
  auto generator = at::detail::createCPUGenerator(test.at("seed").get<uint64_t>());
  const at::NoGradGuard no_grad;
  for (int step = 0; step < test.at("steps").get<int>(); ++step) {
    for (auto& parameter : net->parameters()) parameter.copy_(at::randn(parameter.sizes(), generator));
    net->forward(at::randn({8, 3}, generator).to(dtype));  // moves the running statistics
    averaged->update_parameters(net);
  }
  if (test.at("update_bn").get<bool>()) {
    std::vector<at::Tensor> batches;
    for (int64_t rows = 5; rows < 9; ++rows) batches.push_back(at::randn({rows, 3}, generator).to(dtype));
    ddp::update_bn(batches, averaged, group);
  }
  averaged->eval();
  for (const auto& item : averaged->named_parameters()) write_named(out, item.key(), item.value());
  for (const auto& item : averaged->named_buffers()) write_named(out, item.key(), item.value());
  write_named(out, "output", averaged(at::randn({8, 3}, generator).to(dtype)));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  const auto group = ddp::init_process_group();
  std::ifstream file(argv[1]);
  int number = 0;
  for (const auto& test : json::parse(file)) {
    const auto path = std::string(argv[2]) + "/" + std::to_string(number++) + ".bin";
    average(test, group, std::ofstream(path, std::ios::binary));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
