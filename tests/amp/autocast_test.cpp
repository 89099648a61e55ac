#include "amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/function.h>

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace ddp {
namespace {

at::ScalarType type_of_product() {
  return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(Autocast, products_are_in_16_bits_inside_and_in_32_after) {
  for (const auto dtype : {c10::kBFloat16, c10::kHalf}) {
    {
      const Autocast autocast(c10::kCPU, {.dtype = dtype});
      EXPECT_EQ(type_of_product(), dtype);
    }
    EXPECT_EQ(type_of_product(), c10::kFloat);
  }
}

TEST(Autocast, the_cpus_default_is_bfloat16) {
  const Autocast autocast(c10::Device(c10::kCPU));
  EXPECT_EQ(type_of_product(), c10::kBFloat16);
}

TEST(Autocast, scopes_nest_and_give_back_what_they_found) {
  const Autocast outer(c10::kCPU, {.dtype = c10::kHalf, .cache = false});
  {
    const Autocast off(c10::kCPU, {.enabled = false});
    EXPECT_EQ(type_of_product(), c10::kFloat);
    {
      const Autocast inner(c10::kCPU, {.dtype = c10::kBFloat16, .cache = true});
      EXPECT_EQ(type_of_product(), c10::kBFloat16);
      EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    }
    EXPECT_EQ(type_of_product(), c10::kFloat);
    EXPECT_FALSE(at::autocast::is_autocast_cache_enabled()) << "inherited from outside";
  }
  EXPECT_EQ(type_of_product(), c10::kHalf);
  const Autocast inherits(c10::kCPU);
  EXPECT_EQ(type_of_product(), c10::kHalf) << "the dtype of the scope around it";
}

TEST(Autocast, an_exception_ends_it) {
  const auto fail = [] {
    const Autocast autocast(c10::kCPU);
    const Autocast inner(c10::kCPU, {.dtype = c10::kHalf, .cache = false});
    throw std::runtime_error("inside");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(type_of_product(), c10::kFloat);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::get_autocast_dtype(c10::kCPU), c10::kBFloat16);
}

// The cached 16-bit copy of a weight is one node of the graph, however often the weight is used.
TEST(Autocast, weights_are_cast_once_per_outermost_scope) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const at::Tensor x = at::ones({2, 2});
  std::vector<at::Tensor> kept;  // a freed node's address could be that of another one
  const auto cast_of_weight = [&] {
    kept.push_back(at::mm(x, weight));
    return kept.back().grad_fn()->next_edge(1).function.get();
  };
  {
    const Autocast outer(c10::kCPU);
    const auto* first = cast_of_weight();
    {
      const Autocast inner(c10::kCPU);
      EXPECT_EQ(cast_of_weight(), first);
    }
    EXPECT_EQ(cast_of_weight(), first) << "an inner scope's end keeps the copies";
    const Autocast uncached(c10::kCPU, {.cache = false});
    EXPECT_NE(cast_of_weight(), first);
  }
  {
    const at::NoGradGuard no_grad;
    weight.fill_(3);
  }
  const Autocast again(c10::kCPU);
  EXPECT_EQ(at::mm(x, weight)[0][0].item<double>(), 6) << "a new scope sees the stepped weight";
}

TEST(Autocast, a_kind_of_device_without_it_is_named) {
  try {
    const Autocast autocast(c10::kMeta);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 0 of 1: User specified an unsupported autocast device_type 'meta'");
  }
}

TEST(Autocast, a_dtype_that_the_cpu_cannot_use_disables_it) {
  const Autocast autocast(c10::kCPU, {.dtype = c10::kDouble});
  EXPECT_EQ(type_of_product(), c10::kFloat);
}

TEST(Autocast, threads_have_their_own_and_with_autocast_takes_it_along) {
  const Autocast autocast(c10::kCPU, {.dtype = c10::kHalf, .cache = false});
  at::ScalarType plain{}, carried{}, after{};
  bool cache = true;
  std::thread([&] { plain = type_of_product(); }).join();
  auto task = with_autocast([&](int argument) {
    carried = type_of_product();
    cache = at::autocast::is_autocast_cache_enabled();
    return argument + 1;
  });
  int result = 0;
  std::thread([&] {
    result = task(41);
    after = type_of_product();
  }).join();
  EXPECT_EQ(plain, c10::kFloat);
  EXPECT_EQ(carried, c10::kHalf);
  EXPECT_FALSE(cache);
  EXPECT_EQ(after, c10::kFloat) << "the thread has its own settings again";
  EXPECT_EQ(result, 42);
}

// docs/amp.md tells these lists; CUDA's is longer.
TEST(Autocast, the_cpus_lists_leave_sums_norms_and_exponentials_in_16_bits) {
  const Autocast autocast(c10::kCPU);
  const at::Tensor full = at::rand({2, 4, 4, 4}), x = full.to(c10::kBFloat16), flat = x.view({32, 4});
  const std::vector<std::pair<const char*, at::Tensor>> narrow = {
      {"mm", at::mm(full.view({32, 4}), full.view({4, 32}))},
      {"conv2d", at::conv2d(full, at::rand({3, 4, 2, 2}))},
      {"attention", at::scaled_dot_product_attention(full, full, full)},
      {"sum", x.sum()},
      {"cumsum", x.cumsum(0)},
      {"norm", x.norm()},
      {"exp", x.exp()},
      {"log", x.log()},
      {"pow", x.pow(2)},
      {"softmax", x.softmax(-1)},
      {"layer_norm", at::layer_norm(x, {4})},
      {"batch_norm", at::batch_norm(x, {}, {}, at::zeros({4}), at::ones({4}), true, 0.1, 1e-5, false)}};
  for (const auto& [name, result] : narrow) EXPECT_EQ(result.scalar_type(), c10::kBFloat16) << name;
  const std::vector<std::pair<const char*, at::Tensor>> wide = {
      {"mse_loss", at::mse_loss(x, x)},
      {"l1_loss", at::l1_loss(x, x)},
      {"binary_cross_entropy", at::binary_cross_entropy(x, x)},
      {"cross_entropy", at::cross_entropy_loss(flat, at::zeros({32}, c10::kLong))},
      {"prod", x.prod()},
      {"cdist", at::cdist(flat, flat)},
      {"sum of float32", full.sum()},
      {"exp of float32", full.exp()},
      {"cat of both", at::cat({x, full})}};
  for (const auto& [name, result] : wide) EXPECT_EQ(result.scalar_type(), c10::kFloat) << name;
}

TEST(Autocast, backward_outside_gives_gradients_in_the_weights_type) {
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  at::Tensor loss;
  {
    const Autocast autocast(c10::kCPU);
    loss = at::linear(at::ones({2, 2}), weight).sum();
  }
  loss.backward();
  EXPECT_EQ(weight.grad().scalar_type(), c10::kFloat);
}

}  // namespace
}  // namespace ddp
