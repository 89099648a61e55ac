// The way of one bucket, with a transport that sends nothing.
#include "comm/reducer/reduction_context.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;

using Steps = std::vector<std::string>;

// Says what is called; its sum is 7, or an error.
class RecordedTransport final : public BucketTransport {
 public:
  RecordedTransport(Steps& steps, TensorFuture arrival, bool fails = false)
      : steps_(steps), arrival_(std::move(arrival)), fails_(fails) {}

  TensorFuture start() override {
    steps_.emplace_back("start");
    return arrival_;
  }
  c10::IValue finish(c10::ivalue::Future* arrived) override {
    steps_.emplace_back(arrived == nullptr ? "finish" : "finish what arrived");
    if (fails_) throw std::runtime_error("the other rank is gone");
    return c10::IValue(std::vector<at::Tensor>{at::full({1}, 7.F)});
  }

 private:
  Steps& steps_;
  const TensorFuture arrival_;
  const bool fails_;
};

TensorFuture unfinished() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

float sum_of(const TensorFuture& future) {
  return future->value().toTensorVector().at(0).item<float>();
}

class Reduction {
 protected:
  TensorFuture reduce(TensorFuture arrival = nullptr, bool fails = false) {
    return context.reduce(at::ones({4}), std::make_shared<RecordedTransport>(steps, std::move(arrival), fails));
  }

  // Runs `body` in a backward.
  static void in_backward(const std::function<void()>& body) {
    const at::Tensor leaf = at::ones({1}).requires_grad_();
    const at::Tensor output = leaf.mul(2);
    output.register_hook([&](const at::Tensor&) { body(); });
    output.backward();
  }

  Steps steps;
  ReductionContext context{
      {.name = "Net", .parameters = {at::ones({4})}, .names = {"weight"}}, test::unconnected_rank(1, 2), {}};
};

TEST_CASE_METHOD(Reduction, "Reduction: outside of a backward it is finished in the call that starts it") {
  const TensorFuture sum = reduce();
  CHECK(steps == Steps{"start", "finish"});
  CHECK(sum_of(sum) == 7);
}

TEST_CASE_METHOD(Reduction, "Reduction: in a backward it is finished at its end before what is queued later") {
  TensorFuture sum;
  in_backward([&] {
    sum = reduce();
    torch::autograd::Engine::get_default_engine().queue_callback([&] {
      steps.emplace_back("end");
      CHECK(sum->completed());
    });
    CHECK(steps == Steps{"start"});
    CHECK_FALSE(sum->completed());
  });
  CHECK(steps == Steps{"start", "finish", "end"});
  CHECK(sum_of(sum) == 7);
}

TEST_CASE_METHOD(Reduction, "Reduction: who needs the sum at once gets it in a backward too") {
  in_backward([&] {
    context.finishing_at_once([&] { CHECK(sum_of(reduce()) == 7); });
    reduce();
    CHECK(steps == Steps{"start", "finish", "start"});
  });
  CHECK(steps.back() == "finish");
}

TEST_CASE_METHOD(Reduction, "Reduction: a transport that tells when the sum is there is finished then") {
  const TensorFuture arrival = unfinished();
  const TensorFuture sum = reduce(arrival);
  CHECK(steps == Steps{"start"});
  arrival->markCompleted(c10::IValue(std::vector<at::Tensor>{at::ones({1})}));
  CHECK(steps == Steps{"start", "finish what arrived"});
  CHECK(sum_of(sum) == 7);
}

TEST_CASE_METHOD(Reduction, "Reduction: what finishing throws is thrown to who waits") {
  const TensorFuture arrival = unfinished();
  const TensorFuture later = reduce(arrival, true);
  arrival->markCompleted(c10::IValue(std::vector<at::Tensor>{at::ones({1})}));
  CHECK_THROWS_WITH(later->waitAndThrow(), ContainsSubstring("the other rank is gone"));
  CHECK_THROWS_WITH(reduce(nullptr, true)->waitAndThrow(), ContainsSubstring("the other rank is gone"));
}

TEST_CASE("Reduction: with check gradients a NaN is named and nothing is sent") {
  at::Tensor weight = at::ones({2}).requires_grad_();
  weight.mutable_grad() = at::full({2}, std::numeric_limits<float>::quiet_NaN());
  ReductionContext context({.name = "Net", .parameters = {at::ones({4}), weight}, .names = {"bias", "weight"}},
                           test::unconnected_rank(1, 2), {.check_gradients = true});
  Steps steps;
  const auto transport = std::make_shared<RecordedTransport>(steps, nullptr);
  CHECK_NOTHROW(context.refuse_after_failure());
  CHECK_THROWS_WITH(context.reduce(weight.grad(), transport),
                    "rank 1 of 2: a gradient is NaN or infinite before its reduction: parameter 'weight'");
  CHECK(steps.empty());
  CHECK_THROWS_WITH(context.refuse_after_failure(),
                    ContainsSubstring("an earlier backward failed") && ContainsSubstring("parameter 'weight'"));
}

}  // namespace
}  // namespace ddp::detail
