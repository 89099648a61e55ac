// Runs modules and functions of torch::nn on the inputs, weights and gradients that modules_test.py runs Python's on:
// modules_program CASES RESULTS, both files of torch.save(). A case names its subject in subjects.h.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/amp/autocast.h>

#include "tests/nn/subjects.h"

namespace {

using Dict = c10::Dict<c10::IValue, c10::IValue>;

void put(Dict& result, const std::string& name, const at::Tensor& tensor) {
  result.insert(name, tensor.detach().contiguous().clone());
}

void put_state(Dict& result, const std::string& kind, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) put(result, kind + item.key(), item.value());
  for (const auto& item : module.named_buffers()) put(result, kind + item.key(), item.value());
}

void load_weights(torch::nn::Module& module, const Dict& weights) {
  const at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    auto found = weights.find(item.key());
    if (found == weights.end()) throw std::invalid_argument("Python has no parameter " + item.key());
    item.value().copy_(found->value().toTensor());
  }
}

std::vector<at::Tensor> tensors_of(const c10::IValue& list) {
  std::vector<at::Tensor> tensors;
  for (const auto& item : list.toListRef()) tensors.push_back(item.toTensor());
  return tensors;
}

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> roots;
  for (const auto& output : outputs) {
    if (output.requires_grad()) roots.push_back(output);
  }
  if (roots.size() != gradients.size())
    throw std::invalid_argument("another number of outputs has gradients in Python");
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

Dict run(const Dict& test) {
  Dict result(c10::StringType::get(), c10::AnyType::get());
  const auto seed = static_cast<uint64_t>(test.at("seed").toInt());
  torch::manual_seed(seed);
  auto subject = ddp::test::make_subject(test.at("subject").toStringRef());
  const auto dtype = test.at("dtype").toStringRef();
  if (subject.module) {
    put(result, "generator after construction", at::detail::getDefaultCPUGenerator().get_state());
    put_state(result, "initial ", *subject.module);
    if (dtype == "float64") subject.module->to(at::kDouble);
    if (dtype == "bfloat16") subject.module->to(at::kBFloat16);
    load_weights(*subject.module, test.at("weights").to<Dict>());
    subject.module->train(test.at("training").toBool());
  }
  auto inputs = tensors_of(test.at("inputs"));
  for (auto& input : inputs) {
    if (input.is_floating_point()) input = input.clone(at::MemoryFormat::Preserve).set_requires_grad(true);
  }
  const at::AutoGradMode grad_mode(test.at("grad").toBool());
  torch::manual_seed(seed + 1);
  std::vector<at::Tensor> outputs;
  {
    std::optional<ddp::Autocast> autocast;
    if (test.at("autocast").toBool()) autocast.emplace(at::kCPU);
    outputs = subject.forward(inputs);
  }
  if (test.at("grad").toBool()) run_backward(outputs, tensors_of(test.at("gradients")));
  put(result, "generator after forward", at::detail::getDefaultCPUGenerator().get_state());
  for (size_t i = 0; i < outputs.size(); ++i) put(result, "output " + std::to_string(i), outputs[i]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].grad().defined()) put(result, "gradient of input " + std::to_string(i), inputs[i].grad());
  }
  if (subject.module) {
    for (const auto& item : subject.module->named_parameters()) {
      if (item.value().grad().defined()) put(result, "gradient of " + item.key(), item.value().grad().to_dense());
    }
    for (const auto& item : subject.module->named_buffers()) put(result, "buffer " + item.key(), item.value());
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  at::set_num_threads(1);
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  c10::List<c10::IValue> results(c10::AnyType::get());
  const auto tests = torch::jit::pickle_load(bytes);
  for (const auto& item : tests.toListRef()) {
    const auto test = item.to<Dict>();
    try {
      results.push_back(run(test));
    } catch (const std::exception& error) {
      results.push_back(test.at("subject").toStringRef() + ": " + error.what());
    }
  }
  const auto written = torch::jit::pickle_save(results);
  std::ofstream(argv[2], std::ios::binary).write(written.data(), static_cast<std::streamsize>(written.size()));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
