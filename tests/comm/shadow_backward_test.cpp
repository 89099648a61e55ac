// A rank without inputs takes part in the others' backward with zeros, and may take their gradients.
#include "comm/reducer/shadow_backward.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/reducer/reducer.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;

// Whole numbers, whose means over two to four ranks have no rounding.
at::Tensor factors(const at::Tensor& like, int rank, int step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * step + 10 * rank + like.dim()));
  return at::randint(1, 9, like.sizes(), generator).mul(12).to(like.scalar_type());
}

at::Tensor strided(at::IntArrayRef shape) {
  return at::zeros(shape).to(at::MemoryFormat::ChannelsLast);
}

// Parameters of all kinds. The gradient of each is the factors that it was multiplied by.
std::vector<at::Tensor> parameters() {
  std::vector<at::Tensor> all{at::zeros({3, 5}),     at::zeros({}),    at::zeros({0, 4}),
                              strided({2, 3, 4, 4}), at::zeros({7}),   at::zeros({4}, at::kDouble),
                              at::zeros({5, 4}).t(), at::zeros({3000})};
  for (at::Tensor& parameter : all) parameter.requires_grad_();
  return all;
}

ReducedModel model_of(const std::vector<at::Tensor>& parameters) {
  ReducedModel model{.name = "Net", .parameters = parameters};
  for (size_t i = 0; i < parameters.size(); ++i) model.names.push_back("parameter " + std::to_string(i));
  return model;
}

// A forward and backward that use `used`.
void train(GradientReducer& reducer, const std::vector<at::Tensor>& used, int rank, int step) {
  reducer.before_forward({});
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& parameter : used) loss = loss + (parameter * factors(parameter, rank, step)).sum();
  reducer.after_forward({loss}, /*are_known=*/true, /*will_reduce=*/true);
  loss.backward();
}

void shadow(GradientReducer& reducer, bool keep_gradients) {
  reducer.shadow_forward();
  reducer.shadow_backward(keep_gradients);
}

// The mean over `size` ranks of the factors of those that train.
at::Tensor mean(const at::Tensor& parameter, const std::vector<int>& training, int size, int step) {
  at::Tensor sum = at::zeros_like(parameter.detach(), at::TensorOptions(at::kDouble));
  for (const int rank : training) sum = sum + factors(parameter, rank, step).to(at::kDouble);
  return sum.div(size).to(parameter.scalar_type());
}

class Shadows : protected test::EveryWireAndSize {
 protected:
  // All but rank 0.
  static std::vector<int> training(const GroupHandle& group) {
    std::vector<int> ranks;
    for (int rank = 1; rank < group.size(); ++rank) ranks.push_back(rank);
    return ranks;
  }
};

TEST_CASE_METHOD(Shadows, "ShadowBackward: a rank that trains no more counts with zeros, step after step") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{.bucket_cap_bytes = 300});
    for (int step = 0; step < 4; ++step) {
      if (group.rank() == 0) {
        shadow(*reducer, /*keep_gradients=*/false);
        for (const at::Tensor& parameter : own) RANK_CHECK_FALSE(parameter.grad().defined());
        continue;
      }
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
      train(*reducer, own, group.rank(), step);
      for (const at::Tensor& parameter : own)
        RANK_CHECK_THAT(parameter.grad(), EqualsTensor(mean(parameter, training(group), group.size(), step)));
    }
  });
}

