// One rank of a training job whose every number is determined, for parity_test.py; parity_program.py is its twin in
// Python.
//
//     parity_program CASES FOLDER TIMEOUT_S
//
// CASES holds one training per line, as `name key=value ...`; each is run from scratch in the same process group. After
// the steps that `save_at` names, the bytes of all parameters and buffers go to FOLDER/<name>.step<step>.rank<rank>.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>

#include "examples/models/lenet.h"
#include "examples/models/resnet.h"

namespace {

// Small models, each about one feature; parity_program.py has the same. They read the first features of each image.
constexpr int64_t kFeatures = 8;

torch::Tensor features(const torch::Tensor& images) {
  return images.flatten(1).narrow(1, 0, kFeatures);
}

// 200 layers, so 400 parameters and a head.
struct Tiny200Impl : torch::nn::Module {
  Tiny200Impl() {
    for (int i = 0; i < 200; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kFeatures, kFeatures)));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor x = features(images);
    for (auto& layer : layers) x = x + torch::tanh(layer(x)) * 0.05;
    return head(x);
  }
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 10));
};
TORCH_MODULE(Tiny200);

// One layer under two names, used twice.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("first", shared);
    register_module("second", shared);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return head(torch::tanh(shared(torch::tanh(shared(features(images))))));
  }
  torch::nn::Linear shared{kFeatures, kFeatures};
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 10));
};
TORCH_MODULE(Tied);

struct FrozenImpl : torch::nn::Module {
  FrozenImpl() {
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return head(torch::tanh(frozen(torch::tanh(trained(features(images))))));
  }
  torch::nn::Linear trained = register_module("trained", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 10));
};
TORCH_MODULE(Frozen);

// `turn` chooses the branch: some are unused on one rank, some on all.
struct BranchesImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    torch::nn::Linear branches[] = {first, second, third};
    return head(torch::tanh(branches[turn % 3](features(images))));
  }
  int64_t turn = 0;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear third = register_module("third", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 10));
};
TORCH_MODULE(Branches);

// For static graphs: a layer that is never used and one that is used twice.
struct StaticImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    return head(torch::tanh(twice(torch::tanh(twice(features(images))))));
  }
  torch::nn::Linear never = register_module("never", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear twice = register_module("twice", torch::nn::Linear(kFeatures, kFeatures));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(kFeatures, 10));
};
TORCH_MODULE(Static);

// Buffers that have to be broadcast.
struct NormedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) { return head(torch::tanh(norm(body(features(images))))); }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(kFeatures, 16));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 10));
};
TORCH_MODULE(Normed);

// Sparse gradients: the images' signs choose rows.
struct SparseImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor rows = (features(images) > 0).to(torch::kLong) + torch::arange(kFeatures, images.device()) * 2;
    return head(table(rows).sum(1));
  }
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(2 * kFeatures, 6).sparse(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6, 10));
};
TORCH_MODULE(Sparse);

struct Case {
  std::string name;
  std::map<std::string, std::string> settings;

  const std::string& text(const std::string& key) const { return settings.at(key); }
  int64_t number(const std::string& key) const { return std::stoll(settings.at(key)); }
};

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Case next;
    words >> next.name;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      next.settings[word.substr(0, equals)] = word.substr(equals + 1);
    }
    cases.push_back(std::move(next));
  }
  if (cases.empty()) throw std::runtime_error("no cases in " + path);
  return cases;
}

at::Generator generator(int64_t seed) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
}

// LibTorch's named_parameters() repeats what is shared, Python's does not.
std::vector<std::pair<std::string, torch::Tensor>> parameters_once(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, torch::Tensor>> result;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : model.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.emplace_back(item.key(), item.value());
  }
  return result;
}

// Each rank starts from other weights: the wrapper has to take rank 0's.
void initialise(torch::nn::Module& model, int rank) {
  const torch::NoGradGuard no_grad;
  auto random = generator(7 + rank);
  for (auto& [name, parameter] : parameters_once(model)) {
    if (parameter.dim() > 1) {
      const double fan_in = static_cast<double>(parameter.numel() / parameter.size(0));
      parameter.copy_((torch::rand(parameter.sizes(), random) * 2 - 1) / std::sqrt(fan_in));
    } else if (name.ends_with("bias")) {
      parameter.zero_();
    }
  }
}

struct Batch {
  torch::Tensor images;
  torch::Tensor labels;
};

Batch draw(int64_t step, int part, int64_t size) {
  auto random = generator(1'000'003 * step + 17 * part + 1);
  Batch batch;
  batch.images = torch::randn({size, 3, 32, 32}, random);
  batch.labels = torch::randint(0, 10, {size}, random, torch::kLong);
  return batch;
}

