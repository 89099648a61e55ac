#include "syncbn/sync_batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/serialize.h>

#include <numeric>
#include <random>

#include "comm/collectives.h"
#include "tests/support/ranks.h"
#include "tests/syncbn/numbers.h"

namespace ddp {
namespace {

using test::error;
using test::numbers;
using test::run_ranks;
using test::Wire;
using testing::AllOf;
using testing::HasSubstr;
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
    result.running_mean = torch::zeros({c.channels}, type);
    result.running_var = torch::ones({c.channels}, type);
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
  norm->to(type);
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
    EXPECT_EQ(result.output.sizes(), x.sizes());
    EXPECT_EQ(result.output.scalar_type(), type);
    EXPECT_TRUE(x.numel() == 0 || result.output.strides() == x.strides());
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
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), kSteps);
    result.running_mean = norm->running_mean;
    result.running_var = norm->running_var;
    for (const Tensor& running : {result.running_mean, result.running_var}) {
      const Tensor of_all = all_gather(running, group);
      for (int r = 1; r < group.size(); ++r)
        EXPECT_TRUE(torch::equal(of_all[r], of_all[0])) << "running statistics differ";
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
    EXPECT_LE(difference, tolerance * largest) << name << ", rank " << group.rank() << ": " << c.describe();
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

class Property : public testing::TestWithParam<std::tuple<Wire, int>> {};

INSTANTIATE_TEST_SUITE_P(Wires, Property,
                         testing::Combine(testing::Values(Wire::kGloo, Wire::kLate), testing::Values(1, 2, 3, 4)));

TEST_P(Property, random_shapes_equal_batch_norm_of_the_concatenated_batch) {
  const auto [wire, size] = GetParam();
  run_ranks(size,
            [&, ranks = size](const GroupHandle& group) {
              for (uint64_t seed = 0; seed < 15; ++seed) {
                const Case c = random_case(ranks, 1000 * seed + static_cast<uint64_t>(ranks));
                expect_equal_to_whole_batch(c, torch::kDouble, group, 1e-12);
                expect_equal_to_whole_batch(c, torch::kFloat, group, 1e-5);
              }
            },
            {.wire = wire});
}

TEST(SyncBatchNormTest, an_empty_rank_is_safe_wherever_it_is) {
  for (const std::vector<int64_t>& batch :
       {std::vector<int64_t>{0, 4, 3}, std::vector<int64_t>{4, 0, 3}, std::vector<int64_t>{0, 0, 3}}) {
    run_ranks(3, [&](const GroupHandle& group) {
      expect_equal_to_whole_batch({.batch = batch, .spatial = {5, 6}, .channels = 4}, torch::kDouble, group, 1e-12);
    });
  }
}

TEST(SyncBatchNormTest, a_batch_that_is_empty_everywhere_changes_nothing) {
  run_ranks(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(3, group);
    auto x = torch::empty({0, 3, 4, 4}).requires_grad_();
    const auto y = norm(x);
    EXPECT_EQ(y.sizes(), x.sizes());
    y.sum().backward();
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::zeros({3})));
    EXPECT_TRUE(torch::equal(norm->running_var, torch::ones({3})));
    EXPECT_TRUE(torch::equal(norm->weight.grad(), torch::zeros({3})));
  });
}

TEST(SyncBatchNormTest, one_value_per_channel_on_each_rank_is_enough) {
  run_ranks(2, [](const GroupHandle& group) {
    expect_equal_to_whole_batch({.batch = {1, 1}, .channels = 5}, torch::kDouble, group, 1e-12);
    expect_equal_to_whole_batch({.batch = {0, 2}, .channels = 5}, torch::kDouble, group, 1e-12);
  });
}

TEST(SyncBatchNormTest, other_dimensions_may_differ_between_ranks) {
  run_ranks(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(3, group);
    norm->to(torch::kDouble);
    const int64_t length = group.rank() == 0 ? 7 : 2;
    const auto x = numbers({4, 3, length}, static_cast<uint64_t>(group.rank()));
    const auto y = norm(x);
    const auto rows = [](const Tensor& t) { return t.transpose(1, 2).reshape({-1, 3}); };
    const auto all = torch::cat({rows(numbers({4, 3, 7}, 0)), rows(numbers({4, 3, 2}, 1))});
    const auto expected = torch::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    EXPECT_LT(error(rows(y), group.rank() == 0 ? expected.narrow(0, 0, 28) : expected.narrow(0, 28, 8)), 1e-12);
  });
}

