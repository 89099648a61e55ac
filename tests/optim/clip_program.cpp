// Clips gradients that clip_test.py clips in Python as well: clip_program CASES FOLDER. CASES is a JSON list; for each
// case FOLDER/<its number>.bin gets the name of the norm's dtype and a newline, the norm's bytes, where the function
// returns one, and the gradients'; or "refused" and a newline where the call throws.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/optim/clip_grad.h>

namespace {

using nlohmann::json;

at::ScalarType dtype_of(const std::string& name) {
  if (name == "float64") return at::kDouble;
  if (name == "float16") return at::kHalf;
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

void write_tensor(std::ofstream& out, const at::Tensor& tensor) {
  const auto contiguous = tensor.contiguous();
  out.write(static_cast<const char*>(contiguous.const_data_ptr()), static_cast<std::streamsize>(contiguous.nbytes()));
}

// The gradient of a case, in memory of its own, as a part of a larger tensor, as buckets have them, or transposed.
at::Tensor gradient_of(const json& each, at::ScalarType dtype) {
  const auto shape = each.at("shape").get<std::vector<int64_t>>();
  auto generator = at::detail::createCPUGenerator(each.at("seed").get<uint64_t>());
  auto gradient = at::randn(shape, generator) * each.at("size").get<double>();
  if (each.contains("first")) gradient.view({-1})[0] = std::stod(each.at("first").get<std::string>());
  gradient = gradient.to(dtype);
  const auto memory = each.at("memory").get<std::string>();
  if (memory == "part") {
    return at::zeros({gradient.numel() + 5}, dtype).narrow(0, 3, gradient.numel()).view(shape).copy_(gradient);
  }
  return memory == "transposed" && gradient.dim() == 2 ? gradient.t().contiguous().t() : gradient;
}

// The result of a function, if it has one.
at::Tensor call(const json& test, const std::vector<at::Tensor>& parameters) {
  const auto function = test.at("function").get<std::string>();
  const auto limit = test.at("limit").get<double>();
  const ddp::optim::ClipGradNormOptions options{.norm_type = std::stod(test.at("norm_type").get<std::string>()),
                                                .error_if_nonfinite = test.at("error_if_nonfinite").get<bool>()};
  if (function == "clip_grad_norm_") return ddp::optim::clip_grad_norm_(parameters, limit, options);
  if (function == "clip_grad_value_") {
    ddp::optim::clip_grad_value_(parameters, limit);
    return {};
  }
  if (function == "get_total_norm") {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
    return ddp::optim::get_total_norm(gradients, options);
  }
  const auto norm = std::stod(test.at("total_norm").get<std::string>());
  const auto dtype = dtype_of(test.at("total_norm_dtype").get<std::string>());
  ddp::optim::clip_grads_with_norm_(parameters, limit, at::scalar_tensor(norm, dtype));
  return {};
}

void clip(const json& test, std::ofstream out) {
  std::vector<at::Tensor> parameters;
  for (const auto& each : test.at("gradients")) {
    const auto dtype = dtype_of(each.at("dtype").get<std::string>());
    parameters.push_back(at::empty(each.at("shape").get<std::vector<int64_t>>(), dtype).requires_grad_());
    if (!each.at("missing").get<bool>()) parameters.back().mutable_grad() = gradient_of(each, dtype);
  }
  auto listed = parameters;
  for (const auto& index : test.at("repeated")) listed.push_back(parameters.at(index.get<size_t>()));
  try {
    const auto norm = call(test, listed);
    if (norm.defined()) {
      out << c10::toString(norm.scalar_type()) << "\n";
      write_tensor(out, norm);
    }
    for (const auto& parameter : parameters) {
      if (parameter.grad().defined()) write_tensor(out, parameter.grad());
    }
  } catch (const std::runtime_error&) {
    out << "refused\n";
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  int number = 0;
  for (const auto& test : json::parse(file)) {
    const auto path = std::string(argv[2]) + "/" + std::to_string(number++) + ".bin";
    clip(test, std::ofstream(path, std::ios::binary));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
