// A small training in which one rank goes wrong at a given place; faults_soak.py starts the ranks and reads what the
// others say.
//
//     fault_program MODEL FAULT PLACE VICTIM STEP DELAY_US TIMEOUT_MS      (VICTIM -1: all ranks)
//
// FAULT_BACKEND names another backend than gloo.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/horovod/horovod.h>
#include <ddprun/syncbn/conversion.h>

namespace {

struct Plan {
  std::string model, fault, place;
  int victim = 0;
  int step = 0;
  std::chrono::microseconds delay{};
  std::chrono::milliseconds timeout{};
};

constexpr int kPlannedSteps = 12;
constexpr int kEndless = 1000000;

// The clock is the whole machine's.
void announce(const char* what) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::fprintf(stderr, "%s %ld.%09ld\n", what, static_cast<long>(now.tv_sec), now.tv_nsec);
  std::fflush(stderr);
}

// Goes wrong once, where the plan says. Without a fault of its own ("none") it says so and the program goes on until
// one comes from outside.
class Saboteur {
 public:
  Saboteur(Plan plan, int rank) : plan_(std::move(plan)), is_victim_(rank == plan_.victim || plan_.victim < 0) {
    if (is_victim_ && plan_.place == "moment") {
      std::thread([plan = plan_] {
        std::this_thread::sleep_for(plan.delay);
        strike(plan);
      }).detach();
    }
  }

  const Plan& plan() const { return plan_; }
  int steps() const { return plan_.fault == "none" || plan_.place == "moment" ? kEndless : kPlannedSteps; }
  /// This rank does `fault`, at the place and step that the plan names.
  bool does(const char* fault, const char* place = "", int step = -1) const {
    return is_victim_ && plan_.fault == fault && (*place == 0 || plan_.place == place) &&
           (step < 0 || step == plan_.step);
  }
  bool is_at(const char* place, int step) const { return is_victim_ && plan_.place == place && step == plan_.step; }
  void at(const char* place, const ddp::GroupHandle* group = nullptr) const {
    if (!is_victim_ || plan_.place != place) return;
    strike(plan_);
    if (plan_.fault == "throw") throw std::runtime_error("the data of this rank is bad");
    if (plan_.fault == "other") ddp::all_gather(torch::ones({3}, torch::kLong), *group);
  }
  void at(const char* place, int step, const ddp::GroupHandle& group) const {
    if (step == plan_.step) at(place, &group);
  }

 private:
  static void strike(const Plan& plan) {
    announce("FAULT");
    if (plan.fault == "kill") std::raise(SIGKILL);
    if (plan.fault == "abort") std::abort();
    if (plan.fault == "stop") std::raise(SIGSTOP);
    if (plan.fault == "wait") std::getchar();
  }

  const Plan plan_;
  const bool is_victim_;
};

struct PlainImpl : torch::nn::Module {
  explicit PlainImpl(int hidden = 8) : first(6, hidden), second(hidden, 3) {
    register_module("first", first);
    register_module("second", second);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(first(x));
    if (between) between(y);
    return leaves_out ? y : second(y);
  }
  torch::nn::Linear first, second;
  std::function<void(torch::Tensor&)> between;
  bool leaves_out = false;
};
TORCH_MODULE(Plain);

struct NormedFaultyImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = norm(first(x));
    if (between) between(y);
    return leaves_out ? y : second(y);
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
  std::function<void(torch::Tensor&)> between;
  bool leaves_out = false;
};
TORCH_MODULE(NormedFaulty);

struct Training {
  std::function<torch::Tensor(torch::Tensor)> forward;
  std::function<void()> zero, step;
  std::function<void(bool)> leave_out = [](bool) {};  ///< of the next forward: a layer
  std::function<void(std::function<void()>)> unsynced = [](const std::function<void()>& body) { body(); };
};

// Called between two layers of a forward: goes wrong there, or in the backward between the buckets of these layers.
void between_layers(const Saboteur& saboteur, int step, const ddp::GroupHandle& group, torch::Tensor& y) {
  saboteur.at("forward", step, group);
  if (!saboteur.is_at("backward", step) || !y.requires_grad()) return;
  y.register_hook([saboteur, group](const torch::Tensor&) { saboteur.at("backward", &group); });
}

// `now` is the step, for whoever asks meanwhile.
void train_with(const Saboteur& saboteur, const ddp::GroupHandle& group, int& now, const Training& training) {
  for (now = 0; now < saboteur.steps(); ++now) {
    saboteur.at("start", now, group);
    const bool is_faulty = saboteur.is_at("start", now);
    if (is_faulty && saboteur.does("skip")) continue;
    if (is_faulty && saboteur.does("shorter")) return;
    training.leave_out(is_faulty && saboteur.does("branch"));
    const auto iterate = [&] {
      training.zero();
      training.forward(torch::randn({4, 6}).to(group.device())).square().mean().backward();
      saboteur.at("after", now, group);
      training.step();
    };
    is_faulty&& saboteur.does("unsynced") ? training.unsynced(iterate) : iterate();
  }
}

// `model` wraps `net`.
template <typename Net, typename Model>
void train_in_wrapper(const Saboteur& saboteur, const ddp::GroupHandle& group, Net net, Model model,
                      const std::function<void(const std::function<void()>&)>& unsynced) {
  saboteur.at("wrapped", &group);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  int step = 0;
  net->between = [&](torch::Tensor& y) { between_layers(saboteur, step, group, y); };
  train_with(saboteur, group, step,
             {.forward = [&](const torch::Tensor& x) { return model(x); },
              .zero = [&] { optimizer.zero_grad(); },
              .step = [&] { optimizer.step(); },
              .leave_out = [&](bool leaves_out) { net->leaves_out = leaves_out; },
              .unsynced = unsynced});
}

