// Clips gradients that clip_test.py clips in Python as well: clip_program CASES FOLDER. CASES is a JSON list; for each
// case FOLDER/<its number>.bin gets the name of the norm's dtype and a newline, the norm's bytes, and the gradients';
// or "refused" and a newline where the call throws.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <limits>
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

void clip(const json& test, std::ofstream out) {
  std::vector<at::Tensor> parameters;
  for (const auto& each : test.at("gradients")) {
    const auto shape = each.at("shape").get<std::vector<int64_t>>();
    auto generator = at::detail::createCPUGenerator(each.at("seed").get<uint64_t>());
    const auto dtype = dtype_of(each.at("dtype").get<std::string>());
    parameters.push_back(at::empty(shape, dtype).requires_grad_());
    auto gradient = at::randn(shape, generator) * each.at("size").get<double>();
    if (each.contains("first")) gradient.view({-1})[0] = std::stod(each.at("first").get<std::string>());
    parameters.back().mutable_grad() = gradient.to(dtype);
  }
  const auto max_norm = test.at("max_norm").get<double>();
  try {
    const auto norm = ddp::optim::clip_grad_norm_(parameters, max_norm,
                                                  {.norm_type = std::stod(test.at("norm_type").get<std::string>()),
                                                   .error_if_nonfinite = test.at("error_if_nonfinite").get<bool>()});
    out << c10::toString(norm.scalar_type()) << "\n";
    write_tensor(out, norm);
    for (const auto& parameter : parameters) write_tensor(out, parameter.grad());
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
