// Gradients that lie in buckets without being views of them.
#include "comm/reducer/parameter_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using test::EqualsTensor;

// Leaves every gradient to c10d.
class Counter final : public ParameterGradients::Listener {
 public:
  bool take(size_t /*parameter*/, const at::Tensor& incoming) override {
    taken += incoming.defined() ? 1 : 0;
    return false;
  }
  bool end_backward(bool is_outermost) override {
    CHECK(is_outermost);
    return ++ended == 1;  // once more after what was queued
  }
  void abandon_backward() override { ++abandoned; }
  bool is_in_bucket(size_t /*parameter*/, const at::Tensor& /*view*/) const override { return true; }

  int taken = 0;
  int ended = 0;
  int abandoned = 0;
};

class Gradients {
 protected:
  std::shared_ptr<ParameterGradients> make(bool in_buckets) {
    return std::make_shared<ParameterGradients>(parameters_, in_buckets, nullptr);
  }
  // As c10d::Reducer leaves them.
  void leave_views() {
    parameters_[0].mutable_grad() = bucket_.narrow(0, 0, 6).view({2, 3});
    parameters_[1].mutable_grad() = bucket_.narrow(0, 6, 1).view(at::IntArrayRef());
    parameters_[2].mutable_grad() = bucket_.narrow(0, 7, 0).view({0, 2});
    parameters_[3].mutable_grad() = bucket_.narrow(0, 7, 6).view({2, 3}).t();
  }

  at::Tensor bucket_ = at::arange(13, at::kFloat);
  std::vector<at::Tensor> parameters_{at::zeros({2, 3}).requires_grad_(), at::zeros({}).requires_grad_(),
                                      at::zeros({0, 2}).requires_grad_(), at::zeros({3, 2}).requires_grad_()};
};

TEST_CASE_METHOD(Gradients, "ParameterGradients: views become tensors on the same memory, with the same strides") {
  leave_views();
  const auto gradients = make(true);
  gradients->replace_views();
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor gradient = parameter.grad();
    CHECK_FALSE(gradient.is_view());
    CHECK(gradient.sizes() == parameter.sizes());
    CHECK((gradient.numel() == 0 || gradient.is_alias_of(bucket_)));
    gradient.detach_();  // what optimizer.zero_grad() does, and views refuse
  }
  CHECK(parameters_[3].grad().strides() == at::IntArrayRef({1, 3}));
  bucket_.mul_(10);
  CHECK_THAT(parameters_[0].grad(), EqualsTensor(at::arange(6, at::kFloat).view({2, 3}) * 10));
  CHECK(parameters_[1].grad().item<float>() == 60);
  CHECK_THAT(parameters_[3].grad(), EqualsTensor(at::arange(7, 13, at::kFloat).view({2, 3}).t() * 10));
}

TEST_CASE_METHOD(Gradients,
                 "ParameterGradients: a parameter has the same gradient from step to step, until its bucket changes") {
  const auto gradients = make(true);
  leave_views();
  gradients->replace_views();
  const at::Tensor first = parameters_[0].grad();
  leave_views();
  gradients->replace_views();
  CHECK(parameters_[0].grad().is_same(first));
  gradients->replace_views();  // of no views
  CHECK(parameters_[0].grad().is_same(first));
  bucket_ = bucket_.clone();
  leave_views();
  gradients->replace_views();
  CHECK_FALSE(parameters_[0].grad().is_same(first));
  CHECK(parameters_[0].grad().is_alias_of(bucket_));
  UNSCOPED_INFO("another place in the same bucket is another gradient");
  const at::Tensor second = parameters_[0].grad();
  parameters_[0].mutable_grad() = bucket_.narrow(0, 1, 6).view({2, 3});
  gradients->replace_views();
  CHECK_FALSE(parameters_[0].grad().is_same(second));
  CHECK(parameters_[0].grad()[0][0].item<float>() == 1);
}

TEST_CASE_METHOD(Gradients, "ParameterGradients: gradients that are not views, sparse or missing are left alone") {
  const at::Tensor own = at::ones({2, 3});
  const at::Tensor sparse = at::ones({3, 2}).to_sparse();
  parameters_[0].mutable_grad() = own;
  parameters_[3].mutable_grad() = sparse;
  make(true)->replace_views();
  CHECK(parameters_[0].grad().is_same(own));
  CHECK_FALSE(parameters_[1].grad().defined());
  CHECK(parameters_[3].grad().is_same(sparse));
}

TEST_CASE_METHOD(Gradients, "ParameterGradients: where gradients lie outside of buckets views stay what they are") {
  leave_views();
  make(false)->replace_views();
  CHECK(parameters_[0].grad().is_view());
}

TEST_CASE_METHOD(Gradients, "ParameterGradients: a bucket that was forgotten is kept alive by nobody") {
  const auto gradients = make(true);
  leave_views();
  gradients->replace_views();
  const auto memory = c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(bucket_.storage().unsafeGetStorageImpl()));
  bucket_ = at::Tensor();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  CHECK_FALSE(memory.expired());
  gradients->forget();
  CHECK(memory.expired());
}

TEST_CASE_METHOD(Gradients,
                 "ParameterGradients: views are replaced in the backward that leaves them, also in one that throws") {
  const auto gradients = make(true);
  const auto listener = std::make_shared<Counter>();
  gradients->follow_backward(listener);
  gradients->before_forward();
  const at::Tensor weight = parameters_[0];
  leave_views();
  (weight * 2).sum().backward();  // accumulates into the view
  CHECK_FALSE(weight.grad().is_view());
  CHECK(weight.grad().is_alias_of(bucket_));
  CHECK_THAT(bucket_.narrow(0, 0, 6), EqualsTensor(at::arange(6, at::kFloat) + 2));
  UNSCOPED_INFO("those of other parameters at its end");
  CHECK_FALSE(parameters_[3].grad().is_view());
  leave_views();
  gradients->before_forward();
  at::Tensor failing = parameters_[1] * 1;
  failing.register_hook([](const at::Tensor&) -> at::Tensor { throw std::domain_error("mine"); });
  CHECK_THROWS((failing + (weight * 2).sum()).backward());
  gradients->before_forward();
  (weight * 2).sum().backward();
  for (const at::Tensor& parameter : parameters_) CHECK_FALSE(parameter.grad().is_view());
  CHECK(listener->taken == 3);
  CHECK(listener->ended == 3);
  CHECK(listener->abandoned == 1);
}

}  // namespace
}  // namespace ddp::detail
