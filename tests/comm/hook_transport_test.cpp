// Communication hooks: what users' functions may do to a bucket, and the futures that they are made of.
#include "comm/reducer/hook_transport.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using test::EqualsTensor;
using test::error_of;

// Bucket 3 of 5, with gradients of shapes (2, 2) and (3).
class Hooks {
 protected:
  // What the Reducer would get, once the hook's future is there.
  at::Tensor result_of(const CommHook& hook) {
    HookTransport transport(hook, bucket_, note_, "rank 1 of 2");
    const TensorFuture future = transport.start();
    REQUIRE(future->completed());
    return transport.finish(future.get()).toTensor();
  }
  void fails(const CommHook& hook, const std::string& why) {
    CHECK_THAT(error_of<std::exception>([&] { result_of(hook); }), ContainsSubstring(why));
    CHECK_THAT(note_->get(),
               StartsWith("rank 1 of 2: the communication hook failed in bucket 3") && ContainsSubstring(why));
  }

  const at::Tensor values_ = at::arange(7, at::kFloat);
  const std::vector<at::Tensor> parameters_{at::zeros({2, 2}), at::zeros({3})};
  const std::vector<int64_t> shapes_[2] = {{2, 2}, {3}};
  c10d::GradBucket c10d_bucket_{3, 5, values_, {0, 4}, {4, 3}, {shapes_[0], shapes_[1]}, parameters_, std::nullopt};
  GradientBucket bucket_{c10d_bucket_, parameters_};
  std::shared_ptr<ReductionFailure> note_ = std::make_shared<ReductionFailure>();
};

TEST_CASE_METHOD(Hooks, "HookTransport: a hook sees its bucket and what it returns is taken") {
  int calls = 0;
  const at::Tensor result = result_of([&](GradientBucket& bucket) {
    ++calls;
    CHECK(bucket.index() == 3);
    CHECK_FALSE(bucket.is_last());
    CHECK(bucket.buffer().is_same(values_));
    const auto gradients = bucket.gradients();
    REQUIRE(gradients.size() == 2);
    CHECK_THAT(gradients[0], EqualsTensor(at::arange(4, at::kFloat).view({2, 2})));
    CHECK_THAT(gradients[1], EqualsTensor(at::arange(4, 7, at::kFloat)));
    CHECK(gradients[1].is_alias_of(bucket.buffer()));
    CHECK(bucket.parameters()[1].is_same(parameters_[1]));
    bucket.set_buffer(bucket.buffer() * 2);
    return completed_future(bucket.buffer());
  });
  CHECK(calls == 1);
  CHECK_THAT(result, EqualsTensor(values_ * 2));
  CHECK(note_->get().empty());
}

TEST_CASE_METHOD(Hooks, "HookTransport: whatever a hook throws is noted with the bucket") {
  fails([](GradientBucket&) -> TensorFuture { throw std::domain_error("mine"); }, ": mine");
}

TEST_CASE_METHOD(Hooks, "HookTransport: an exception that is none of the standard's does not end the process") {
  fails([](GradientBucket&) -> TensorFuture { throw 7; }, "with something that is not a std::exception");
}

TEST_CASE_METHOD(Hooks, "HookTransport: no future is an error") {
  fails([](GradientBucket&) -> TensorFuture { return {}; }, "it returned no future");
}

TEST_CASE_METHOD(Hooks, "HookTransport: a future that fails is noted") {
  fails(
      [](GradientBucket& bucket) {
        return then(completed_future(bucket.buffer()),
                    [](const at::Tensor&) -> at::Tensor { throw std::domain_error("late"); });
      },
      "late");
}

TEST_CASE_METHOD(Hooks, "HookTransport: a result of another size than the bucket is refused") {
  fails([](GradientBucket&) { return completed_future(at::ones({8})); },
        "expected a dense tensor of the bucket's 7 elements, got a Float tensor of shape [8] on cpu");
}

