// Training as a Horovod program writes it: a linear model fitted to y = 2a - b + 0.5 on points that each rank draws for
// itself.
//
//   ddprun --nproc_per_node=2 build/release/bin/horovod_style
//   ddprun --nproc_per_node=2 build/release/bin/horovod_style --op adasum
//   ddprun --nproc_per_node=2 build/release/bin/horovod_style --steps 400 --resume
//   build/release/bin/horovod_style                                              one process, no launcher
//   mpirun -n 2 build/release/bin/horovod_style                                  or srun -n 2, torchrun --no-python
#include <CLI/CLI.hpp>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include <ddprun/ddp.h>
#include <ddprun/training/command_line.h>

namespace {

using namespace ddp::horovod;

struct Arguments {
  int64_t steps = 200, save_every = 50;
  Op op = Op::kAverage;
  bool fp16 = false;
  std::string checkpoint_dir = "checkpoints/horovod_style", tensorboard, step_losses;
  std::optional<std::string> resume;
  ddp::ProcessGroupOptions job;
};

void declare(CLI::App& app, Arguments& args) {
  ddp::add_options(app, args.job);
  app.add_option("--steps", args.steps, "Optimizer steps")->check(ddp::whole(0))->capture_default_str();
  const auto set_op = [&args](const std::string& op) { args.op = op == "adasum" ? Op::kAdasum : Op::kAverage; };
  app.add_option_function<std::string>("--op", set_op, "How gradients are reduced (default: average)")
      ->check(CLI::IsMember({"average", "adasum"}));
  app.add_flag("--fp16-allreduce", args.fp16, "Reduce gradients in half precision");
  app.add_option("--checkpoint-dir", args.checkpoint_dir, "Folder for checkpoints")
      ->check(ddp::output_folder())
      ->capture_default_str();
  app.add_option("--save-every", args.save_every, "Steps between checkpoints")
      ->check(ddp::whole(1))
      ->capture_default_str();
  app.add_option("--resume", args.resume, "Resume FOLDER, or the newest checkpoint")
      ->type_name("[FOLDER]")
      ->expected(0, 1);
  app.add_option("--tensorboard", args.tensorboard, "Write the loss for TensorBoard into DIR")
      ->type_name("DIR")
      ->check(ddp::output_folder());
  app.add_option("--step-losses", args.step_losses, "Write each step's loss into FILE, .csv or .jsonl")
      ->type_name("FILE")
      ->check(ddp::metrics_file());
}

int run(const Arguments& args) {
  auto hvd = init(args.job);
  ddp::install_stop_handlers();
  ddp::manual_seed(42, hvd);
  torch::nn::Linear net(2, 1);
  net->to(hvd.device());

  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  broadcast_parameters(*net, 0, hvd);
  broadcast_optimizer_state(sgd, 0, hvd);
  DistributedOptimizer optimizer(sgd, hvd,
                                 {.named_parameters = net->named_parameters().pairs(),
                                  .compression = args.fp16 ? Compression::kFp16 : Compression::kNone,
                                  .op = args.op});

  ddp::seed_per_rank(42, hvd);  // from here on every rank draws its own points
  ddp::CheckpointManager checkpoints(args.checkpoint_dir, hvd, {.keep_last = 2});
  const ddp::TrainingState state{.model = net, .optimizer = sgd};
  const auto start = ddp::start_run(checkpoints, state, hvd, args.resume, "step");
  ddp::SummaryWriter tensorboard(args.tensorboard, hvd, {.purge_step = start.step + 1});
  ddp::MetricsFile losses(args.step_losses, hvd, {.append = start.step > 0});
  losses.drop_from("step", start.step + 1);

  const auto factors = torch::tensor({2.0F, -1.0F}).to(hvd.device());
  for (auto step = start.step + 1; step <= args.steps; ++step) {
    const auto points = torch::rand({16, 2}).to(hvd.device());
    const auto targets = (points * factors).sum(1, /*keepdim=*/true) + 0.5;
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::mse_loss(net(points), targets);
    loss.backward();
    optimizer.step();

    const auto of_all = hvd.allreduce(loss.detach()).item<float>();
    tensorboard.add_scalar("loss", of_all, step);
    losses.write({{"step", step}, {"loss", of_all}});
    if (step % 50 == 0) ddp::print_on_main(hvd, "step ", step, ": loss ", of_all);
    if (step % args.save_every != 0 && step != args.steps) continue;
    checkpoints.save(step, state);
    if (step < args.steps && ddp::stop_requested(hvd)) return ddp::kSavedAndStopped;
  }
  std::printf("rank %d of %d: weight %.3f %.3f, bias %.3f\n", hvd.rank(), hvd.size(), net->weight[0][0].item<double>(),
              net->weight[0][1].item<double>(), net->bias[0].item<double>());
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Fits a linear model in Horovod's way.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}