TEST_CASE_METHOD(Shadows,
                 "ShadowBackward: gradients that are kept are the others', in the parameter's layout and dtype") {
  if (size() == 1) return;
  const bool in_buckets = GENERATE(true, false);
  run([in_buckets](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(
        model_of(own), group, DdpOptions{.bucket_cap_bytes = 300, .gradient_as_bucket_view = in_buckets});
    for (int step = 0; step < 4; ++step) {
      RANK_INFO("step " << step);
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
      group.rank() == 0 ? shadow(*reducer, /*keep_gradients=*/true) : train(*reducer, own, group.rank(), step);
      for (const at::Tensor& parameter : own) {
        RANK_CHECK_THAT(parameter.grad(), EqualsTensor(mean(parameter, training(group), group.size(), step)));
        RANK_CHECK(parameter.grad().strides() == parameter.strides());
        RANK_CHECK_FALSE(parameter.grad().requires_grad());
      }
    }
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: what is kept takes the place of a gradient, and is this rank's own") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{});
    if (group.rank() == 0) {
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::full_like(parameter.detach(), 1e6);
    }
    std::vector<at::Tensor> first;
    for (int step = 0; step < 2; ++step) {
      if (group.rank() > 0) {
        for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
        train(*reducer, own, group.rank(), step);
        continue;
      }
      shadow(*reducer, /*keep_gradients=*/true);
      for (size_t i = 0; i < own.size(); ++i) {
        RANK_CHECK_THAT(own[i].grad(), EqualsTensor(mean(own[i], training(group), group.size(), step)));
        if (step == 0) first.push_back(own[i].grad());
      }
    }
    // The second step has not written to what the first has left.
    for (size_t i = 0; i < first.size(); ++i)
      RANK_CHECK_THAT(first[i], EqualsTensor(mean(own[i], training(group), group.size(), 0)));
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: of parameters that no rank has used no gradient is kept") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(
        model_of(own), group, DdpOptions{.bucket_cap_bytes = 300, .find_unused_parameters = true});
    // Every second one; the last rank uses the first of the others as well.
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
      std::vector<at::Tensor> used{own[0], own[2], own[4], own[6]};
      if (group.rank() == group.size() - 1) used.push_back(own[1]);
      group.rank() == 0 ? shadow(*reducer, /*keep_gradients=*/true) : train(*reducer, used, group.rank(), step);
      for (const size_t i : {0U, 2U, 4U, 6U})
        RANK_CHECK_THAT(own[i].grad(), EqualsTensor(mean(own[i], training(group), group.size(), step)));
      RANK_CHECK_THAT(own[1].grad(), EqualsTensor(mean(own[1], {group.size() - 1}, group.size(), step)));
      for (const size_t i : {3U, 5U, 7U}) RANK_CHECK_FALSE(own[i].grad().defined());
    }
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: sparse gradients are kept as such") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const at::Tensor table = at::zeros({6, 2}).requires_grad_();
    const at::Tensor bias = at::zeros({2}).requires_grad_();
    ReducedModel model = model_of({table, bias});
    model.sparse_gradients = {true, false};
    const auto reducer = std::make_shared<GradientReducer>(std::move(model), group, DdpOptions{});
    for (int step = 0; step < 3; ++step) {
      table.mutable_grad() = at::Tensor();
      bias.mutable_grad() = at::Tensor();
      if (group.rank() == 0) {
        shadow(*reducer, /*keep_gradients=*/true);
      } else {
        reducer->before_forward({});
        const at::Tensor rows = at::tensor({group.rank(), 5}, at::kLong);
        const at::Tensor loss = (at::embedding(table, rows, -1, false, /*sparse=*/true) + bias).sum() * group.size();
        reducer->after_forward({loss}, /*are_known=*/true, /*will_reduce=*/true);
        loss.backward();
      }
      at::Tensor expected = at::zeros({6, 2});
      for (int rank = 1; rank < group.size(); ++rank) {
        expected[rank] += 1;
        expected[5] += 1;
      }
      RANK_REQUIRE(table.grad().is_sparse());
      RANK_CHECK_THAT(table.grad().to_dense(), EqualsTensor(expected));
      RANK_CHECK_THAT(bias.grad(), EqualsTensor(at::full({2}, 2.F * (group.size() - 1))));
    }
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: after buckets were regrouped what is kept is still each parameter's own") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer =
        std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{.bucket_cap_bytes = kAutoBucketCap});
    const auto clear = [&] {
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
    };
    for (int step = 0; step < 3; ++step) {
      clear();
      train(*reducer, own, group.rank(), step);
    }
    reducer->stop_tuning();
    for (int step = 3; step < 6; ++step) {
      clear();
      group.rank() == 0 ? shadow(*reducer, /*keep_gradients=*/true) : train(*reducer, own, group.rank(), step);
      for (const at::Tensor& parameter : own)
        RANK_CHECK_THAT(parameter.grad(), EqualsTensor(mean(parameter, training(group), group.size(), step)));
    }
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: a communication hook reduces the zeros too, and what it makes is kept") {
  if (size() == 1) return;
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{.bucket_cap_bytes = 300});
    int buckets = 0;
    reducer->register_comm_hook(
        [&](GradientBucket& bucket) {
          ++buckets;
          if (group.rank() == 0) RANK_CHECK_FALSE(bucket.buffer().any().item<bool>());
          return then(all_reduce_future(bucket.buffer(), group), [](const at::Tensor& sum) { return sum * 2; });
        },
        "twice the sum");
    for (int step = 0; step < 3; ++step) {
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
      group.rank() == 0 ? shadow(*reducer, /*keep_gradients=*/true) : train(*reducer, own, group.rank(), step);
      for (const at::Tensor& parameter : own)
        RANK_CHECK_THAT(parameter.grad(), EqualsTensor(mean(parameter, training(group), 1, step) * 2));
    }
    const at::Tensor counts = all_gather(at::tensor({buckets}, at::kLong), group);
    RANK_CHECK(counts.eq(buckets).all().item<bool>());
  });
}

TEST_CASE_METHOD(Shadows, "ShadowBackward: ranks may shadow by turns, and all of them at once reduce zeros") {
  run([](const GroupHandle& group) {
    const auto own = parameters();
    const auto reducer = std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{.bucket_cap_bytes = 300});
    for (int step = 0; step < 2 * group.size(); ++step) {
      for (const at::Tensor& parameter : own) parameter.mutable_grad() = at::Tensor();
      const bool is_shadow = step % group.size() == group.rank();
      is_shadow ? shadow(*reducer, /*keep_gradients=*/true) : train(*reducer, own, group.rank(), step);
      std::vector<int> others;
      for (int rank = 0; rank < group.size(); ++rank) {
        if (rank != step % group.size()) others.push_back(rank);
      }
      for (const at::Tensor& parameter : own)
        RANK_CHECK_THAT(parameter.grad(), EqualsTensor(mean(parameter, others, group.size(), step)));
    }
    shadow(*reducer, /*keep_gradients=*/true);
    for (const at::Tensor& parameter : own) RANK_CHECK_FALSE(parameter.grad().any().item<bool>());
  });
}

TEST_CASE("ShadowBackward: a rank that leaves its step is named, and nothing can go on") {
  std::atomic<bool> is_over{false};
  test::run_ranks(
      2,
      [&](const GroupHandle& group) {
        const auto own = parameters();
        const auto reducer = std::make_shared<GradientReducer>(model_of(own), group, DdpOptions{});
        if (group.rank() == 1) {
          while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        RANK_CHECK_THAT(error_of([&] { shadow(*reducer, true); }),
                        ContainsSubstring("rank 0 of 2: ") && ContainsSubstring("did not take part in it: rank 1"));
        RANK_CHECK_THAT(error_of([&] { shadow(*reducer, true); }), ContainsSubstring("an earlier backward failed"));
        is_over = true;
      },
      {.timeout = std::chrono::seconds(1)});
}

}  // namespace
}  // namespace ddp::detail