TEST(SyncBatchNormTest, large_means_are_no_worse_than_in_plain_batch_norm) {
  run_ranks(2, [](const GroupHandle& group) {
    for (const bool channels_last : {false, true}) {
      const Case c{.batch = {8, 8}, .spatial = {16, 16}, .channels = 6, .channels_last = channels_last, .mean = 1e4};
      const Result exact = expected_result(c, torch::kFloat, torch::kDouble);
      const Result plain = expected_result(c, torch::kFloat, torch::kFloat);
      const Result ours = actual_result(c, torch::kFloat, group);
      const auto part = [&](const Tensor& whole) { return whole.narrow(0, 8 * group.rank(), 8); };
      EXPECT_LE(error(ours.output, part(exact.output)), 2 * error(plain.output, exact.output));
      EXPECT_LE(error(ours.input_gradient, part(exact.input_gradient)),
                2 * error(plain.input_gradient, exact.input_gradient));
      EXPECT_LE(error(ours.weight_gradient, exact.weight_gradient),
                2 * error(plain.weight_gradient, exact.weight_gradient));
      EXPECT_LT(error(ours.running_var, exact.running_var), 1e-6);
      EXPECT_LT(error(ours.output, part(exact.output)), 1e-6) << "the mean is subtracted before it can hide the rest";
    }
  });
}

TEST(SyncBatchNormTest, tiny_variances_keep_their_digits) {
  run_ranks(2, [](const GroupHandle& group) {
    expect_equal_to_whole_batch({.batch = {5, 3},
                                 .spatial = {9, 9},
                                 .channels = 4,
                                 .mean = 0.5,
                                 .deviation = 1e-6,
                                 .eps = 1e-16,
                                 .momentum = 1},
                                torch::kDouble, group, 1e-9);  // the input itself has 10 digits of its deviation
    SyncBatchNorm norm(SyncBatchNormOptions(2, group).momentum(1));
    const auto x = (numbers({50, 2}, 7) * 1e-12).to(torch::kFloat);
    norm(x.narrow(0, 25 * group.rank(), 25));
    EXPECT_LT(error(norm->running_var, x.to(torch::kDouble).var(0)), 1e-6);
  });
}

TEST(SyncBatchNormTest, gradients_equal_finite_differences_through_two_ranks) {
  run_ranks(2, [](const GroupHandle& group) {
    // A loss whose gradient by this rank's input runs through the other rank's output.
    SyncBatchNorm norm(SyncBatchNormOptions(3, group).track_running_stats(false));
    norm->to(torch::kDouble);
    const auto rank = static_cast<uint64_t>(group.rank());
    const Tensor x = numbers({group.rank() == 0 ? 3 : 2, 3, 2, 2}, rank + 1);
    const Tensor weights = numbers(x.sizes(), rank + 10);
    const auto loss_of_all = [&](const Tensor& input) {
      const torch::NoGradGuard no_grad;
      Tensor loss = (norm(input).tanh() * weights).sum();
      all_reduce(loss, group);
      return loss.item<double>();
    };
    Tensor leaf = x.clone().requires_grad_();
    (norm(leaf).tanh() * weights).sum().backward();

    constexpr double kStep = 1e-6;
    for (int owner = 0; owner < 2; ++owner) {
      for (int64_t i = 0; i < (owner == 0 ? 36 : 24); ++i) {
        const auto moved = [&](double by) {
          Tensor input = x.clone();
          if (owner == group.rank()) input.view({-1})[i] += by;
          return input;
        };
        const double difference = (loss_of_all(moved(kStep)) - loss_of_all(moved(-kStep))) / (2 * kStep);
        if (owner == group.rank()) {
          EXPECT_NEAR(leaf.grad().view({-1})[i].item<double>(), difference, 1e-7);
        }
      }
    }
    // The parameters' gradients are this rank's own part.
    for (Tensor* parameter : {&norm->weight, &norm->bias}) {
      for (int64_t i = 0; i < 3; ++i) {
        const torch::NoGradGuard no_grad;
        const auto loss_at = [&](double by) {
          parameter->index({i}) += by;
          const double loss = (norm(x).tanh() * weights).sum().item<double>();
          parameter->index({i}) -= by;
          return loss;
        };
        const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
        EXPECT_NEAR(parameter->grad()[i].item<double>(), difference, 1e-7);
      }
    }
  });
}

