// Trains a small model for a few steps and prints its weights' sum: equal on every rank, and no rank has all the data.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/ddp.h>

// Links what reads pictures, and with it the libraries that the installed package has to find for that.
static void read_a_picture() {
  const std::string pixel = "P6 1 1 255\n\1\2\3";
  const ddp::Image image = ddp::decode_image({pixel.begin(), pixel.end()}, "pixel.ppm");
  if (image.pixels != std::vector<uint8_t>{1, 2, 3}) throw std::runtime_error("a pixel has other colours");
}

int main() try {
  read_a_picture();
  auto group = ddp::init_process_group();
  ddp::manual_seed(0, group);
  torch::nn::Linear net(4, 1);
  ddp::DistributedDataParallel<torch::nn::Linear> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < 50; ++step) {
    const torch::Tensor x = torch::randn({8, 4});
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(model(x), x.sum(1, true)).backward();
    optimizer.step();
  }
  torch::Tensor sum = net->weight.detach().sum();
  std::printf("rank %d of %d: %.6f\n", group.rank(), group.size(), sum.item<double>());
  group.close();
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
