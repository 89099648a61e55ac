#include "bench/ddp/overlap.h"

#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/ddp/distributed_data_parallel.h>

namespace bench {
namespace {

// The 12.6 MB of gradients in 12 layers take about 105 ms over 1 Gbit/s. Backward takes two thirds of that time, so
// that the communication of the two ranks still gets processor time on two cores.
constexpr int kLayers = 12;
constexpr int64_t kWidth = 512;
constexpr int64_t kStackBatch = 512;
constexpr int kMaxTuningSteps = 100;

struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < kLayers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Stack);

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

class Measurement {
 public:
  explicit Measurement(const ddp::GroupHandle& group)
      : group_(group),
        model_(net_, group, ddp::DdpOptions{.bucket_cap_bytes = ddp::kAutoBucketCap}),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(1e-4).momentum(0.9)),
        input_(torch::randn({kStackBatch, kWidth})) {
    // Gradients become ready from the last layer to the first.
    for (auto& parameter : net_->parameters()) {
      parameter.register_hook([this, bytes = static_cast<int64_t>(parameter.nbytes())](const torch::Tensor& gradient) {
        ready_bytes_ += bytes;
        if (!first_bucket_ && !buckets_.empty() && ready_bytes_ >= buckets_.front())
          first_bucket_ = since(backward_begin_);
        return gradient;
      });
    }
  }

  std::string run(int64_t steps) {
    for (int step = 0; step < kMaxTuningSteps && !model_->logging_data().bucket_cap_settled; ++step) train(true);
    train(true);
    buckets_ = model_->logging_data().bucket_bytes;
    std::vector<double> whole, forward, optimizer, backward, communication, first_bucket;
    for (int64_t step = 0; step < steps; ++step) {
      ddp::barrier(group_);
      const auto begin = Clock::now();
      train(true);
      whole.push_back(since(begin));
      ddp::barrier(group_);
      const auto parts = train(false);
      forward.push_back(parts.forward);
      backward.push_back(parts.backward);
      optimizer.push_back(parts.optimizer);
      first_bucket.push_back(first_bucket_.value());
      ddp::barrier(group_);
      communication.push_back(reduce_buckets());
    }
    std::ostringstream text;
    text << median(whole) << ' ' << median(forward) << ' ' << median(optimizer) << ' ' << median(backward) << ' '
         << median(communication) << ' ' << median(first_bucket) << ' ' << model_->logging_data().bucket_cap_bytes;
    return text.str();
  }

 private:
  struct Parts {
    double forward, backward, optimizer;
  };

  Parts train(bool reduces) {
    std::optional<ddp::NoSyncGuard> local;
    if (!reduces) local.emplace(model_->no_sync());
    optimizer_.zero_grad();
    Parts parts{};
    auto begin = Clock::now();
    const torch::Tensor loss = model_(input_).square().mean();
    parts.forward = since(begin);
    ready_bytes_ = 0;
    first_bucket_.reset();
    backward_begin_ = begin = Clock::now();
    loss.backward();
    parts.backward = since(begin);
    begin = Clock::now();
    optimizer_.step();
    parts.optimizer = since(begin);
    return parts;
  }

  double reduce_buckets() const {
    std::vector<torch::Tensor> flat;
    for (const int64_t bytes : buckets_) flat.push_back(torch::zeros({bytes / 4}));
    const auto begin = Clock::now();
    for (const auto& bucket : flat) ddp::all_reduce(bucket, group_);
    return since(begin);
  }

  ddp::GroupHandle group_;
  Stack net_;
  ddp::DistributedDataParallel<Stack> model_;
  torch::optim::SGD optimizer_;
  torch::Tensor input_;
  std::vector<int64_t> buckets_;
  int64_t ready_bytes_ = 0;
  Clock::time_point backward_begin_;
  std::optional<double> first_bucket_;
};

}  // namespace

std::string measure_overlap(const ddp::GroupHandle& group, int64_t steps) {
  return Measurement(group).run(steps);
}

}  // namespace bench
