// The one choice of how an all-reduce goes.
#include "comm/core/all_reduce_plan.h"

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using InWait = AllReduceTraits::InWait;
using Plan = AllReducePlan;
using Waiter = AllReduceWaiter;

constexpr Waiter kWaiters[] = {Waiter::kCaller, Waiter::kHandle, Waiter::kFuture, Waiter::kBackward};

AllReduceRequest usual(Waiter waiter, size_t bytes) {
  return {.waiter = waiter, .bytes = bytes, .is_dense_on_cpu = true, .is_contiguous_float = true, .fits_call = true};
}

TEST_CASE("AllReducePlan: what is not dense memory of the host goes through the group, whoever waits") {
  for (const Waiter waiter : kWaiters) {
    AllReduceRequest request = usual(waiter, 4);
    request.is_dense_on_cpu = false;
    CHECK(choose_all_reduce({.in_call = true, .in_wait = InWait::kAll}, request) == Plan::kGroup);
  }
}

TEST_CASE("AllReducePlan: a backend with c10d's interface alone gets every dense tensor directly") {
  for (const Waiter waiter : kWaiters) CHECK(choose_all_reduce({}, usual(waiter, 4)) == Plan::kBackend);
}

TEST_CASE("AllReducePlan: shared memory reduces within the call that waits, and buckets in the wait at the end") {
  constexpr AllReduceTraits kShm{.in_call = true, .in_wait = InWait::kAll};
  for (const size_t bytes : {size_t{0}, size_t{4}, size_t{64} << 20}) {
    CHECK(choose_all_reduce(kShm, usual(Waiter::kCaller, bytes)) == Plan::kInCall);
    CHECK(choose_all_reduce(kShm, usual(Waiter::kHandle, bytes)) == Plan::kBackend);
    CHECK(choose_all_reduce(kShm, usual(Waiter::kFuture, bytes)) == Plan::kBackend);
    CHECK(choose_all_reduce(kShm, usual(Waiter::kBackward, bytes)) == Plan::kInWait);
  }
  AllReduceRequest unusual = usual(Waiter::kCaller, 4);
  unusual.fits_call = false;
  CHECK(choose_all_reduce(kShm, unusual) == Plan::kBackend);
}

TEST_CASE("AllReducePlan: two ranks on gloo exchange small buckets of real numbers and nothing else") {
  constexpr AllReduceTraits kPair{.in_wait = InWait::kSmallFloats};
  CHECK(choose_all_reduce(kPair, usual(Waiter::kBackward, 1)) == Plan::kInWait);
  CHECK(choose_all_reduce(kPair, usual(Waiter::kBackward, size_t{64} << 10)) == Plan::kInWait);
  CHECK(choose_all_reduce(kPair, usual(Waiter::kBackward, (size_t{64} << 10) + 1)) == Plan::kBackend);
  CHECK(choose_all_reduce(kPair, usual(Waiter::kBackward, 0)) == Plan::kBackend);
  AllReduceRequest integers = usual(Waiter::kBackward, 4);
  integers.is_contiguous_float = false;
  CHECK(choose_all_reduce(kPair, integers) == Plan::kBackend);
  for (const Waiter waiter : {Waiter::kCaller, Waiter::kHandle, Waiter::kFuture}) {
    CHECK(choose_all_reduce(kPair, usual(waiter, 4)) == Plan::kBackend);
  }
}

}  // namespace
}  // namespace ddp::detail
