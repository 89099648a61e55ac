// The families of operators that training uses give a simulated device the CPU's bits, in every schedule, and make the
// host wait for nothing.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp::test {
namespace {

using Catch::Matchers::IsEmpty;
using Tensors = std::vector<at::Tensor>;

const c10::Device kOperated = device::device_at(0);

// What `work` leaves of these tensors, and what it returns.
using OperatorWork = std::function<Tensors(Tensors inputs)>;

Tensors moved(const Tensors& tensors, c10::Device device) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor copy = tensor.detach().clone();
    if (!device.is_cpu()) copy = copy.pin_memory().to(device, /*non_blocking=*/true);
    result.push_back(copy.set_requires_grad(tensor.requires_grad()));
  }
  return result;
}

Tensors done(const OperatorWork& work, const Tensors& inputs, c10::Device device) {
  Tensors own = moved(inputs, device);
  device::forget_counts();
  Tensors results = work(own);
  CHECK_THAT(device::counts().host_waits, IsEmpty());
  for (const at::Tensor& tensor : own) {
    results.push_back(tensor.detach());
    if (tensor.grad().defined()) results.push_back(tensor.grad());
  }
  for (at::Tensor& tensor : results) tensor = tensor.cpu();
  return results;
}

void expect_the_cpus_bits(const std::string& name, const Tensors& inputs, const OperatorWork& work) {
  INFO(name);
  const Tensors expected = done(work, inputs, c10::kCPU);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    device::set_schedule(seed);
    const Tensors found = done(work, inputs, kOperated);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("result " << i);
      CHECK(at::equal(found[i], expected[i]));
    }
    device::drain();
    CHECK_THAT(device::faults(), IsEmpty());
  }
}

at::Tensor rows() {
  return at::rand({4, 6});
}
Tensors some(int count) {
  Tensors tensors;
  for (int i = 0; i < count; ++i) tensors.push_back(rows());
  return tensors;
}
at::Tensor number(double value) {
  return at::full({}, value, at::kFloat);
}

TEST_CASE("Operators: fused optimizers, with and without a scale and an overflow") {
  for (const double found_inf : {0.0, 1.0}) {
    // Parameter, gradient, two averages, a step, scale, overflow.
    Tensors inputs = some(4);
    for (const double value : {3.0, 8.0, found_inf}) inputs.push_back(number(value));
    expect_the_cpus_bits("_fused_adam_", inputs, [](Tensors t) {
      at::_fused_adam_({t[0]}, {t[1]}, {t[2]}, {t[3]}, {}, {t[4]}, 0.1, 0.9, 0.99, 0.01, 1e-8, false, false, t[5],
                       t[6]);
      return Tensors();
    });
    expect_the_cpus_bits("_fused_adamw_", inputs, [](Tensors t) {
      at::_fused_adamw_({t[0]}, {t[1]}, {t[2]}, {t[3]}, {}, {t[4]}, 0.1, 0.9, 0.99, 0.01, 1e-8, false, false, t[5],
                        t[6]);
      return Tensors();
    });
    expect_the_cpus_bits("_fused_sgd_", inputs, [](Tensors t) {
      at::_fused_sgd_({t[0]}, {t[1]}, {t[2]}, 0.01, 0.9, 0.1, 0, false, false, false, t[5], t[6]);
      return Tensors();
    });
    expect_the_cpus_bits("_fused_adagrad_", inputs, [](Tensors t) {
      at::_fused_adagrad_({t[0]}, {t[1]}, {t[2]}, {t[4]}, 0.1, 0, 0.01, 1e-8, false, t[5], t[6]);
      return Tensors();
    });
  }
}

TEST_CASE("Operators: lists of tensors in one call") {
  expect_the_cpus_bits("_foreach_", some(6), [](Tensors t) {
    at::_foreach_add_({t[0], t[1]}, {t[2], t[3]}, 0.5);
    at::_foreach_mul_({t[0], t[1]}, 3);
    at::_foreach_lerp_({t[2], t[3]}, {t[4], t[5]}, 0.1);
    at::_foreach_addcdiv_({t[4]}, {t[0]}, {t[1]}, 0.5);
    Tensors results = at::_foreach_sqrt({t[0], t[3]});
    for (const at::Tensor& norm : at::_foreach_norm({t[1], t[5]}, 2)) results.push_back(norm);
    return results;
  });
}