TEST_CASE_METHOD(Hooks, "HookTransport: neither less nor nothing nor a sparse tensor replaces a bucket") {
  for (const at::Tensor& other : {at::ones({6}), at::ones({0}), at::ones({7}).to_sparse()}) {
    note_ = std::make_shared<ReductionFailure>();
    fails([&](GradientBucket&) { return completed_future(other); }, "expected a dense tensor of the bucket's 7");
  }
  note_ = std::make_shared<ReductionFailure>();
  fails(
      [](GradientBucket& bucket) {
        return then(completed_future(bucket.buffer()), [](auto&) { return at::Tensor(); });
      },
      "got an undefined one");
  UNSCOPED_INFO("another shape of as many is as good");
  note_ = std::make_shared<ReductionFailure>();
  CHECK(result_of([](GradientBucket&) { return completed_future(at::ones({7, 1})); }).numel() == 7);
  CHECK(note_->get().empty());
}

TEST_CASE("ReductionFailure: the first failure is the one that counts, whichever thread writes it") {
  ReductionFailure note;
  CHECK(note.get().empty());
  std::vector<std::thread> writing;
  for (int i = 0; i < 4; ++i) writing.emplace_back([&, i] { note.set("failure " + std::to_string(i)); });
  for (std::thread& thread : writing) thread.join();
  const std::string first = note.get();
  CHECK_THAT(first, StartsWith("failure "));
  note.set("another");
  CHECK(note.get() == first);
}

TEST_CASE("TensorFuture: what follows gets the value, in order, and records nothing") {
  const at::Tensor weight = at::ones({2}).requires_grad_();
  std::vector<int> order;
  const TensorFuture last = then(then(completed_future(at::full({2}, 3.F)),
                                      [&](const at::Tensor& value) {
                                        order.push_back(1);
                                        return value * weight;
                                      }),
                                 [&](const at::Tensor& value) {
                                   order.push_back(2);
                                   CHECK_FALSE(value.requires_grad());
                                   return value + 1;
                                 });
  REQUIRE(last->completed());
  CHECK(order == std::vector<int>{1, 2});
  CHECK_THAT(last->value().toTensor(), EqualsTensor(at::full({2}, 4.F)));
}

TEST_CASE("TensorFuture: an error passes all that would have followed") {
  bool followed = false;
  const TensorFuture failing =
      then(completed_future(at::ones({1})), [](const at::Tensor&) -> at::Tensor { throw std::domain_error("first"); });
  const TensorFuture last = then(failing, [&](const at::Tensor& value) {
    followed = true;
    return value;
  });
  CHECK(last->hasError());
  CHECK_FALSE(followed);
  CHECK_THAT(last->tryRetrieveErrorMessage(), ContainsSubstring("first"));
}

class Futures : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Futures, "TensorFuture: sums of several reductions may be waited for in any order") {
  run([](const GroupHandle& group) {
    const float n = static_cast<float>(group.size());
    std::vector<TensorFuture> sums;
    for (int i = 0; i < 6; ++i) {
      sums.push_back(then(all_reduce_future(at::full({3}, static_cast<float>(i)), group),
                          [](const at::Tensor& sum) { return sum + 1; }));
    }
    for (size_t i = sums.size(); i-- > 0;) {
      sums[i]->waitAndThrow();
      RANK_CHECK_THAT(sums[i]->value().toTensor(), EqualsTensor(at::full({3}, n * static_cast<float>(i) + 1)));
    }
  });
}

TEST_CASE("TensorFuture: a sum that a rank stays away from fails and says who") {
  std::atomic<bool> failed{false};
  test::run_ranks(2,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!failed) std::this_thread::yield();
                      return;
                    }
                    const TensorFuture sum = all_reduce_future(at::ones({3}), group);
                    RANK_CHECK_THAT(
                        error_of<std::exception>([&] { sum->waitAndThrow(); }),
                        ContainsSubstring("rank 0 of 2: ") && ContainsSubstring("did not take part in it: rank 1"));
                    failed = true;
                  },
                  {.timeout = std::chrono::seconds(1)});
}

TEST_CASE("TensorFuture: on a closed group there is none") {
  ProcessGroup owner = init_process_group({.rank_info = RankInfo{}});
  owner.close();
  CHECK_THAT(error_of<std::runtime_error>([&] { all_reduce_future(at::ones({1}), owner); }),
             ContainsSubstring("rank 0 of 1") && ContainsSubstring("closed"));
}

}  // namespace
}  // namespace ddp::detail
