// Matchers for tensors, which are told only where they don't match, small ones in full. They compare values, wherever
// those lie.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <catch2/matchers/catch_matchers_templated.hpp>

#include <sstream>
#include <string>
#include <utility>

namespace ddp::test {

/// What a person can read of it.
inline std::string tensor_text(const at::Tensor& tensor) {
  constexpr int64_t kMax = 1000;
  std::ostringstream text;
  if (tensor.defined() && tensor.numel() > kMax) {
    text << "[ " << tensor.toString() << ' ' << tensor.sizes() << " ]";
  } else {
    text << tensor;
  }
  return text.str();
}

class TensorMatcher final : public Catch::Matchers::MatcherGenericBase {
 public:
  TensorMatcher(at::Tensor expected, double relative, double absolute)
      : expected_(std::move(expected)), relative_(relative), absolute_(absolute) {}

  bool match(const at::Tensor& actual) const {
    if (!actual.defined() || !expected_.defined()) return actual.defined() == expected_.defined();
    if (actual.sizes() != expected_.sizes() || actual.scalar_type() != expected_.scalar_type()) return false;
    const at::Tensor a = actual.cpu();
    const at::Tensor b = expected_.cpu();
    if (is_exact() ? at::equal(a, b) : at::allclose(a, b, relative_, absolute_)) return true;
    const at::Tensor different =
        at::isclose(a, b, relative_, absolute_).logical_not().reshape({-1}).nonzero().reshape({-1});
    if (different.numel() > 0) {
      const auto at = different[0].item<int64_t>();
      std::ostringstream text;
      text << "\n"
           << different.numel() << " of " << a.numel() << " numbers differ, the first at " << at << ": "
           << a.reshape({-1})[at].item() << ", not " << b.reshape({-1})[at].item();
      difference_ = text.str();
    }
    return false;
  }
  std::string describe() const override {
    return (is_exact() ? "\nequals\n" : "\nis close to\n") + tensor_text(expected_) + difference_;
  }

 private:
  bool is_exact() const { return relative_ == 0 && absolute_ == 0; }

  at::Tensor expected_;
  double relative_;
  double absolute_;
  mutable std::string difference_;  // of what did not match
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

template <>
struct Catch::StringMaker<at::Tensor> {
  static std::string convert(const at::Tensor& tensor) { return ddp::test::tensor_text(tensor); }
};