TEST_CASE("Operators: loss scales") {
  for (const float gradient : {2.0F, std::numeric_limits<float>::infinity()}) {
    const Tensors inputs{rows(),    at::full({3}, gradient),  number(0), number(0.125),
                         number(8), at::full({}, 2, at::kInt)};
    expect_the_cpus_bits("_amp_", inputs, [](Tensors t) {
      at::_amp_foreach_non_finite_check_and_unscale_({t[0], t[1]}, t[2], t[3]);
      at::_amp_update_scale_(t[4], t[5], t[2], 2, 0.5, 3);
      return Tensors();
    });
  }
}

TEST_CASE("Operators: indices") {
  const at::Tensor where = at::tensor({3, 0, 3}, at::kLong);
  expect_the_cpus_bits("index_put_", {rows(), where, at::rand({3, 6})}, [](Tensors t) {
    t[0].index_put_({t[1]}, t[2], /*accumulate=*/true);
    at::_index_put_impl_(t[0], {t[1].slice(0, 0, 2)}, t[2].slice(0, 0, 2), false, true);
    return Tensors{t[0].index_select(0, t[1]), t[0].gather(0, t[1].view({1, 3})), std::get<0>(t[0].topk(2))};
  });
  expect_the_cpus_bits("scatter_add_", {rows(), at::zeros({4, 6}, at::kLong)},
                       [](Tensors t) { return Tensors{at::zeros_like(t[0]).scatter_add_(0, t[1], t[0])}; });
}

TEST_CASE("Operators: layers and their gradients") {
  const auto needed = [](at::Tensor tensor) { return tensor.set_requires_grad(true); };
  expect_the_cpus_bits(
      "batch norm",
      {needed(at::rand({3, 2, 4, 4})), needed(at::rand({2})), needed(at::rand({2})), at::zeros({2}), at::ones({2})},
      [](Tensors t) {
        const at::Tensor y = at::batch_norm(t[0], t[1], t[2], t[3], t[4], true, 0.1, 1e-5, false);
        (y * y.detach()).sum().backward();
        return Tensors{y.detach(), at::batch_norm(t[0], t[1], t[2], t[3], t[4], false, 0.1, 1e-5, false).detach()};
      });
  expect_the_cpus_bits("layer norm", {needed(rows()), needed(at::rand({6})), needed(at::rand({6}))}, [](Tensors t) {
    at::layer_norm(t[0], {6}, t[1], t[2]).pow(2).sum().backward();
    return Tensors();
  });
  expect_the_cpus_bits("convolution", {needed(at::rand({2, 3, 6, 6})), needed(at::rand({4, 3, 3, 3}))}, [](Tensors t) {
    const at::Tensor y = at::convolution(t[0], t[1], {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
    at::max_pool2d(y.relu(), {2, 2}).pow(2).sum().backward();
    return Tensors{y.detach()};
  });
  expect_the_cpus_bits("embedding and loss", {needed(rows()), at::tensor({3, 0, 3}, at::kLong)}, [](Tensors t) {
    at::cross_entropy_loss(at::embedding(t[0], t[1]), t[1]).backward();
    return Tensors();
  });
}

TEST_CASE("Operators: a generator's state is taken and given back, and each device has its own") {
  const auto draw = [](int index) { return at::rand({5}, at::TensorOptions(device::device_at(index))).cpu(); };
  at::Generator first = at::globalContext().defaultGenerator(kOperated);
  first.set_current_seed(3);
  draw(0);
  const at::Tensor state = first.get_state();
  const at::Tensor expected = draw(0);
  draw(1);
  first.set_state(state);
  CHECK(at::equal(draw(0), expected));
  at::Generator other = first.clone();
  other.set_current_seed(4);
  CHECK(first.current_seed() == 3);
  const at::Tensor from_other = at::rand({5}, other, at::TensorOptions(kOperated)).cpu();
  other.set_current_seed(4);
  CHECK(at::equal(at::rand({5}, other, at::TensorOptions(kOperated)).cpu(), from_other));
  at::Generator second = at::globalContext().defaultGenerator(device::device_at(1));
  second.set_current_seed(3);
  first.set_current_seed(3);
  CHECK(at::equal(draw(0), draw(1)));
}

}  // namespace
}  // namespace ddp::test
