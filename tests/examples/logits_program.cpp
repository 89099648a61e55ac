// A net's logits for the pictures of a seed, with weights from a file: logits_program NET CLASSES SIZE WEIGHTS SEED
// OUT [transform]. OUT gets the floats of evaluation mode, then those of training mode (without dropout, with this
// batch's statistics).
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/dropout.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include <ddprun/checkpoint/checkpoint.h>

#include "examples/models/image_models.h"

int main(int argc, char** argv) try {
  if (argc != 7 && argc != 8) throw std::invalid_argument("6 or 7 arguments are needed");
  const int64_t size = std::stoll(argv[3]);
  const auto net = models::make_image_model(argv[1], std::stoll(argv[2]), /*transform_input=*/argc == 8);
  ddp::load_weights(argv[4], net);
  auto generator = at::detail::createCPUGenerator(std::stoull(argv[5]));
  const auto images = at::randn({2, 3, size, size}, generator);
  const torch::NoGradGuard no_grad;
  std::ofstream out(argv[6], std::ios::binary);
  const auto write = [&](const torch::Tensor& logits) {
    const auto values = logits.contiguous();
    out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  };
  net->eval();
  write(net->forward(images));
  net->train();
  for (const auto& module : net->modules()) {
    if (auto* dropout = module->as<torch::nn::Dropout>()) dropout->eval();
  }
  write(net->forward(images));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
