#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/serialize.h>

#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using test::error;
using test::here;
using test::numbers;
using test::run_ranks;
using torch::Tensor;

struct Case {
  std::vector<int64_t> batch{};    // of each rank
  std::vector<int64_t> spatial{};  // no, one, two or three dimensions
  int64_t channels = 1;
  bool channels_last = false;
  double mean = 0;
  double deviation = 1;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track = true;
  uint64_t seed = 0;

  std::vector<int64_t> shape() const {
    std::vector<int64_t> result{std::accumulate(batch.begin(), batch.end(), int64_t{0}), channels};
    result.insert(result.end(), spatial.begin(), spatial.end());
    return result;
  }
  std::string describe() const {
    std::ostringstream text;
    text << "batch " << torch::IntArrayRef(batch) << ", " << channels << " channels, spatial "
         << torch::IntArrayRef(spatial) << (channels_last ? ", channels last" : "") << ", mean " << mean
         << ", deviation " << deviation << ", affine " << affine << ", track " << track << ", seed " << seed;
    return text.str();
  }
};

Case random_case(int ranks, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  Case result{.seed = seed};
  for (int rank = 0; rank < ranks; ++rank) result.batch.push_back(pick(0, 3) == 0 ? 0 : pick(1, 6));
  result.batch[static_cast<size_t>(pick(0, ranks - 1))] += 2;  // two values per channel at least
  const int64_t dimensions = pick(0, 3);
  for (int64_t i = 0; i < dimensions; ++i) result.spatial.push_back(pick(1, dimensions == 1 ? 300 : 14));
  result.channels = pick(0, 4) == 0 ? pick(60, 140) : pick(1, 9);
  result.channels_last = dimensions >= 2 && pick(0, 1) == 0;
  result.deviation = pick(0, 2) == 0 ? 1e-6 : 2;
  result.mean = pick(0, 1) == 0 ? 0 : 3 * result.deviation;
  if (pick(0, 3) == 0) result.eps = 1e-3;
  if (pick(0, 3) == 0) result.momentum = std::nullopt;
  result.affine = pick(0, 3) != 0;
  result.track = pick(0, 3) != 0;
  return result;
}

struct Result {
  Tensor output, input_gradient, weight_gradient, bias_gradient, running_mean, running_var;
};

Tensor in_format(const Tensor& x, const Case& c) {
  if (!c.channels_last) return x.contiguous();
  return x.contiguous(x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d);
}

constexpr int kSteps = 2;

// What LibTorch's batch norm makes of all ranks' batches together, computed in `type`.
Result expected_result(const Case& c, torch::ScalarType input_type, torch::ScalarType type) {
  Result result;
  Tensor weight, bias;
  if (c.affine) {
    weight = (numbers({c.channels}, c.seed + 1) + 2).to(input_type).to(type).requires_grad_();
    bias = numbers({c.channels}, c.seed + 2).to(input_type).to(type).requires_grad_();
  }
  if (c.track) {
    result.running_mean = here(torch::zeros({c.channels}, type));
    result.running_var = here(torch::ones({c.channels}, type));
  }
  for (int step = 0; step < kSteps; ++step) {
    const auto salt = static_cast<uint64_t>(step * 100);
    Tensor x = (numbers(c.shape(), c.seed + 3 + salt) * c.deviation + c.mean).to(input_type).to(type).requires_grad_();
    const double momentum = c.momentum.value_or(1.0 / (step + 1));
    result.output =
        torch::batch_norm(x, weight, bias, result.running_mean, result.running_var, true, momentum, c.eps, false);
    result.output.backward(numbers(c.shape(), c.seed + 4 + salt).to(input_type).to(type));
    result.input_gradient = x.grad();
  }
  if (c.affine) {
    result.weight_gradient = weight.grad();
    result.bias_gradient = bias.grad();
  }
  return result;
}