// This rank's part of a step; a single process takes the parts of `replaces` ranks at once.
Batch batch_of(const Case& settings, int64_t step, int rank) {
  const int64_t size = settings.number("batch");
  const int64_t parts = settings.number("replaces");
  if (parts == 1) return draw(step, rank, size);
  std::vector<torch::Tensor> images;
  std::vector<torch::Tensor> labels;
  for (int part = 0; part < parts; ++part) {
    Batch batch = draw(step, part, size);
    images.push_back(batch.images);
    labels.push_back(batch.labels);
  }
  return {torch::cat(images), torch::cat(labels)};
}

void save(const torch::nn::Module& model, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const auto write = [&](const torch::Tensor& tensor) {
    const torch::Tensor dense = tensor.detach().cpu().contiguous();
    file.write(static_cast<const char*>(dense.data_ptr()), static_cast<std::streamsize>(dense.nbytes()));
  };
  for (const auto& [name, parameter] : parameters_once(model)) write(parameter);
  for (const torch::Tensor& buffer : model.buffers()) write(buffer);
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) numbers.push_back(std::stoll(word));
  return numbers;
}

std::set<int64_t> steps_in(const std::string& text) {
  const std::vector<int64_t> numbers = numbers_in(text);
  return {numbers.begin(), numbers.end()};
}

void take_turn(Branches& net, int64_t turn) {
  net->turn = turn;
}
template <typename Net>
void take_turn(Net& /*net*/, int64_t /*turn*/) {}

ddp::CommHook hook_named(const std::string& name, const ddp::ProcessGroup& group) {
  if (name == "fp16") return ddp::hooks::fp16_compress(group);
  if (name == "bf16") return ddp::hooks::bf16_compress(group);
  if (name == "allreduce") return ddp::hooks::all_reduce(group);
  if (name == "fp16_wrapped") return ddp::hooks::fp16_compress_wrapper(ddp::hooks::all_reduce(group));
  if (name.starts_with("power_sgd")) {
    return ddp::hooks::power_sgd(ddp::make_power_sgd_state(
        group, {.matrix_approximation_rank = std::stoll(name.substr(9)), .start_iteration = 5}));
  }
  return nullptr;
}

// For `die` = RANK:STEP: that rank is killed in the middle of that step's backward.
void prepare_to_die(const Case& settings, torch::nn::Module& net, int rank, const int64_t& step) {
  const std::string& die = settings.text("die");
  const auto colon = die.find(':');
  if (colon == std::string::npos || std::stoi(die.substr(0, colon)) != rank) return;
  net.parameters().back().register_hook(
      [&step, last = std::stoll(die.substr(colon + 1))](const torch::Tensor& gradient) {
        if (step == last) std::raise(SIGKILL);
        return gradient;
      });
}

