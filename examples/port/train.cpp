// A plain LibTorch program: a small net tells two spirals apart. docs/port.md makes it data parallel.
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

struct Net : torch::nn::Module {
  torch::nn::Linear hidden1{nullptr}, hidden2{nullptr}, output{nullptr};

  Net() {
    hidden1 = register_module("hidden1", torch::nn::Linear(2, 64));
    hidden2 = register_module("hidden2", torch::nn::Linear(64, 64));
    output = register_module("output", torch::nn::Linear(64, 2));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(hidden1(x));
    x = torch::relu(hidden2(x));
    return output(x);
  }
};

// Points of two spirals; the class says which one.
class Spirals : public torch::data::datasets::Dataset<Spirals> {
 public:
  explicit Spirals(size_t count) : count_(count) {}

  torch::data::Example<> get(size_t index) override {
    const auto spiral = static_cast<int64_t>(index % 2);
    const double turn = 10.0 * static_cast<double>(index) / static_cast<double>(count_);
    const double angle = turn + M_PI * static_cast<double>(spiral);
    const auto point = torch::tensor({std::cos(angle) * turn / 10, std::sin(angle) * turn / 10}, torch::kFloat);
    return {point, torch::tensor(spiral)};
  }

  std::optional<size_t> size() const override { return count_; }

 private:
  size_t count_;
};

int main() {
  torch::manual_seed(0);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  auto net = std::make_shared<Net>();
  net->to(device);

  auto dataset = Spirals(2000).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(std::move(dataset), /*batch=*/64);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));

  for (size_t epoch = 1; epoch <= 20; ++epoch) {
    auto total = torch::zeros({}, device);
    int64_t batches = 0;
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto scores = net->forward(batch.data.to(device));
      auto loss = torch::nn::functional::cross_entropy(scores, batch.target.to(device));
      loss.backward();
      optimizer.step();
      total += loss.detach();
      ++batches;
    }
    std::cout << "epoch " << epoch << ": loss " << (total / batches).item<float>() << std::endl;
  }
  torch::save(net, "net.pt");
}
