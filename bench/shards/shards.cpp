// Reads archives of samples once: shards PATTERN WORKERS. Prints the samples per second and the peak memory in MB.
#include <ATen/ops/scalar_tensor.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <string>

#include <ddprun/data/loader.h>
#include <ddprun/data/streams.h>
#include <ddprun/samplers/stream_sampler.h>

int main(int /*argc*/, char** words) {
  const ddp::WebDataset dataset(words[1], [](const ddp::ShardSample& sample, ddp::SampleRandom&) {
    return ddp::Batch{.data = at::scalar_tensor(static_cast<double>(sample.bytes("bin").size())),
                      .target = at::scalar_tensor(sample.number_in("cls"), at::kLong)};
  });
  ddp::StreamSampler sampler({.buffer = 100, .num_replicas = 1});
  ddp::Loader loader(dataset, sampler, {.batch_size = 16, .workers = std::stoi(words[2])});
  const auto begin = std::chrono::steady_clock::now();
  int64_t samples = 0;
  for (auto& batch : loader) samples += batch.target.numel();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("%.0f %.1f\n", static_cast<double>(samples) / seconds.count(),
              static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}