template <typename Net>
void train(const Case& settings, const std::string& folder, const ddp::ProcessGroup& group, Net net) {
  const c10::Device device = settings.text("device") == "cuda" ? group.device() : c10::Device(c10::kCPU);
  initialise(*net, group.rank());
  net->to(device);
  ddp::DdpOptions options{.find_unused_parameters = settings.number("find_unused") != 0,
                          .static_graph = settings.number("static") != 0,
                          .gradient_as_bucket_view = settings.number("views") != 0,
                          .lazy_bucket_allocation = settings.number("lazy") != 0,
                          .comm_hook = hook_named(settings.text("hook"), group)};
  if (settings.number("batched") != 0) options.batched_grad_copy = true;
  if (settings.number("delayed") != 0) {
    options.delayed = {.names = {"fc3.weight", "fc3.bias", "fc2.bias"}, .trigger = "conv1.weight"};
  }
  if (settings.text("bucket_end") != "no") options.bucket_ends = {settings.text("bucket_end")};
  if (settings.number("bucket_cap_bytes") < 0) options.bucket_cap_bytes = ddp::kAutoBucketCap;
  if (settings.number("bucket_cap_bytes") > 0) options.bucket_cap_bytes = settings.number("bucket_cap_bytes");
  if (settings.text("bucket_cap_bytes_list") != "no") {
    options.bucket_cap_bytes_list = numbers_in(settings.text("bucket_cap_bytes_list"));
  }
  if (settings.number("forward_sync") >= 0) options.forward_sync_buffers = settings.number("forward_sync") != 0;
  ddp::DistributedDataParallel<Net> model(net, group, options);
  std::vector<torch::Tensor> parameters;  // an optimizer steps twice on what it is given twice
  for (const auto& [name, parameter] : parameters_once(*net)) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(std::stod(settings.text("lr"))).momentum(0.9));
  const bool mixed = settings.number("amp") != 0;
  ddp::GradScaler scaler({.enabled = mixed});
  const std::set<int64_t> save_at = steps_in(settings.text("save_at"));
  const int64_t accumulate = settings.number("accumulate");
  const auto save_after = [&](int64_t step) {
    save(*net, folder + "/" + settings.name + ".step" + std::to_string(step) + ".rank" + std::to_string(group.rank()));
  };
  int64_t current_step = 0;
  prepare_to_die(settings, *net, group.rank(), current_step);
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      current_step = step;
      optimizer.zero_grad(settings.number("set_to_none") != 0);
      for (int64_t micro = 0; micro < accumulate; ++micro) {
        const int64_t number = (step - 1) * accumulate + micro;
        const bool micro_is_rank = settings.number("micro_is_rank") != 0;  // one process in place of `accumulate` ranks
        Batch batch = micro_is_rank ? batch_of(settings, step - 1, static_cast<int>(micro))
                                    : batch_of(settings, number, group.rank());
        batch = {batch.images.to(device), batch.labels.to(device)};
        take_turn(net, number % 4 == 3 ? 0 : number + group.rank());
        std::optional<ddp::NoSyncGuard> local;
        if (micro + 1 < accumulate) local.emplace(model->no_sync());
        torch::Tensor loss;
        {
          const ddp::Autocast autocast(device, {.enabled = mixed});
          loss = torch::nn::functional::cross_entropy(model(batch.images), batch.labels);
        }
        scaler.scale(loss / accumulate).backward();
      }
      scaler.step(optimizer);
      scaler.update();
      if (settings.text("join") == "no" && save_at.contains(step)) save_after(step);
    }
  };
  const int64_t steps = *save_at.rbegin();
  if (settings.text("join") == "no") {
    run(1, steps);
    if (settings.number("odd") < 0) return;
    const torch::Tensor value = torch::ones({3});  // the odd rank calls another collective than the others
    group.rank() == settings.number("odd") ? ddp::broadcast(value, 0, group) : ddp::all_reduce(value, group);
    return;
  }
  // Ranks have 2 inputs less than the next one; twice, for what lasts from one join to the next.
  for (const int64_t epoch : {0, 1}) {
    const ddp::JoinOptions how{.divide_by_initial_world_size = settings.text("join") == "initial"};
    const int64_t inputs = steps - 2 * (group.size() - 1 - group.rank());
    model->join([&] { run(epoch * steps + 1, epoch * steps + inputs); }, how);
  }
  save_after(steps);
}

// On the CPU the default, also on a machine with GPUs; it is gloo beside ranks that run Python. Cases on CUDA: NCCL for
// a rank alone, gloo for ranks that share the first GPU.
ddp::ProcessGroup connect(const std::vector<Case>& cases, std::chrono::seconds timeout) {
  const char* on_cpu = std::getenv("DDPRUN_CPU_BACKEND");
  ddp::ProcessGroupOptions options{.backend = on_cpu != nullptr ? on_cpu : "shm", .timeout = timeout};
  if (cases.front().text("device") == "cuda") {
    options.backend = "gloo";
    options.device = c10::Device(c10::kCUDA, 0);
    at::globalContext().setDeterministicCuDNN(true);
    if (std::string(std::getenv("WORLD_SIZE")) == "1") options.backend = "cpu:gloo,cuda:nccl";
  }
  return ddp::init_process_group(options);
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 4) throw std::invalid_argument("usage: parity_program CASES FOLDER TIMEOUT_S");
  at::set_num_threads(1);
  const std::vector<Case> cases = read_cases(arguments[1]);
  const ddp::ProcessGroup group = connect(cases, std::chrono::seconds(std::stoi(arguments[3])));
  for (const Case& settings : cases) {
    const std::string folder = arguments[2];
    const std::string& model = settings.text("model");
    if (model == "lenet") train(settings, folder, group, models::LeNet());
    if (model == "resnet18") train(settings, folder, group, models::ResNet18(models::ResNetOptions{.num_classes = 10}));
    if (model == "tiny200") train(settings, folder, group, Tiny200());
    if (model == "tied") train(settings, folder, group, Tied());
    if (model == "frozen") train(settings, folder, group, Frozen());
    if (model == "branches") train(settings, folder, group, Branches());
    if (model == "static") train(settings, folder, group, Static());
    if (model == "normed") train(settings, folder, group, Normed());
    if (model == "sparse") train(settings, folder, group, Sparse());
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
