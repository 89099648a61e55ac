// Training as a Horovod program writes it: a linear model fitted to y = 2a - b + 0.5 on points that each rank draws for
// itself.
//
//   ddprun --nproc_per_node=2 build/release/bin/horovod_style
//   ddprun --nproc_per_node=2 build/release/bin/horovod_style --op adasum
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <map>
#include <string>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

int main(int argc, char** argv) try {
  using namespace ddp::horovod;
  CLI::App app("Fits a linear model in Horovod's way.");
  int steps = 200;
  bool fp16 = false;
  Op op = Op::kAverage;
  const std::map<std::string, Op> ops{{"average", Op::kAverage}, {"adasum", Op::kAdasum}};
  app.add_option("--steps", steps, "Optimizer steps")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--op", op, "average or adasum")->transform(CLI::CheckedTransformer(ops));
  app.add_flag("--fp16-allreduce", fp16, "Send gradients in half precision");
  ddp::ProcessGroupOptions job;
  ddp::add_options(app, job);
  CLI11_PARSE(app, argc, argv);

  auto hvd = init(job);
  ddp::manual_seed(42, hvd);
  torch::nn::Linear net(2, 1);
  net->to(hvd.device());

  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  broadcast_parameters(*net, 0, hvd);
  broadcast_optimizer_state(sgd, 0, hvd);
  DistributedOptimizer optimizer(sgd, hvd,
                                 {.named_parameters = net->named_parameters().pairs(),
                                  .compression = fp16 ? Compression::kFp16 : Compression::kNone,
                                  .op = op});

  ddp::seed_per_rank(42, hvd);  // from here on every rank draws its own points
  const auto factors = torch::tensor({2.0F, -1.0F}).to(hvd.device());
  for (int step = 0; step < steps; ++step) {
    const auto points = torch::rand({16, 2}).to(hvd.device());
    const auto targets = (points * factors).sum(1, /*keepdim=*/true) + 0.5;
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::mse_loss(net(points), targets);
    loss.backward();
    optimizer.step();
    if ((step + 1) % 50 == 0) {
      ddp::print_on_main(hvd, "step ", step + 1, ": loss ", hvd.allreduce(loss.detach()).item<float>());
    }
  }
  std::printf("rank %d of %d: weight %.3f %.3f, bias %.3f\n", hvd.rank(), hvd.size(), net->weight[0][0].item<double>(),
              net->weight[0][1].item<double>(), net->bias[0].item<double>());
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
