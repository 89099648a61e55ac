// Goes on with a whole run that Python has saved: exchange_program SOURCE TARGET OPTIMIZER SCHEDULE STEPS. SOURCE is a
// run's folder, a checkpoint's or a .pt file; TARGET a run's folder. exchange_test.py trains the same way. Or loads
// weights alone, with casts, into a safetensors file: exchange_program SOURCE TARGET KEY.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/checkpoint.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/checkpoint/safetensors.h>
#include <ddprun/optim/lr_scheduler.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "tests/checkpoint/nets.h"

namespace {

namespace schedules = ddp::schedules;

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name,
                                                        const std::vector<at::Tensor>& parameters) {
  // Rates and all else come with the run.
  if (name == "sgd") return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(9).momentum(0.9));
  if (name == "fused_sgd") {
    return std::make_unique<ddp::optim::SGD>(parameters, ddp::optim::SGDOptions(9).momentum(0.9));
  }
  if (name == "fused_adam") return std::make_unique<ddp::optim::Adam>(parameters, ddp::optim::AdamOptions(9));
  if (name == "fused_adamw") return std::make_unique<ddp::optim::AdamW>(parameters, ddp::optim::AdamWOptions(9));
  throw std::invalid_argument("unknown optimizer " + name);
}

schedules::Schedule make_schedule(const std::string& name) {
  if (name == "StepLR") return schedules::step({.step_size = 2, .gamma = 0.7});
  if (name == "MultiStepLR") return schedules::multi_step({.milestones = {2, 4, 4, 7}, .gamma = 0.7});
  if (name == "LambdaLR") return schedules::lambda([](int64_t step) { return 1.0 / static_cast<double>(1 + step); });
  if (name == "MultiplicativeLR") return schedules::multiplicative([](int64_t) { return 0.9; });
  if (name == "CosineAnnealingLR") return schedules::cosine({.t_max = 20, .eta_min = 1e-4});
  if (name == "CosineAnnealingWarmRestarts") return schedules::cosine_warm_restarts({.t_0 = 2, .t_mult = 2});
  if (name == "ConstantLR") return schedules::constant({.factor = 0.5, .total_iters = 5});
  if (name == "LinearLR") return schedules::linear({.start_factor = 0.5, .total_iters = 8});
  if (name == "ExponentialLR") return schedules::exponential({.gamma = 0.9});
  if (name == "PolynomialLR") return schedules::polynomial({.total_iters = 12, .power = 0.9});
  if (name == "OneCycleLR") return schedules::one_cycle({.max_lr = {0.05}, .total_steps = 12});
  if (name == "SequentialLR") {
    std::vector<schedules::Schedule> parts;
    parts.push_back(schedules::linear({.total_iters = 4}));
    parts.push_back(schedules::cosine({.t_max = 8}));
    return schedules::sequential(std::move(parts), {4});
  }
  if (name == "ChainedScheduler") {
    std::vector<schedules::Schedule> parts;
    parts.push_back(schedules::linear({.total_iters = 4}));
    parts.push_back(schedules::exponential({.gamma = 0.9}));
    return schedules::chained(std::move(parts));
  }
  throw std::invalid_argument("unknown schedule " + name);
}

// Either of two kinds of schedule.
class Schedule {
 public:
  Schedule(const std::string& name, torch::optim::Optimizer& optimizer) {
    if (name == "ReduceLROnPlateau") {
      plateau_ = std::make_unique<ddp::optim::ReduceLROnPlateau>(
          optimizer, schedules::PlateauOptions{.factor = 0.5, .patience = 1, .threshold = 0.5});
    } else {
      scheduler_ = std::make_unique<ddp::optim::LrScheduler>(optimizer, make_schedule(name));
    }
  }
  void step(double loss) { scheduler_ ? scheduler_->step() : plateau_->step(loss); }
  ddp::Stateful state() { return scheduler_ ? ddp::Stateful(*scheduler_) : ddp::Stateful(*plateau_); }

 private:
  std::unique_ptr<ddp::optim::LrScheduler> scheduler_;
  std::unique_ptr<ddp::optim::ReduceLROnPlateau> plateau_;
};

void go_on(const std::string& source, const std::string& target, const std::string& optimizer_name,
           const std::string& schedule_name, int64_t steps) {
  auto group = ddp::init_process_group({.rank_info = ddp::RankInfo{}});
  ddp::test::Net net;
  const auto optimizer = make_optimizer(optimizer_name, net->parameters());
  Schedule schedule(schedule_name, *optimizer);
  ddp::GradScaler scaler({.init_scale = 9, .device = c10::kCPU});
  ddp::DistributedSampler sampler(40, {.num_replicas = 1, .rank = 0});
  ddp::TrainingState state{
      .model = net, .optimizer = *optimizer, .scaler = scaler, .schedule = schedule.state(), .sampler = sampler};
  ddp::CheckpointManager manager(target, group);
  const auto start = std::filesystem::is_directory(source) && !std::filesystem::exists(source + "/MANIFEST.json")
                         ? *ddp::CheckpointManager(source, group).load_latest(state)
                         : manager.load(std::filesystem::path(source), state);
  if (!start.rng_restored) throw std::runtime_error("the random generator is not where it was");
  if (start.values.get<double>("best") != 0.25) throw std::runtime_error("the values have not come");
  net->train();
  sampler.reset();
  for (auto step = start.step; step < start.step + steps; ++step) {
    const auto indices = sampler.next(4).value();
    auto x = torch::randn({4, 4});
    for (int64_t i = 0; i < 4; ++i) x[i] += static_cast<double>(indices[static_cast<size_t>(i)]) / 40;
    optimizer->zero_grad();
    auto loss = torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos());
    // Two steps overflow: one before the hand-over, one after.
    const bool overflows = step == 1 || step == 5;
    scaler.scale(overflows ? loss * std::numeric_limits<float>::infinity() : loss).backward();
    scaler.step(*optimizer);
    scaler.update();
    schedule.step(loss.item<double>());
  }
  state.values = start.values;
  manager.save(start.step + steps, state);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 4) {
    ddp::test::Net net;
    ddp::load_weights(argv[1], net, {.cast = true, .key = argv[3]});
    ddp::save_safetensors(argv[2], ddp::module_state(*net));
    return 0;
  }
  if (argc != 6) throw std::invalid_argument("3 or 5 arguments are needed");
  go_on(argv[1], argv[2], argv[3], argv[4], std::stoll(argv[5]));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