template <typename Net>
void train_wrapped(const Saboteur& saboteur, const ddp::GroupHandle& group, Net net) {
  net->to(group.device());
  if (saboteur.plan().model == "syncbn") ddp::convert_sync_batchnorm(net, group);
  constexpr int64_t kBucketPerLayer = 64;
  ddp::DistributedDataParallel<Net> model(net, group,
                                          {.bucket_cap_bytes = kBucketPerLayer, .first_bucket_bytes = kBucketPerLayer});
  train_in_wrapper(saboteur, group, net, model, [&](const std::function<void()>& body) {
    const auto guard = model->no_sync();
    body();
  });
}

// Other than what the others build: "other model" of one kind per step.
void train_other(const Saboteur& saboteur, const ddp::GroupHandle& group) {
  announce("FAULT");
  const bool has_norm = saboteur.plan().model != "ddp";
  switch (saboteur.plan().step % 4) {
    case 0: {
      auto net = Plain();
      net->register_parameter("third", torch::zeros({2}));
      return train_wrapped(saboteur, group, net);
    }
    case 1: {
      auto net = Plain();
      net->to(torch::kDouble);
      return train_wrapped(saboteur, group, net);
    }
    case 2: {
      if (!has_norm) return train_wrapped(saboteur, group, NormedFaulty());
      auto net = NormedFaulty();
      net->register_buffer("seen", torch::zeros({1}));
      return train_wrapped(saboteur, group, net);
    }
    default:
      return train_wrapped(saboteur, group, Plain(9));
  }
}

void train_shards(const Saboteur& saboteur, const ddp::GroupHandle& group) {
  if (saboteur.does("model")) announce("FAULT");
  Plain net(saboteur.does("model") ? 9 : 8);
  net->to(group.device());
  train_in_wrapper(saboteur, group, net, ddp::fully_shard(net, group, {.units = {ddp::each<torch::nn::Linear>()}}),
                   [](const std::function<void()>& body) { body(); });
}

void train_horovod(const Saboteur& saboteur, ddp::ProcessGroup process_group) {
  ddp::horovod::Context hvd(std::move(process_group));
  const ddp::GroupHandle group = hvd.group();
  if (saboteur.does("model")) announce("FAULT");
  Plain net(saboteur.does("model") ? 9 : 8);
  torch::optim::SGD inner(net->parameters(), 0.01);
  ddp::horovod::DistributedOptimizer optimizer(inner, hvd, {.named_parameters = net->named_parameters().pairs()});
  saboteur.at("wrapped", &group);
  int step = 0;
  net->between = [&](torch::Tensor& y) { between_layers(saboteur, step, group, y); };
  train_with(saboteur, group, step,
             {.forward = [&](const torch::Tensor& x) { return net(x); },
              .zero = [&] { optimizer.zero_grad(); },
              .step = [&] { optimizer.step(); },
              .leave_out = [&](bool leaves_out) { net->leaves_out = leaves_out; }});
  saboteur.at("close", &group);
}

void train_plain(const Saboteur& saboteur, const ddp::GroupHandle& group) {
  if (saboteur.does("model")) announce("FAULT");
  auto weights = torch::zeros({saboteur.does("model") ? 7 : 6}, torch::requires_grad());
  saboteur.at("wrapped", &group);
  int step = 0;
  const auto forward = [&](const torch::Tensor& x) {
    torch::Tensor y = x.sum() * weights;
    between_layers(saboteur, step, group, y);
    return y;
  };
  train_with(saboteur, group, step,
             {.forward = forward,
              .zero = [&] { weights.mutable_grad() = torch::Tensor(); },
              .step =
                  [&] {
                    ddp::all_reduce(weights.mutable_grad(), group);
                    ddp::barrier(group);
                  }});
}

void run_plan(const Plan& plan, int rank) {
  announce("START");
  const Saboteur saboteur(plan, rank);
  saboteur.at("connect");
  const char* backend = std::getenv("FAULT_BACKEND");
  auto group = ddp::init_process_group({.backend = backend == nullptr ? "gloo" : backend, .timeout = plan.timeout});
  const ddp::GroupHandle handle = group;
  saboteur.at("wrap", &handle);
  ddp::manual_seed(1, group);
  if (plan.model == "horovod") return train_horovod(saboteur, std::move(group));
  const bool is_wrapped = plan.model != "plain";
  if (!is_wrapped) {
    train_plain(saboteur, group);
  } else if (plan.model == "shards") {
    train_shards(saboteur, group);
  } else if (saboteur.does("model")) {
    train_other(saboteur, group);
  } else if (plan.model == "ddp") {
    train_wrapped(saboteur, group, Plain());
  } else {
    train_wrapped(saboteur, group, NormedFaulty());
  }
  saboteur.at("close", &handle);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 8) throw std::invalid_argument("usage: fault_program MODEL FAULT PLACE VICTIM STEP DELAY_US TIMEOUT_MS");
  torch::set_num_threads(1);
  run_plan({.model = argv[1],
            .fault = argv[2],
            .place = argv[3],
            .victim = std::stoi(argv[4]),
            .step = std::stoi(argv[5]),
            .delay = std::chrono::microseconds(std::stoi(argv[6])),
            .timeout = std::chrono::milliseconds(std::stoi(argv[7]))},
           ddp::rank_info_from_environment().rank);
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