// This rank's part of it by ddp::SyncBatchNorm; the gradients of the parameters summed over the ranks.
Result actual_result(const Case& c, torch::ScalarType type, const GroupHandle& group) {
  SyncBatchNorm norm(SyncBatchNormOptions(c.channels, group)
                         .eps(c.eps)
                         .momentum(c.momentum)
                         .affine(c.affine)
                         .track_running_stats(c.track));
  norm->to(test::test_device(), type);
  if (c.affine) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(numbers({c.channels}, c.seed + 1) + 2);
    norm->bias.copy_(numbers({c.channels}, c.seed + 2));
  }
  Result result;
  const auto rank = static_cast<size_t>(group.rank());
  const int64_t start = std::accumulate(c.batch.begin(), c.batch.begin() + group.rank(), int64_t{0});
  for (int step = 0; step < kSteps; ++step) {
    const auto salt = static_cast<uint64_t>(step * 100);
    const Tensor all = (numbers(c.shape(), c.seed + 3 + salt) * c.deviation + c.mean).to(type);
    Tensor x = in_format(all.narrow(0, start, c.batch[rank]).clone(), c).requires_grad_();
    result.output = norm(x);
    RANK_CHECK(result.output.sizes() == x.sizes());
    RANK_CHECK(result.output.scalar_type() == type);
    RANK_CHECK((x.numel() == 0 || result.output.strides() == x.strides()));
    result.output.backward(numbers(c.shape(), c.seed + 4 + salt).to(type).narrow(0, start, c.batch[rank]));
    result.input_gradient = x.grad();
  }
  if (c.affine) {
    result.weight_gradient = norm->weight.grad().clone();
    result.bias_gradient = norm->bias.grad().clone();
    all_reduce(result.weight_gradient, group);
    all_reduce(result.bias_gradient, group);
  }
  if (c.track) {
    RANK_CHECK(norm->num_batches_tracked.item<int64_t>() == kSteps);
    result.running_mean = norm->running_mean;
    result.running_var = norm->running_var;
    for (const Tensor& running : {result.running_mean, result.running_var}) {
      const Tensor of_all = all_gather(running, group);
      for (int r = 1; r < group.size(); ++r) {
        RANK_INFO("running statistics differ");
        RANK_CHECK(torch::equal(of_all[r], of_all[0]));
      }
    }
  }
  return result;
}

void expect_equal_to_whole_batch(const Case& c, torch::ScalarType type, const GroupHandle& group, double tolerance) {
  // fp32 is compared with the exact result for the same input: LibTorch's own error is as large as what is allowed
  // here.
  const Result expected = expected_result(c, type, torch::kDouble);
  const Result actual = actual_result(c, type, group);
  const int64_t start = std::accumulate(c.batch.begin(), c.batch.begin() + group.rank(), int64_t{0});
  const int64_t own = c.batch[static_cast<size_t>(group.rank())];
  const auto part = [&](const Tensor& whole) { return whole.narrow(0, start, own); };
  // Gradients can be zero but for rounding: then they are compared with what they are differences of.
  const double normalised = c.deviation / std::sqrt(c.deviation * c.deviation + c.eps);
  const auto compare = [&](const Tensor& a, const Tensor& e, const Tensor& scale, const char* name) {
    if (e.numel() == 0) return;
    const double largest = std::max(scale.abs().max().item<double>(), normalised);
    const double difference = (a.to(torch::kDouble) - e).abs().max().item<double>();
    RANK_INFO(name << ", rank " << group.rank() << ": " << c.describe());
    RANK_CHECK(difference <= tolerance * largest);
  };
  compare(actual.output, part(expected.output), expected.output, "output");
  compare(actual.input_gradient, part(expected.input_gradient), expected.input_gradient, "gradient of the input");
  if (c.affine) {
    compare(actual.weight_gradient, expected.weight_gradient, expected.weight_gradient, "gradient of the weight");
    compare(actual.bias_gradient, expected.bias_gradient, expected.bias_gradient, "gradient of the bias");
  }
  if (c.track) {
    compare(actual.running_mean, expected.running_mean, expected.running_mean, "running mean");
    compare(actual.running_var, expected.running_var, expected.running_var, "running variance");
  }
}

class Property : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Property, "Property: random shapes equal batch norm of the concatenated batch") {
  run([ranks = size()](const GroupHandle& group) {
    for (uint64_t seed = 0; seed < 15; ++seed) {
      const Case c = random_case(ranks, 1000 * seed + static_cast<uint64_t>(ranks));
      expect_equal_to_whole_batch(c, torch::kDouble, group, 1e-12);
      expect_equal_to_whole_batch(c, torch::kFloat, group, 1e-5);
    }
  });
}

TEST_CASE("SyncBatchNorm: an empty rank is safe wherever it is") {
  for (const std::vector<int64_t>& batch :
       {std::vector<int64_t>{0, 4, 3}, std::vector<int64_t>{4, 0, 3}, std::vector<int64_t>{0, 0, 3}}) {
    run_ranks(3, [&](const GroupHandle& group) {
      expect_equal_to_whole_batch({.batch = batch, .spatial = {5, 6}, .channels = 4}, torch::kDouble, group, 1e-12);
    });
  }
}

TEST_CASE("SyncBatchNorm: a batch that is empty everywhere changes nothing") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(3, group));
    auto x = here(torch::empty({0, 3, 4, 4})).requires_grad_();
    const auto y = norm(x);
    RANK_CHECK(y.sizes() == x.sizes());
    y.sum().backward();
    RANK_CHECK(torch::equal(norm->running_mean, here(torch::zeros({3}))));
    RANK_CHECK(torch::equal(norm->running_var, here(torch::ones({3}))));
    RANK_CHECK(torch::equal(norm->weight.grad(), here(torch::zeros({3}))));
  });
}

