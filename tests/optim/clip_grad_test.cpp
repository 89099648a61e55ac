// Clipping of gradients, scaled ones too. Bits are compared with Python's in clip_test.py.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ddprun/optim/clip_grad.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"

namespace ddp::optim {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::WithinAbs;
using test::flag;
using test::here;
using test::new_parameters;
using test::numbers;
using test::set_gradients;

TEST_CASE("ClipGradNorm: limits the norm in terms of unscaled gradients") {
  const auto parameters = new_parameters();
  set_gradients(parameters, 0);
  std::vector<at::Tensor> flat;
  for (const auto& parameter : parameters) flat.push_back(parameter.grad().flatten());
  const auto all = at::cat(flat);
  for (const double type : {2.0, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const double norm = all.norm(type).item<double>();
    for (const double scale : {1.0, 512.0}) {
      for (const double limit : {norm / 3, norm * 2}) {
        set_gradients(parameters, 0, scale);
        const auto result = clip_grad_norm_(parameters, limit,
                                            {.norm_type = type, .grad_scale = scale == 1 ? at::Tensor() : flag(scale)});
        CHECK(result.dim() == 0);
        CHECK_THAT(result.item<double>(), WithinAbs(norm, 1e-5 * norm));
        const double factor = std::min(1.0, limit / norm);
        CHECK(parameters[0].grad().allclose(numbers({7, 5}, 1000) * factor * scale, 1e-5));
        CHECK(parameters[4].grad().allclose(numbers({129}, 1004) * factor * scale, 1e-5));
      }
    }
  }
  CHECK(clip_grad_norm_({numbers({2}, 0)}, 1).item<double>() == 0);
}

TEST_CASE("ClipGradNorm: gradients without elements add nothing to any norm") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto with_gradient = [](const at::Tensor& gradient) {
    const auto parameter = here(at::zeros(gradient.sizes())).requires_grad_();
    parameter.mutable_grad() = here(gradient);
    return parameter;
  };
  for (const double type : {2.0, 1.0, kInfinity, -kInfinity}) {
    CAPTURE(type);
    const auto empty = with_gradient(at::zeros({0, 3}));
    const auto full = with_gradient(at::full({2}, -4.0));
    const auto norm = clip_grad_norm_({empty, full}, 1.0, {.norm_type = type});
    CHECK(norm.equal(clip_grad_norm_({with_gradient(at::full({2}, -4.0))}, 1.0, {.norm_type = type})));
    CHECK_THAT(full.grad()[0].item<double>(), WithinAbs(-4 / norm.item<double>(), 1e-5));
    CHECK(empty.grad().sizes() == at::IntArrayRef({0, 3}));
    const auto of_none = clip_grad_norm_({empty}, 1.0, {.norm_type = type});
    CHECK(of_none.item<double>() == 0);
    CHECK(of_none.device() == empty.device());
  }
}

TEST_CASE("ClipGradNorm: a parameter that is listed twice counts once, as in Python's parameters() of tied weights") {
  const auto parameters = new_parameters();
  auto repeated = parameters;
  repeated.insert(repeated.begin() + 2, parameters[0]);
  set_gradients(parameters, 0);
  const auto expected = clip_grad_norm_(parameters, 0.5);
  std::vector<at::Tensor> clipped;
  for (const auto& parameter : parameters) clipped.push_back(parameter.grad());
  set_gradients(parameters, 0);
  CHECK_THAT(clip_grad_norm_(repeated, 0.5), test::EqualsTensor(expected));
  for (size_t i = 0; i < parameters.size(); ++i) CHECK_THAT(parameters[i].grad(), test::EqualsTensor(clipped[i]));
}

TEST_CASE("ClipGradNorm: of scaled 16 bit gradients is taken in float32") {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const double scale = 4096;
    const auto gradient = (numbers({3000}, 7) * scale).to(dtype);  // a norm of 220,000, beyond float16's range
    const auto parameter = here(at::zeros({3000}, dtype)).requires_grad_();
    parameter.mutable_grad() = gradient.clone();
    const auto norm = clip_grad_norm_({parameter}, 1.0, {.error_if_nonfinite = true, .grad_scale = flag(scale)});
    CHECK(norm.scalar_type() == at::kFloat);
    const auto exact = gradient.to(at::kDouble).norm().item<double>() / scale;
    INFO(dtype);
    CHECK_THAT(norm.item<double>(), WithinAbs(exact, 1e-5 * exact));
    const auto after = parameter.grad().to(at::kDouble).norm().item<double>() / scale;
    CHECK_THAT(after, WithinAbs(1, dtype == at::kHalf ? 1e-3 : 1e-2));
  }
}

// Scales are powers of two: dividing by them rounds nothing.
TEST_CASE("ClipGradNorm: with a scale has the bits of unscaled gradients") {
  for (const double type : {2.0, 1.0, 0.0, std::numeric_limits<double>::infinity()}) {
    const auto plain = new_parameters(), scaled = new_parameters();
    for (int step = 0; step < 50; ++step) {
      set_gradients(plain, step);
      set_gradients(scaled, step, 65536);
      const auto norm = clip_grad_norm_(plain, 0.3 + 0.1 * step, {.norm_type = type});
      CHECK(clip_grad_norm_(scaled, 0.3 + 0.1 * step, {.norm_type = type, .grad_scale = flag(65536)}).equal(norm));
      for (size_t i = 0; i < plain.size(); ++i) {
        INFO(type);
        CHECK(scaled[i].grad().equal(plain[i].grad() * 65536));
      }
    }
  }
}

