// Layer-wise rates, by the formula of apex's LARC.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include <ddprun/optim/larc.h>
#include <ddprun/optim/optimizers.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"
#include "tests/support/placement.h"

namespace ddp::optim {
namespace {

using test::flag;
using test::here;
using test::new_parameters;
using test::set_gradients;

TEST_CASE("Larc: gives each layer apex's rate") {
  for (const bool clip : {true, false}) {
    for (const double scale : {0.0, 64.0}) {
      auto parameters = new_parameters();
      parameters[1] = here(at::zeros({3})).requires_grad_();  // a layer without norm is left alone
      const double lr = 0.01, decay = 0.1, trust = 0.002, eps = 1e-8;
      Larc<SGD> optimizer(parameters, SGDOptions(lr).weight_decay(decay),
                          LarcOptions{.trust_coefficient = trust, .clip = clip, .eps = eps});
      std::vector<at::Tensor> expected;
      set_gradients(parameters, 0);
      for (const auto& parameter : parameters) {
        const double p = parameter.norm().item<double>(), g = parameter.grad().norm().item<double>();
        double rate = trust * p / (g + p * decay + eps);
        if (clip) rate = std::min(rate / lr, 1.0);
        const auto gradient = p == 0 ? parameter.grad() : (parameter.grad() + decay * parameter.detach()) * rate;
        expected.push_back(parameter.detach() - lr * gradient);
      }
      if (scale == 0) {
        optimizer.step();
      } else {
        set_gradients(parameters, 0, scale);
        optimizer.step_scaled({.grad_scale = flag(scale), .found_inf = flag(0)});
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        UNSCOPED_INFO(i);
        CHECK(parameters[i].allclose(expected[i], 1e-5, 1e-7));
      }
      CHECK(static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).weight_decay() == decay);
    }
  }
}

}  // namespace
}  // namespace ddp::optim