TEST(SyncBatchNormTest, sixteen_bit_inputs_have_statistics_in_single_precision) {
  run_ranks(2, [](const GroupHandle& group) {
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
      for (const bool channels_last : {false, true}) {
        SyncBatchNorm norm(4, group);
        const Case c{.channels_last = channels_last};
        const Tensor all = (numbers({6, 4, 9, 5}, 3) * 2 + 1).to(type);
        Tensor x = in_format(all.narrow(0, 3 * group.rank(), 3).clone(), c).requires_grad_();
        const Tensor y = norm(x);
        EXPECT_EQ(y.scalar_type(), type);
        EXPECT_EQ(norm->running_mean.scalar_type(), torch::kFloat);
        const Tensor dy = numbers(all.sizes(), 4).to(type);
        y.backward(dy.narrow(0, 3 * group.rank(), 3));

        Tensor whole = all.to(torch::kDouble).requires_grad_();
        Tensor mean = torch::zeros({4}, torch::kDouble);
        Tensor var = torch::ones({4}, torch::kDouble);
        const Tensor expected = torch::batch_norm(whole, {}, {}, mean, var, true, 0.1, 1e-5, false);
        expected.backward(dy.to(torch::kDouble));
        const double rounding = type == torch::kHalf ? 1e-3 : 8e-3;
        EXPECT_LT(error(y, expected.narrow(0, 3 * group.rank(), 3)), rounding);
        EXPECT_LT(error(x.grad(), whole.grad().narrow(0, 3 * group.rank(), 3)), rounding);
        EXPECT_LT(error(norm->running_mean, mean), 1e-5);
        EXPECT_LT(error(norm->running_var, var), 1e-5);
        EXPECT_EQ(norm->weight.grad().scalar_type(), torch::kFloat);
      }
    }
  });
}