TEST_CASE("ClipGradNorm: refuses what is not finite only when asked") {
  const auto parameters = new_parameters();
  set_gradients(parameters, 0, std::numeric_limits<double>::infinity());
  CHECK_THROWS_MATCHES(
      clip_grad_norm_(parameters, 1, {.error_if_nonfinite = true}), std::runtime_error,
      MessageMatches(ContainsSubstring("The total norm of order 2.0 for gradients from `parameters` is non-finite")));
  CHECK_FALSE(std::isfinite(clip_grad_norm_(parameters, 1).item<double>()));
  CHECK_THROWS_AS(clip_grad_norm_(parameters, std::nan("")), std::invalid_argument);
  CHECK_THROWS_AS(clip_grad_norm_(parameters, 1, {.grad_scale = here(at::ones({3}))}), std::invalid_argument);
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

TEST_CASE("ClipGradNorm: get_total_norm and clip_grads_with_norm_ are its halves, and serve several models") {
  const auto whole = new_parameters();
  set_gradients(whole, 0);
  const auto expected = clip_grad_norm_(whole, 0.5);

  auto parts = new_parameters();
  set_gradients(parts, 0);
  auto gradients = gradients_of(parts);
  gradients.insert(gradients.begin() + 1, at::Tensor());  // a parameter without a gradient
  gradients.push_back(parts[0].grad());                   // a tied weight
  const auto norm = get_total_norm(gradients);
  CHECK_THAT(norm, test::EqualsTensor(expected));
  clip_grads_with_norm_({parts[0], parts[1], parts[0]}, 0.5, norm);
  clip_grads_with_norm_({parts[2], parts[3], parts[4]}, 0.5, norm.cpu().reshape({1}));
  test::expect_same_bits(gradients_of(parts), gradients_of(whole));

  set_gradients(parts, 0, 512);
  const auto scaled = get_total_norm(gradients_of(parts), {.grad_scale = flag(512)});
  CHECK_THAT(scaled, test::EqualsTensor(expected));
  CHECK(get_total_norm({}).equal(at::zeros({})));
  CHECK_NOTHROW(clip_grads_with_norm_({}, 1, at::ones({})));
  CHECK_NOTHROW(clip_grads_with_norm_({numbers({2}, 0)}, 1, at::ones({})));
}

TEST_CASE("ClipGradNorm: gradients on two devices have one norm, on the first one's device") {
  const auto whole = new_parameters();
  set_gradients(whole, 0);
  auto mixed = new_parameters();
  set_gradients(mixed, 0);
  for (const size_t i : {1, 3}) {
    const auto on_cpu = at::zeros(mixed[i].sizes()).requires_grad_();
    on_cpu.mutable_grad() = mixed[i].grad().cpu();
    mixed[i] = on_cpu;
  }
  const auto expected = clip_grad_norm_(whole, 0.5).item<double>();
  const auto norm = clip_grad_norm_(mixed, 0.5);
  CHECK(norm.device() == mixed[0].device());
  CHECK_THAT(norm.item<double>(), WithinAbs(expected, 1e-6 * expected));
  CHECK(mixed[3].grad().device().is_cpu());
  test::expect_near(gradients_of(mixed), gradients_of(whole));
  CHECK_THAT(get_total_norm(gradients_of(mixed)).item<double>(), WithinAbs(0.5, 1e-5));
}

TEST_CASE("ClipGradNorm: what its halves refuse leaves the gradients as they are") {
  const auto parameters = new_parameters();
  set_gradients(parameters, 0);
  const double nan = std::nan("");
  CHECK_THROWS_AS(clip_grads_with_norm_(parameters, nan, flag(1)), std::invalid_argument);
  CHECK_THROWS_AS(clip_grads_with_norm_(parameters, 1, at::Tensor()), std::invalid_argument);
  CHECK_THROWS_AS(clip_grads_with_norm_(parameters, 1, here(at::ones({2}))), std::invalid_argument);
  CHECK_THROWS_AS(clip_grads_with_norm_(parameters, 1, at::ones({}, at::kComplexFloat)), std::invalid_argument);
  CHECK_THROWS_AS(get_total_norm(gradients_of(parameters), {.norm_type = nan}), std::invalid_argument);
  const auto sparse = at::ones({2, 2}).requires_grad_();
  sparse.mutable_grad() = at::ones({2, 2}).to_sparse();
  auto all = parameters;
  all.push_back(sparse);
  CHECK_THROWS_MATCHES(clip_grads_with_norm_(all, 1, flag(100)), std::invalid_argument,
                       MessageMatches(ContainsSubstring("clip_grads_with_norm_ does not support sparse gradients")));
  CHECK_THROWS_AS(clip_grad_value_(all, 0.1), std::invalid_argument);
  CHECK_THROWS_AS(get_total_norm(gradients_of(all)), std::invalid_argument);
  for (size_t i = 0; i < parameters.size(); ++i) {
    CHECK_THAT(parameters[i].grad(),
               test::EqualsTensor(numbers(parameters[i].sizes(), 1000 + static_cast<int64_t>(i)) * 1.0));
  }
}

TEST_CASE("ClipGradValue: limits each element and keeps NaN") {
  const auto parameters = new_parameters();
  set_gradients(parameters, 0, 10);
  parameters[1].mutable_grad()[0] = std::nan("");
  clip_grad_value_(parameters, 0.5);
  CHECK(parameters[0].grad().equal((numbers({7, 5}, 1000) * 10).clamp(-0.5, 0.5)));
  CHECK(std::isnan(parameters[1].grad()[0].item<double>()));
}

}  // namespace
}  // namespace ddp::optim