TEST_CASE("SyncBatchNorm: one value per channel on each rank is enough") {
  run_ranks(2, [](const GroupHandle& group) {
    expect_equal_to_whole_batch({.batch = {1, 1}, .channels = 5}, torch::kDouble, group, 1e-12);
    expect_equal_to_whole_batch({.batch = {0, 2}, .channels = 5}, torch::kDouble, group, 1e-12);
  });
}

TEST_CASE("SyncBatchNorm: other dimensions may differ between ranks") {
  run_ranks(2, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(3, group));
    norm->to(torch::kDouble);
    const int64_t length = group.rank() == 0 ? 7 : 2;
    const auto x = numbers({4, 3, length}, static_cast<uint64_t>(group.rank()));
    const auto y = norm(x);
    const auto rows = [](const Tensor& t) { return t.transpose(1, 2).reshape({-1, 3}); };
    const auto all = torch::cat({rows(numbers({4, 3, 7}, 0)), rows(numbers({4, 3, 2}, 1))});
    const auto expected = torch::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    RANK_CHECK(error(rows(y), group.rank() == 0 ? expected.narrow(0, 0, 28) : expected.narrow(0, 28, 8)) < 1e-12);
  });
}

TEST_CASE("SyncBatchNorm: large means are no worse than in plain batch norm") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool channels_last : {false, true}) {
      const Case c{.batch = {8, 8}, .spatial = {16, 16}, .channels = 6, .channels_last = channels_last, .mean = 1e4};
      const Result exact = expected_result(c, torch::kFloat, torch::kDouble);
      const Result plain = expected_result(c, torch::kFloat, torch::kFloat);
      const Result ours = actual_result(c, torch::kFloat, group);
      const auto part = [&](const Tensor& whole) { return whole.narrow(0, 8 * group.rank(), 8); };
      RANK_CHECK(error(ours.output, part(exact.output)) <= 2 * error(plain.output, exact.output));
      RANK_CHECK(error(ours.input_gradient, part(exact.input_gradient)) <=
                 2 * error(plain.input_gradient, exact.input_gradient));
      RANK_CHECK(error(ours.weight_gradient, exact.weight_gradient) <=
                 2 * error(plain.weight_gradient, exact.weight_gradient));
      RANK_CHECK(error(ours.running_var, exact.running_var) < 1e-6);
      RANK_INFO("the mean is subtracted before it can hide the rest");
      RANK_CHECK(error(ours.output, part(exact.output)) < 1e-6);
    }
  });
}

TEST_CASE("SyncBatchNorm: tiny variances keep their digits") {
  run_ranks(2, [](const GroupHandle& group) {
    expect_equal_to_whole_batch({.batch = {5, 3},
                                 .spatial = {9, 9},
                                 .channels = 4,
                                 .mean = 0.5,
                                 .deviation = 1e-6,
                                 .eps = 1e-16,
                                 .momentum = 1},
                                torch::kDouble, group, 1e-9);  // the input itself has 10 digits of its deviation
    auto norm = test::placed(SyncBatchNorm(SyncBatchNormOptions(2, group).momentum(1)));
    const auto x = (numbers({50, 2}, 7) * 1e-12).to(torch::kFloat);
    norm(x.narrow(0, 25 * group.rank(), 25));
    RANK_CHECK(error(norm->running_var, x.to(torch::kDouble).var(0)) < 1e-6);
  });
}

TEST_CASE("SyncBatchNorm: sixteen bit inputs have statistics in single precision") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
      for (const bool channels_last : {false, true}) {
        auto norm = test::placed(SyncBatchNorm(4, group));
        const Case c{.channels_last = channels_last};
        const Tensor all = (numbers({6, 4, 9, 5}, 3) * 2 + 1).to(type);
        Tensor x = in_format(all.narrow(0, 3 * group.rank(), 3).clone(), c).requires_grad_();
        const Tensor y = norm(x);
        RANK_CHECK(y.scalar_type() == type);
        RANK_CHECK(norm->running_mean.scalar_type() == torch::kFloat);
        const Tensor dy = numbers(all.sizes(), 4).to(type);
        y.backward(dy.narrow(0, 3 * group.rank(), 3));

        Tensor whole = all.to(torch::kDouble).requires_grad_();
        Tensor mean = here(torch::zeros({4}, torch::kDouble));
        Tensor var = here(torch::ones({4}, torch::kDouble));
        const Tensor expected = torch::batch_norm(whole, {}, {}, mean, var, true, 0.1, 1e-5, false);
        expected.backward(dy.to(torch::kDouble));
        const double rounding = type == torch::kHalf ? 1e-3 : 8e-3;
        RANK_CHECK(error(y, expected.narrow(0, 3 * group.rank(), 3)) < rounding);
        RANK_CHECK(error(x.grad(), whole.grad().narrow(0, 3 * group.rank(), 3)) < rounding);
        RANK_CHECK(error(norm->running_mean, mean) < 1e-5);
        RANK_CHECK(error(norm->running_var, var) < 1e-5);
        RANK_CHECK(norm->weight.grad().scalar_type() == torch::kFloat);
      }
    }
  });
}

