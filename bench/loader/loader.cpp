// Images per second of one pass after another over CIFAR-10 images with crop, flip and normalization, in batches of
// 128: `bench_loader ours|libtorch WORKERS SECONDS FOLDER`. LibTorch's loader gets the same work as it is usually
// written for it: a sample at a time, with tensor operations.
#include <ATen/Parallel.h>
#include <ddp/ddp.h>
#include <torch/data.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

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

/// Runs passes for so many seconds, after one to warm up. `pass` returns how many images it had.
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
  const ddp::AugmentedCifar10 augmented(images);
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
  std::printf("%.1f\n", kind == "ours" ? ours(images, workers, seconds) : libtorch(images, workers, seconds));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
