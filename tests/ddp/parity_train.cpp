// One rank of a training job whose every number is determined, for parity_test.py; parity_train.py is its twin in
// Python.
//
//     parity_train CASES FOLDER TIMEOUT_S
//
// CASES holds one training per line, as `name key=value ...`; each is run from scratch in the same process group. After
// the steps that `save_at` names, the bytes of all parameters and buffers go to FOLDER/<name>.step<step>.rank<rank>.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "comm/process_group.h"
#include "comm/report.h"
#include "ddp/distributed_data_parallel.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"

namespace {

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

// Each rank starts from other weights: the wrapper has to take rank 0's.
void initialise(torch::nn::Module& model, int rank) {
  const torch::NoGradGuard no_grad;
  auto random = generator(7 + rank);
  for (const auto& item : model.named_parameters()) {
    torch::Tensor parameter = item.value();
    if (parameter.dim() > 1) {
      const double fan_in = static_cast<double>(parameter.numel() / parameter.size(0));
      parameter.copy_((torch::rand(parameter.sizes(), random) * 2 - 1) / std::sqrt(fan_in));
    } else if (item.key().ends_with("bias")) {
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
    const torch::Tensor dense = tensor.detach().contiguous();
    file.write(static_cast<const char*>(dense.data_ptr()), static_cast<std::streamsize>(dense.nbytes()));
  };
  for (const torch::Tensor& parameter : model.parameters()) write(parameter);
  for (const torch::Tensor& buffer : model.buffers()) write(buffer);
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::set<int64_t> steps_in(const std::string& text) {
  std::set<int64_t> steps;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) steps.insert(std::stoll(word));
  return steps;
}

template <typename Net>
void train(const Case& settings, const std::string& folder, const ddp::ProcessGroup& group, Net net) {
  initialise(*net, group.rank());
  ddp::DdpOptions options{.gradient_as_bucket_view = settings.number("views") != 0};
  if (settings.number("bucket_cap_bytes") > 0) options.bucket_cap_bytes = settings.number("bucket_cap_bytes");
  ddp::DistributedDataParallel<Net> model(net, group, options);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(std::stod(settings.text("lr"))).momentum(0.9));
  const std::set<int64_t> save_at = steps_in(settings.text("save_at"));
  const int64_t accumulate = settings.number("accumulate");
  for (int64_t step = 1; step <= *save_at.rbegin(); ++step) {
    optimizer.zero_grad(settings.number("set_to_none") != 0);
    for (int64_t micro = 0; micro < accumulate; ++micro) {
      const Batch batch = batch_of(settings, (step - 1) * accumulate + micro, group.rank());
      std::optional<ddp::NoSyncGuard> local;
      if (micro + 1 < accumulate) local.emplace(model->no_sync());
      torch::Tensor loss = torch::nn::functional::cross_entropy(model(batch.images), batch.labels);
      (loss / accumulate).backward();
    }
    optimizer.step();
    if (save_at.contains(step)) {
      save(*net,
           folder + "/" + settings.name + ".step" + std::to_string(step) + ".rank" + std::to_string(group.rank()));
    }
  }
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 4) throw std::invalid_argument("usage: parity_train CASES FOLDER TIMEOUT_S");
  at::set_num_threads(1);
  const ddp::ProcessGroup group =
      ddp::init_process_group({.backend = "gloo", .timeout = std::chrono::seconds(std::stoi(arguments[3]))});
  for (const Case& settings : read_cases(arguments[1])) {
    if (settings.text("model") == "lenet") {
      train(settings, arguments[2], group, models::LeNet());
    } else {
      train(settings, arguments[2], group, models::ResNet18(models::ResNetOptions{.num_classes = 10}));
    }
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