TEST_CASE("SyncBatchNorm: works under autocast") {
  run_ranks(2, [](const GroupHandle& group) {
    auto convolution = test::placed(torch::nn::Conv2d(3, 4, 3));
    auto norm = test::placed(SyncBatchNorm(4, group));
    const c10::DeviceType kind = test::test_device().type();
    const bool before = at::autocast::is_autocast_enabled(kind);
    at::autocast::set_autocast_enabled(kind, true);
    const auto y = norm(convolution(numbers({2, 3, 8, 8}, 1, torch::kFloat)));
    at::autocast::set_autocast_enabled(kind, before);
    at::autocast::clear_cache();
    RANK_CHECK(y.scalar_type() == at::autocast::get_autocast_dtype(kind));
    y.sum().backward();
    RANK_CHECK(convolution->weight.grad().isfinite().all().item<bool>());
    RANK_CHECK(norm->running_var.scalar_type() == torch::kFloat);
  });
}

TEST_CASE("SyncBatchNorm: eval mode equals batch norm and communicates nothing") {
  // A rank without connections: a collective would throw.
  auto norm = test::placed(SyncBatchNorm(3, test::unconnected_rank(0, 2)));
  auto plain = test::placed(torch::nn::BatchNorm2d(3));
  norm->eval();
  plain->eval();
  for (auto* mean : {&norm->running_mean, &plain->running_mean}) mean->copy_(numbers({3}, 1));
  Tensor x = numbers({2, 3, 4, 4}, 2, torch::kFloat).requires_grad_();
  CHECK(torch::equal(norm(x), plain(x)));
  norm(x).sum().backward();
  norm->train();
  CHECK_THROWS(norm(x));

  auto untracked =
      test::placed(SyncBatchNorm(SyncBatchNormOptions(3, test::unconnected_rank(0, 2)).track_running_stats(false)));
  untracked->eval();
  auto plain_untracked =
      test::placed(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(3).track_running_stats(false)));
  CHECK(torch::equal(untracked(x), plain_untracked(x)));
}

TEST_CASE("SyncBatchNorm: a group of one is batch norm") {
  run_ranks(1, [](const GroupHandle& group) {
    auto norm = test::placed(SyncBatchNorm(3, group));
    auto plain = test::placed(torch::nn::BatchNorm1d(3));
    const Tensor x = numbers({5, 3}, 1, torch::kFloat);
    RANK_CHECK(torch::equal(norm(x), plain(x)));
    RANK_CHECK(torch::equal(norm->running_var, plain->running_var));
    RANK_INFO("one value per channel");
    RANK_CHECK_THROWS_AS(norm(numbers({1, 3}, 1, torch::kFloat)), std::exception);
  });
}

TEST_CASE("SyncBatchNorm: has the names the printing and the clones of a module") {
  const auto group = test::unconnected_rank(0, 2);
  auto norm = test::placed(
      SyncBatchNorm(SyncBatchNormOptions(torch::nn::BatchNormOptions(3).eps(1e-3).momentum(std::nullopt), group)));
  auto plain = test::placed(torch::nn::BatchNorm2d(3));
  const auto keys = [](const auto& named) {
    std::vector<std::string> names;
    for (const auto& item : named) names.push_back(item.key());
    return names;
  };
  CHECK(keys(norm->named_parameters()) == keys(plain->named_parameters()));
  CHECK(keys(norm->named_buffers()) == keys(plain->named_buffers()));
  std::ostringstream text;
  text << *norm;
  CHECK(text.str() == "ddp::SyncBatchNorm(3, eps=0.001, momentum=None, affine=true, track_running_stats=true)");

  norm->running_mean.fill_(5);
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  REQUIRE(copy);
  CHECK(torch::equal(copy->running_mean, norm->running_mean));
  std::stringstream stream;
  torch::save(norm, stream);
  torch::nn::BatchNorm2d loaded(3);
  torch::load(loaded, stream);
  CHECK(torch::equal(loaded->running_mean, norm->running_mean));
}

}  // namespace
}  // namespace ddp
