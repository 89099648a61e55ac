// Twenty steps of one small net on the same batches of 64 samples, by one process or several, at once or in passes:
// what the guides compare. Rank 0 prints the losses and the weights as JSON.
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <optional>
#include <string>

#include <ddprun/ddp.h>

namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kEqualSteps = 20;
constexpr int64_t kInputs = 16;
constexpr int64_t kHidden = 32;

struct MaybeNormedImpl : torch::nn::Module {
  explicit MaybeNormedImpl(bool has_norm) {
    hidden = register_module("hidden", torch::nn::Linear(kInputs, kHidden));
    if (has_norm) norm = register_module("norm", torch::nn::BatchNorm1d(kHidden));
    output = register_module("output", torch::nn::Linear(kHidden, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto h = hidden(x);
    if (norm) h = norm(h);
    return output(torch::tanh(h));
  }
  torch::nn::Linear hidden{nullptr}, output{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(MaybeNormed);

struct Options {
  int64_t accumulate = 1;
  std::string norm = "none";
  bool bf16 = false;
  bool forgets_sync = false;
};

void print(const char* name, const torch::Tensor& values, const char* end) {
  std::printf("\"%s\": [", name);
  const auto numbers = values.to(torch::kDouble).contiguous();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    std::printf("%s%.17g", i > 0 ? ", " : "", numbers.data_ptr<double>()[i]);
  std::printf("]%s", end);
}

int run_steps(const Options& options) {
  auto group = ddp::init_process_group();
  ddp::manual_seed(0, group);  // one net and the same data on all ranks, until the net is wrapped
  const auto inputs = torch::randn({kEqualSteps, kBatch, kInputs});
  const auto targets = torch::tanh(inputs.sum(2, /*keepdim=*/true) / 4) + 0.1 * torch::randn({kEqualSteps, kBatch, 1});
  MaybeNormed net(options.norm != "none");
  if (options.norm == "sync") ddp::convert_sync_batchnorm(net, group);
  ddp::DistributedDataParallel<MaybeNormed> model(net, group);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  const int64_t share = kBatch / (group.size() * options.accumulate);

  auto losses = torch::zeros({kEqualSteps});
  for (int64_t step = 0; step < kEqualSteps; ++step) {
    optimizer.zero_grad();
    for (int64_t pass = 0; pass < options.accumulate; ++pass) {
      std::optional<ddp::NoSyncGuard> local_only;
      if (pass + 1 < options.accumulate && !options.forgets_sync) local_only.emplace(model->no_sync());
      const int64_t first = (pass * group.size() + group.rank()) * share;
      torch::Tensor loss;
      {
        const ddp::Autocast autocast(group.device(), {.enabled = options.bf16});
        loss = torch::nn::functional::mse_loss(model(inputs[step].narrow(0, first, share)),
                                               targets[step].narrow(0, first, share));
      }
      (loss / options.accumulate).backward();
      losses[step] += ddp::reduce_tensor(loss.detach(), group) / options.accumulate;
    }
    optimizer.step();
  }

  std::vector<torch::Tensor> weights;
  for (const auto& parameter : net->parameters()) weights.push_back(parameter.detach().flatten());
  if (ddp::is_main_process(group)) {
    std::printf("{");
    print("losses", losses, ", ");
    print("weights", torch::cat(weights), "}\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Twenty steps, by one process or several.");
  Options options;
  app.add_option("--accumulate", options.accumulate, "Passes per step")->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--norm", options.norm, "Normalization behind the hidden layer")
      ->check(CLI::IsMember({"none", "batch", "sync"}));
  app.add_flag("--bf16", options.bf16, "Autocast to bfloat16");
  app.add_flag("--forgets-sync", options.forgets_sync, "Every pass reduces the gradients, no no_sync()");
  CLI11_PARSE(app, argc, argv);
  return run_steps(options);
} catch (const std::exception& error) {
  return ddp::report(error);
}