TEST(SyncBatchNormTest, works_under_autocast) {
  run_ranks(2, [](const GroupHandle& group) {
    torch::nn::Conv2d convolution(3, 4, 3);
    SyncBatchNorm norm(4, group);
    const bool before = at::autocast::is_autocast_enabled(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto y = norm(convolution(numbers({2, 3, 8, 8}, 1, torch::kFloat)));
    at::autocast::set_autocast_enabled(at::kCPU, before);
    at::autocast::clear_cache();
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    y.sum().backward();
    EXPECT_TRUE(convolution->weight.grad().isfinite().all().item<bool>());
    EXPECT_EQ(norm->running_var.scalar_type(), torch::kFloat);
  });
}

TEST(SyncBatchNormTest, eval_mode_equals_batch_norm_and_communicates_nothing) {
  // A rank without connections: a collective would throw.
  SyncBatchNorm norm(3, test::unconnected_rank(0, 2));
  torch::nn::BatchNorm2d plain(3);
  norm->eval();
  plain->eval();
  for (auto* mean : {&norm->running_mean, &plain->running_mean}) mean->copy_(numbers({3}, 1));
  Tensor x = numbers({2, 3, 4, 4}, 2, torch::kFloat).requires_grad_();
  EXPECT_TRUE(torch::equal(norm(x), plain(x)));
  norm(x).sum().backward();
  norm->train();
  EXPECT_ANY_THROW(norm(x));

  SyncBatchNorm untracked(SyncBatchNormOptions(3, test::unconnected_rank(0, 2)).track_running_stats(false));
  untracked->eval();
  torch::nn::BatchNorm2d plain_untracked(torch::nn::BatchNorm2dOptions(3).track_running_stats(false));
  EXPECT_TRUE(torch::equal(untracked(x), plain_untracked(x)));
}

TEST(SyncBatchNormTest, a_group_of_one_is_batch_norm) {
  run_ranks(1, [](const GroupHandle& group) {
    SyncBatchNorm norm(3, group);
    torch::nn::BatchNorm1d plain(3);
    const Tensor x = numbers({5, 3}, 1, torch::kFloat);
    EXPECT_TRUE(torch::equal(norm(x), plain(x)));
    EXPECT_TRUE(torch::equal(norm->running_var, plain->running_var));
    EXPECT_THROW(norm(numbers({1, 3}, 1, torch::kFloat)), std::exception) << "one value per channel";
  });
}

TEST(SyncBatchNormTest, has_the_names_the_printing_and_the_clones_of_a_module) {
  const auto group = test::unconnected_rank(0, 2);
  SyncBatchNorm norm(SyncBatchNormOptions(torch::nn::BatchNormOptions(3).eps(1e-3).momentum(std::nullopt), group));
  torch::nn::BatchNorm2d plain(3);
  const auto keys = [](const auto& named) {
    std::vector<std::string> names;
    for (const auto& item : named) names.push_back(item.key());
    return names;
  };
  EXPECT_EQ(keys(norm->named_parameters()), keys(plain->named_parameters()));
  EXPECT_EQ(keys(norm->named_buffers()), keys(plain->named_buffers()));
  std::ostringstream text;
  text << *norm;
  EXPECT_EQ(text.str(), "ddp::SyncBatchNorm(3, eps=0.001, momentum=None, affine=true, track_running_stats=true)");

  norm->running_mean.fill_(5);
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  ASSERT_TRUE(copy);
  EXPECT_TRUE(torch::equal(copy->running_mean, norm->running_mean));
  std::stringstream stream;
  torch::save(norm, stream);
  torch::nn::BatchNorm2d loaded(3);
  torch::load(loaded, stream);
  EXPECT_TRUE(torch::equal(loaded->running_mean, norm->running_mean));
}

// Each rank's message. A rank's error must not leave the others waiting: the timeout of run_ranks would show.
template <typename Body>
std::vector<std::string> messages(int size, Body body, Wire wire = Wire::kGloo) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  run_ranks(size,
            [&](const GroupHandle& group) {
              try {
                body(group);
              } catch (const std::exception& error) {
                texts[static_cast<size_t>(group.rank())] = error.what();
              }
              barrier(group);  // nobody is left behind in a collective, and the group still works
            },
            {.wire = wire});
  return texts;
}

TEST(SyncBatchNormErrors, ranks_that_disagree_on_channels_are_found_on_all_ranks) {
  for (const Wire wire : {Wire::kGloo, Wire::kLate}) {
    const auto texts = messages(
        3,
        [](const GroupHandle& group) {
          const int64_t channels = group.rank() == 1 ? 8 : 4;
          SyncBatchNorm norm(channels, group);
          norm(numbers({2, channels, 3}, 0, torch::kFloat));
        },
        wire);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(texts[rank], AllOf(HasSubstr("rank " + std::to_string(rank) + " of 3: SyncBatchNorm"),
                                     HasSubstr("disagree on the number of channels"),
                                     HasSubstr("rank 0 has an input of shape [2, 4, 3]"),
                                     HasSubstr("rank 1 has an input of shape [2, 8, 3]")));
    }
  }
}

TEST(SyncBatchNormErrors, a_wrong_channel_count_says_rank_and_shapes_and_frees_the_other_ranks) {
  for (const bool first_forward : {true, false}) {
    int64_t tracked[2] = {};
    const auto texts = messages(2, [&](const GroupHandle& group) {
      SyncBatchNorm norm(4, group);
      if (!first_forward) norm(numbers({2, 4, 3}, 0, torch::kFloat));
      try {
        norm(numbers({2, group.rank() == 1 ? 5 : 4, 3}, 0, torch::kFloat));
      } catch (...) {
        tracked[group.rank()] = norm->num_batches_tracked.item<int64_t>();
        throw;
      }
    });
    EXPECT_THAT(texts[0], HasSubstr("rank 1")) << first_forward;
    EXPECT_THAT(texts[1], AllOf(HasSubstr("rank 1 of 2: SyncBatchNorm: expected 4 channels"), HasSubstr("[2, 5, 3]")));
    EXPECT_EQ(tracked[1], first_forward ? 0 : 1) << "a refused batch is not counted";
  }
}

