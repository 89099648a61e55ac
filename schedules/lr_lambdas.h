// The functions of the step that LambdaLR and MultiplicativeLR multiply rates by.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules/scheduler.h"

namespace ddp::schedules {

/// One function for each group; a single one serves all.
class LrLambdas {
 public:
  explicit LrLambdas(std::vector<Lambda> factors) : factors_(std::move(factors)) {
    require(!factors_.empty(), "Expected at least 1 lr_lambdas, but got 0");
    for (const auto& factor : factors_) require(factor != nullptr, "lr_lambda should be a function, but is empty");
  }
  void check(size_t groups) const {
    require(factors_.size() == 1 || factors_.size() == groups,
            "Expected " + std::to_string(groups) + " lr_lambdas, but got " + std::to_string(factors_.size()));
  }
  double operator()(size_t i, int64_t step) const {
    return factors_.size() == 1 ? factors_[0](step) : factors_[i](step);
  }

 private:
  std::vector<Lambda> factors_;
};

}  // namespace ddp::schedules
