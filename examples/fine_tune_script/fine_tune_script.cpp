// Fine-tunes an image classifier that Python exported as TorchScript, with one process per device. In Python:
//
//   torch.jit.script(net).save("net.pt")          # takes (N, 3, 32, 32), returns (N, classes)
//
//   ddprun -n 2 build/release/bin/fine_tune_script --model net.pt --out tuned.pt --lr 0.01
//   build/release/bin/fine_tune_script --model net.pt --out tuned.pt                  one process, no launcher
#include <CLI/CLI.hpp>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <exception>
#include <string>
#include <vector>

#include <ddprun/ddp.h>
#include <ddprun/ddp/script_distributed_data_parallel.h>
#include <ddprun/training/command_line.h>

namespace {

struct Arguments {
  ddp::ProcessGroupOptions process_group;
  ddp::LoaderOptions loader{.batch_size = 16};
  std::string model, out, data_dir = CIFAR10_SAMPLE_DIR, step_losses;
  double lr = 0.001, momentum = 0.9;
  int64_t epochs = 1;
};

void declare(CLI::App& app, Arguments& args) {
  const auto option = [&app](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->capture_default_str();
  };
  option("--model", args.model, "The TorchScript file to start from")->required()->check(CLI::ExistingFile);
  option("--out", args.out, "File for the trained TorchScript model")->required();
  option("--data-dir", args.data_dir, "Folder with data_batch_*.bin and test_batch.bin");
  option("--epochs", args.epochs, "Passes over the data")->check(ddp::whole(1));
  option("--batch-size", args.loader.batch_size, "Batch size per rank")->check(ddp::whole(1));
  option("--lr", args.lr, "Learning rate of SGD")->check(ddp::finite(0));
  option("--momentum", args.momentum, "Momentum of SGD")->check(ddp::finite(0));
  option("--step-losses", args.step_losses, "File for each step's loss, .csv or .jsonl")->check(ddp::metrics_file());
}

int run(const Arguments& args) {
  const ddp::Normalization normalization{.mean = {0.5F, 0.5F, 0.5F}, .stddev = {0.5F, 0.5F, 0.5F}};
  const ddp::Cifar10 train(args.data_dir, ddp::Cifar10::Split::kTrain, normalization);
  const ddp::Cifar10 test(args.data_dir, ddp::Cifar10::Split::kTest, normalization);
  auto group = ddp::init_process_group(args.process_group);

  torch::jit::Module script = torch::jit::load(args.model, group.device());
  script.train();
  ddp::ScriptDistributedDataParallel model(script, group);
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : script.parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(args.lr).momentum(args.momentum));

  ddp::DistributedSampler sampler(train.size(), group);
  ddp::DeviceLoader loader(train, sampler, group.device(), args.loader);
  ddp::MetricsFile losses(args.step_losses, group);
  for (int64_t epoch = 0; epoch < args.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    int64_t step = 0;
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(model.forward({batch.data}).toTensor(), batch.target);
      loss.backward();
      optimizer.step();
      const double of_all = ddp::reduce_tensor(loss.detach(), group).item<double>();
      losses.write({{"epoch", epoch}, {"step", step++}, {"loss", of_all}});
    }
    script.eval();
    ddp::Accuracy accuracy;
    {
      const at::NoGradGuard no_grad;
      ddp::DistributedSampler in_order(test.size(), group, {.shuffle = false});
      for (const auto& batch : ddp::DeviceLoader(test, in_order, group.device(), args.loader)) {
        accuracy.update(script.forward({batch.data}).toTensor(), batch.target);
      }
    }
    script.train();
    ddp::print_on_main(group, "epoch ", epoch, ": accuracy ", accuracy.compute(group).front());
  }
  if (group.rank() == 0) script.save(args.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Fine-tunes a TorchScript model on CIFAR-10 images with data parallel training.");
  Arguments args;
  declare(app, args);
  CLI11_PARSE(app, argc, argv);
  return run(args);
} catch (const std::exception& error) {
  return ddp::report(error);
}
