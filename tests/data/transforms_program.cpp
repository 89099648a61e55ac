// Transforms what transforms_live_test.py transforms with torchvision as well: transforms_program CASES FOLDER. CASES
// is a JSON list; for each case FOLDER/<its number>.bin gets the floats.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/data/transforms.h>

namespace {

using nlohmann::json;
using namespace ddp::transforms;

std::vector<at::Tensor> transformed(const json& test) {
  auto generator = at::detail::createCPUGenerator(test.at("seed").get<uint64_t>());
  const auto data = at::rand(test.at("shape").get<std::vector<int64_t>>(), generator);
  ddp::SampleRandom random(0, 0, 0);
  const auto kind = test.at("kind").get<std::string>();
  if (kind == "rotate") {
    return {rotate(data, test.at("degrees").get<double>(),
                   {.bilinear = test.at("bilinear").get<bool>(), .fill = test.at("fill").get<double>()})};
  }
  if (kind == "center_crop") return {center_crop(test.at("size").get<int64_t>())(data, random)};
  if (kind == "normalize") return {normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})(data, random)};
  if (kind == "mix") {
    const auto target = at::tensor(test.at("target").get<std::vector<int64_t>>(), at::kLong);
    const auto mixed = mix({.data = data, .target = target}, test.at("part").get<double>(), 10);
    return {mixed.data, mixed.target};
  }
  throw std::invalid_argument("unknown kind " + kind);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("2 arguments are needed");
  std::ifstream file(argv[1]);
  int number = 0;
  for (const auto& test : json::parse(file)) {
    std::ofstream out(std::string(argv[2]) + "/" + std::to_string(number++) + ".bin", std::ios::binary);
    for (const auto& tensor : transformed(test)) {
      const auto contiguous = tensor.contiguous();
      out.write(static_cast<const char*>(contiguous.const_data_ptr()),
                static_cast<std::streamsize>(contiguous.nbytes()));
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
