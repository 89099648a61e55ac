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
#include <torch/csrc/autograd/function.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/amp/autocast.h>

#include "tests/support/catch.h"
#include "tests/support/placement.h"

namespace ddp {
namespace {

using test::here;

c10::DeviceType kind() {
  return test::test_device().type();
}

at::ScalarType type_of_product() {
  return at::mm(here(at::ones({2, 2})), here(at::ones({2, 2}))).scalar_type();
}

TEST_CASE("Autocast: products are in 16 bits inside and in 32 after") {
  for (const auto dtype : {c10::kBFloat16, c10::kHalf}) {
    {
      const Autocast autocast(kind(), {.dtype = dtype});
      CHECK(type_of_product() == dtype);
    }
    CHECK(type_of_product() == c10::kFloat);
  }
}

TEST_CASE("Autocast: the CPU's default is bfloat16") {
  const Autocast autocast(c10::Device(c10::kCPU));
  CHECK(type_of_product() == c10::kBFloat16);
}

TEST_CASE("Autocast: scopes nest and give back what they found") {
  const Autocast outer(kind(), {.dtype = c10::kHalf, .cache = false});
  {
    const Autocast off(kind(), {.enabled = false});
    CHECK(type_of_product() == c10::kFloat);
    {
      const Autocast inner(kind(), {.dtype = c10::kBFloat16, .cache = true});
      CHECK(type_of_product() == c10::kBFloat16);
      CHECK(at::autocast::is_autocast_cache_enabled());
    }
    CHECK(type_of_product() == c10::kFloat);
    INFO("inherited from outside");
    CHECK_FALSE(at::autocast::is_autocast_cache_enabled());
  }
  CHECK(type_of_product() == c10::kHalf);
  const Autocast inherits(kind());
  INFO("the dtype of the scope around it");
  CHECK(type_of_product() == c10::kHalf);
}

TEST_CASE("Autocast: an exception ends it") {
  const auto fail = [] {
    const Autocast autocast(c10::kCPU);
    const Autocast inner(c10::kCPU, {.dtype = c10::kHalf, .cache = false});
    throw std::runtime_error("inside");
  };
  CHECK_THROWS_AS(fail(), std::runtime_error);
  CHECK(type_of_product() == c10::kFloat);
  CHECK(at::autocast::is_autocast_cache_enabled());
  CHECK(at::autocast::get_autocast_dtype(c10::kCPU) == c10::kBFloat16);
}

// The cached 16-bit copy of a weight is one node of the graph, however often the weight is used.
TEST_CASE("Autocast: weights are cast once per outermost scope") {
  const at::Tensor weight = here(at::ones({2, 2})).requires_grad_();
  const at::Tensor x = here(at::ones({2, 2}));
  std::vector<at::Tensor> kept;  // a freed node's address could be that of another one
  const auto cast_of_weight = [&] {
    kept.push_back(at::mm(x, weight));
    return kept.back().grad_fn()->next_edge(1).function.get();
  };
  {
    const Autocast outer(kind());
    const auto* first = cast_of_weight();
    {
      const Autocast inner(kind());
      CHECK(cast_of_weight() == first);
    }
    UNSCOPED_INFO("an inner scope's end keeps the copies");
    CHECK(cast_of_weight() == first);
    const Autocast uncached(kind(), {.cache = false});
    CHECK(cast_of_weight() != first);
  }
  {
    const at::NoGradGuard no_grad;
    weight.fill_(3);
  }
  const Autocast again(kind());
  INFO("a new scope sees the stepped weight");
  CHECK(at::mm(x, weight)[0][0].item<double>() == 6);
}

TEST_CASE("Autocast: a kind of device without it is named") {
  try {
    const Autocast autocast(c10::kMeta);
    FAIL();
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()) == "rank 0 of 1: User specified an unsupported autocast device_type 'meta'");
  }
}

TEST_CASE("Autocast: a dtype that the CPU cannot use disables it") {
  const Autocast autocast(c10::kCPU, {.dtype = c10::kDouble});
  CHECK(type_of_product() == c10::kFloat);
}

TEST_CASE("Autocast: threads have their own and with_autocast takes it along") {
  const Autocast autocast(kind(), {.dtype = c10::kHalf, .cache = false});
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
  CHECK(plain == c10::kFloat);
  CHECK(carried == c10::kHalf);
  CHECK_FALSE(cache);
  UNSCOPED_INFO("the thread has its own settings again");
  CHECK(after == c10::kFloat);
  CHECK(result == 42);
}

// docs/amp.md tells these lists; CUDA's is longer.
TEST_CASE("Autocast: the CPU's lists leave sums, norms and exponentials in 16 bits") {
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
  for (const auto& [name, result] : narrow) {
    UNSCOPED_INFO(name);
    CHECK(result.scalar_type() == c10::kBFloat16);
  }
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
  for (const auto& [name, result] : wide) {
    INFO(name);
    CHECK(result.scalar_type() == c10::kFloat);
  }
}

TEST_CASE("Autocast: backward outside gives gradients in the weights' type") {
  const at::Tensor weight = here(at::ones({2, 2})).requires_grad_();
  at::Tensor loss;
  {
    const Autocast autocast(kind());
    loss = at::linear(here(at::ones({2, 2})), weight).sum();
  }
  loss.backward();
  CHECK(weight.grad().scalar_type() == c10::kFloat);
}

}  // namespace
}  // namespace ddp
