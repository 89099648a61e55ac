// Measures the images per second of passes over CIFAR-10 with crop, flip and normalization, in batches of 128:
// `bench_loader ours|libtorch WORKERS SECONDS FOLDER`. The loader of LibTorch does the same work as usual: one sample
// at a time, with tensor operations. `bench_loader training WORKERS PAIRS FOLDER` prints the milliseconds of a LeNet
// iteration with batches from the loader and with one batch in memory, and the median ratio of all pairs.
#include <ATen/Parallel.h>
#include <torch/data.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <ddprun/ddp.h>

#include "examples/models/lenet.h"

namespace {

constexpr int64_t kBatch = 128;
constexpr ddp::Normalization kNormalization{.mean = {0.4914F, 0.4822F, 0.4465F}, .stddev = {0.247F, 0.2435F, 0.2616F}};

class PerSample : public torch::data::Dataset<PerSample> {
 public:
  explicit PerSample(const ddp::Cifar10& images) : images_(images.images()), labels_(images.labels()) {}

  torch::data::Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    auto image = torch::constant_pad_nd(images_[i], {4, 4, 4, 4});
    const auto place = torch::randint(9, {2}, torch::kLong);
    const auto* at = place.const_data_ptr<int64_t>();
    image = image.narrow(1, at[0], 32).narrow(2, at[1], 32);
    if (torch::rand({1}).item<float>() < 0.5F) image = image.flip({2});
    return {image.to(torch::kFloat).div_(255), labels_[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(labels_.numel()); }

 private:
  torch::Tensor images_;
  torch::Tensor labels_;
};

/// Runs one warm-up pass, then passes for the given number of seconds. `pass` returns the number of images in it.
template <typename Pass>
double images_per_second(double seconds, Pass pass) {
  using Clock = std::chrono::steady_clock;
  pass(0);
  int64_t images = 0;
  const auto start = Clock::now();
  double passed = 0;
  for (int64_t epoch = 1; passed < seconds; ++epoch) {
    images += pass(epoch);
    passed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return static_cast<double>(images) / passed;
}

double ours(const ddp::Cifar10& images, int workers, double seconds) {
  const ddp::AugmentedImages augmented(images);
  ddp::DistributedSampler sampler(images.size());
  ddp::Loader loader(augmented, sampler, {.batch_size = kBatch, .workers = workers});
  return images_per_second(seconds, [&](int64_t epoch) {
    sampler.set_epoch(epoch);
    int64_t count = 0;
    for (auto& batch : loader) count += batch.target.numel();
    return count;
  });
}

double folder(const std::string& root, int workers, double seconds) {
  const ddp::ImageFolder dataset(ddp::list_image_folder(root), {.augment = true});
  ddp::DistributedSampler sampler(dataset.size());
  ddp::Loader loader(dataset, sampler, {.batch_size = 32, .workers = workers});
  return images_per_second(seconds, [&](int64_t epoch) {
    sampler.set_epoch(epoch);
    int64_t count = 0;
    for (auto& batch : loader) count += batch.target.numel();
    return count;
  });
}

// Blocks of iterations of both kinds alternate, so that machine load affects both equally.
void training(const ddp::Cifar10& images, int workers, int pairs) {
  constexpr int kIterations = 10;
  models::LeNet net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto milliseconds = [&](auto next_batch) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kIterations; ++i) {
      const ddp::Batch batch = next_batch();
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net(batch.data), batch.target).backward();
      optimizer.step();
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / kIterations;
  };
  const ddp::AugmentedImages augmented(images);
  ddp::DistributedSampler sampler(images.size(), {.drop_last = true});
  ddp::Loader loader(augmented, sampler, {.batch_size = kBatch, .drop_last = true, .workers = workers});
  int64_t epoch = 0;
  auto batches = loader.begin();
  const auto from_loader = [&] {
    if (batches == loader.end()) {
      sampler.set_epoch(++epoch);
      batches = loader.begin();
    }
    ddp::Batch batch = std::move(*batches);
    ++batches;
    return batch;
  };
  const ddp::Batch kept = from_loader();
  const auto from_memory = [&] { return kept; };
  milliseconds(from_loader);  // warm-up
  std::vector<double> ours, peer, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    ours.push_back(milliseconds(from_loader));
    peer.push_back(milliseconds(from_memory));
    ratios.push_back(peer.back() / ours.back());
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values.at(values.size() / 2);
  };
  std::printf("%.3f %.3f %.4f\n", median(ours), median(peer), median(ratios));
}

double libtorch(const ddp::Cifar10& images, int workers, double seconds) {
  namespace data = torch::data;
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      PerSample(images)
          .map(data::transforms::Normalize<>({0.4914, 0.4822, 0.4465}, {0.247, 0.2435, 0.2616}))
          .map(data::transforms::Stack<>()),
      data::DataLoaderOptions(kBatch).workers(static_cast<size_t>(workers)));
  return images_per_second(seconds, [&](int64_t) {
    int64_t count = 0;
    for (auto& batch : *loader) count += batch.target.numel();
    return count;
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) return 2;
  at::set_num_threads(1);
  const std::string kind = argv[1];
  const int workers = std::stoi(argv[2]);
  const double seconds = std::stod(argv[3]);
  if (kind == "folder") {
    std::printf("%.1f\n", folder(argv[4], workers, seconds));
    return 0;
  }
  const ddp::Cifar10 images(argv[4], ddp::Cifar10::Split::kTrain, kNormalization);
  if (kind == "training") {
    training(images, workers, std::stoi(argv[3]));
    return 0;
  }
  std::printf("%.1f\n", kind == "ours" ? ours(images, workers, seconds) : libtorch(images, workers, seconds));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