TEST(SyncBatchNormErrors, other_inputs_that_do_not_fit) {
  const auto refused = [](const Tensor& input) {
    return messages(2, [&](const GroupHandle& group) { SyncBatchNorm(4, group)->forward(input); })[1];
  };
  EXPECT_THAT(refused(torch::ones({4})), AllOf(HasSubstr("rank 1"), HasSubstr("2 to 5 dimensions"), HasSubstr("[4]")));
  EXPECT_THAT(refused(torch::ones({1, 4, 1, 1, 1, 1})), HasSubstr("2 to 5 dimensions"));
  EXPECT_THAT(refused(torch::ones({3, 4}, torch::kLong)), AllOf(HasSubstr("floating-point"), HasSubstr("Long")));
}

TEST(SyncBatchNormErrors, one_value_per_channel_in_all_is_refused_on_all_ranks) {
  const auto texts = messages(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    norm(numbers({group.rank(), 4, 1}, 0, torch::kFloat));
  });
  EXPECT_THAT(texts[0], AllOf(HasSubstr("rank 0"), HasSubstr("more than 1 value per channel"), HasSubstr("[0, 4, 1]")));
  EXPECT_THAT(texts[1], AllOf(HasSubstr("rank 1"), HasSubstr("more than 1 value per channel"), HasSubstr("[1, 4, 1]")));
}

TEST(SyncBatchNormErrors, a_rank_without_gradients_is_found_before_the_others_wait_for_it) {
  const auto texts = messages(3, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    Tensor x = numbers({2, 4}, 0, torch::kFloat).requires_grad_();
    if (group.rank() == 1) {
      const torch::NoGradGuard no_grad;
      norm(x);
    } else {
      norm(x);
    }
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("ranks 0, 2 will need the gradient"), HasSubstr("rank 1 will not")));
}

TEST(SyncBatchNormErrors, double_backward_is_refused) {
  const auto texts = messages(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    Tensor x = numbers({3, 4}, 0, torch::kFloat).requires_grad_();
    const auto first = torch::autograd::grad({norm(x).square().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    EXPECT_TRUE(first.isfinite().all().item<bool>()) << "the first derivative itself is fine";
    first.square().sum().backward();
  });
  for (size_t rank = 0; rank < 2; ++rank)
    EXPECT_THAT(texts[rank],
                AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("double backward is not supported")));
}

TEST(SyncBatchNormTest, an_input_that_needs_no_gradient_costs_no_collective_in_backward) {
  run_ranks(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    norm(numbers({3, 4}, 0, torch::kFloat)).sum().backward();
    EXPECT_TRUE(norm->bias.grad().defined());
    const Tensor x = numbers({3, 4}, 0, torch::kFloat);
    const Tensor y = norm(x);
    if (group.rank() == 0) y.sum().backward();  // alone: it would wait for the other rank
  });
}

TEST(SyncBatchNormTest, a_graph_can_be_used_twice_and_in_part) {
  run_ranks(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    norm->to(torch::kDouble);
    Tensor x = numbers({3, 4}, static_cast<uint64_t>(group.rank())).requires_grad_();
    const Tensor loss = norm(x).square().sum();
    const auto once = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
    const auto again = torch::autograd::grad({loss}, {x, norm->weight});
    EXPECT_TRUE(torch::equal(once, again[0]));
    const auto weight_only = torch::autograd::grad({norm(x).square().sum()}, {norm->weight});
    EXPECT_TRUE(torch::equal(weight_only[0], again[1]));
  });
}

TEST(SyncBatchNormTest, expanded_and_strided_gradients_are_taken) {
  run_ranks(2, [](const GroupHandle& group) {
    SyncBatchNorm norm(4, group);
    norm->to(torch::kDouble);
    Tensor leaf = numbers({5, 3, 4}, static_cast<uint64_t>(group.rank())).requires_grad_();
    const Tensor view = leaf.permute({1, 2, 0});               // (3, 4, 5), not contiguous
    norm(view).sum().backward();                               // an expanded gradient
    EXPECT_LT(leaf.grad().abs().max().item<double>(), 1e-12);  // of a sum of normalised values
  });
}

}  // namespace
}  // namespace ddp
