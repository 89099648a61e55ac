// Matchers for tensors, which are told in full only where they don't match. They compare values, wherever those lie.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <catch2/matchers/catch_matchers_templated.hpp>

#include <sstream>
#include <string>
#include <utility>

namespace ddp::test {

class TensorMatcher final : public Catch::Matchers::MatcherGenericBase {
 public:
  TensorMatcher(at::Tensor expected, double relative, double absolute)
      : expected_(std::move(expected)), relative_(relative), absolute_(absolute) {}

  bool match(const at::Tensor& actual) const {
    if (!actual.defined() || !expected_.defined()) return actual.defined() == expected_.defined();
    if (actual.sizes() != expected_.sizes() || actual.scalar_type() != expected_.scalar_type()) return false;
    const at::Tensor a = actual.cpu();
    const at::Tensor b = expected_.cpu();
    return relative_ == 0 && absolute_ == 0 ? at::equal(a, b) : at::allclose(a, b, relative_, absolute_);
  }
  std::string describe() const override {
    std::ostringstream text;
    text << "\n" << (relative_ == 0 && absolute_ == 0 ? "equals" : "is close to") << "\n" << expected_;
    return text.str();
  }

 private:
  at::Tensor expected_;
  double relative_;
  double absolute_;
};

/// Matches a tensor of this shape and dtype with these values.
inline TensorMatcher EqualsTensor(at::Tensor expected) {
  return {std::move(expected), 0, 0};
}

/// Matches a tensor of this shape and dtype whose values differ by at most `absolute` + `relative` |expected|.
inline TensorMatcher IsCloseTo(at::Tensor expected, double relative, double absolute) {
  return {std::move(expected), relative, absolute};
}

}  // namespace ddp::test
