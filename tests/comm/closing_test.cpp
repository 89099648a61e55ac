// What becomes of calls when a process group is closed, as docs/collectives.md says it.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;

constexpr auto kHang = 15s;  // shorter than the group's timeout, so that whoever runs into that one fails

class Closing {
 protected:
  // `body` on two ranks that have a group of their own to close.
  void run(const std::function<void(const GroupHandle& all, ProcessGroup& own)>& body) const {
    test::run_ranks(2,
                    [&](const GroupHandle& all) {
                      auto own = new_group(all, {0, 1});
                      barrier(*own);
                      body(all, *own);
                    },
                    {.wire = wire_, .timeout = 60s});
  }

  // On gloo nothing but its own timeout ends a call that nobody else takes part in.
  CollectiveOptions own_time() const {
    return wire_ == test::Wire::kGloo ? CollectiveOptions{.timeout = 2s} : CollectiveOptions{};
  }

  const test::Wire wire_ = GENERATE(from_range(test::wires({test::Wire::kGloo, test::Wire::kShm})));
  FIXTURE_INFO("wire: " << wire_);
};

// Whether this rank has begun a call on the group that has not ended.
bool is_in_a_call(const GroupHandle& group) {
  const auto calls = group.state().log().report().calls;
  return std::ranges::find(calls, false, &detail::CallRecord::ended) != calls.end();
}

std::chrono::steady_clock::duration time_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begin;
}

TEST_CASE_METHOD(Closing, "Closing: in a catch block as elsewhere, a group first does what has been begun on it") {
  run([](const GroupHandle& all, ProcessGroup& own) {
    const at::Tensor sum = here(at::ones({3}));
    try {
      static_cast<void>(all_reduce_async(sum, own));
      throw std::domain_error("mine");
    } catch (const std::domain_error&) {
      if (all.rank() == 1) std::this_thread::sleep_for(50ms);
      own.close();
    }
    RANK_CHECK_THAT(sum, EqualsTensor(at::full({3}, 2.F)));
  });
}

TEST_CASE_METHOD(Closing, "Closing: any number of dropped collectives with a peer that never comes cost one timeout") {
  run([](const GroupHandle& all, ProcessGroup& own) {
    if (all.rank() == 0) {
      std::vector<at::Tensor> sums;
      for (int i = 0; i < 20; ++i) {
        sums.push_back(here(at::ones({3})));
        static_cast<void>(all_reduce_async(sums.back(), own, ReduceOp::kSum, {.timeout = 2s}));
      }
      RANK_CHECK(time_of([&] { own.close(); }) < kHang);
    }
    barrier(all);
  });
}

TEST_CASE_METHOD(Closing,
                 "Closing: a collective that another thread is in comes to its end, and its next call is refused") {
  std::atomic<bool> is_closing{false};
  run([&](const GroupHandle& all, ProcessGroup& own) {
    const at::Tensor sum = here(at::ones({3}));
    if (all.rank() == 1) {
      while (!is_closing) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);
      all_reduce(sum, own);
    } else {
      const GroupHandle handle = own;
      std::atomic<bool> has_called{false};
      std::thread caller([&] {
        RANK_CHECK(error_of<std::runtime_error>([&] { all_reduce(sum, handle); }) == "no error");
        has_called = true;
        while (handle.is_open()) std::this_thread::sleep_for(1ms);
        RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_reduce(sum, handle); }), ContainsSubstring("closed"));
      });
      // On devices the call does not wait for the other rank.
      while (!is_in_a_call(handle) && !has_called) std::this_thread::sleep_for(1ms);
      is_closing = true;
      own.close();
      caller.join();
    }
    RANK_CHECK_THAT(sum, EqualsTensor(at::full({3}, 2.F)));
  });
}

TEST_CASE_METHOD(Closing, "Closing: abort() ends a close() that waits in another thread, but on gloo") {
  run([this](const GroupHandle& all, ProcessGroup& own) {
    if (all.rank() == 0) {
      RANK_CHECK(time_of([&] {
                   static_cast<void>(all_reduce_async(here(at::ones({3})), own, ReduceOp::kSum, own_time()));
                   std::thread closer([&] { own.close(); });
                   while (own.is_open()) std::this_thread::sleep_for(1ms);
                   std::this_thread::sleep_for(50ms);
                   own.abort();
                   closer.join();
                 }) < kHang);
    }
    barrier(all);
  });
}

TEST_CASE_METHOD(Closing, "Closing: a message that nobody has sent fails, on gloo when its own time is over") {
  run([this](const GroupHandle& all, ProcessGroup& own) {
    if (all.rank() == 0) {
      at::Tensor received = here(at::zeros({2}));
      Pending<void> receiving = recv_async(received, 1, own, 0, own_time());
      RANK_CHECK(time_of([&] {
                   own.close();
                   RANK_CHECK(error_of<std::runtime_error>([&] { receiving.wait(); }) != "no error");
                 }) < kHang);
    }
    barrier(all);
  });
}

TEST_CASE_METHOD(Closing, "Closing: who waits for a rank that has closed its group is told at once") {
  run([](const GroupHandle& all, ProcessGroup& own) {
    if (all.rank() == 0) {
      own.close();
    } else {
      const at::Tensor sum = here(at::ones({3}));
      std::string error;
      RANK_CHECK(time_of([&] { error = error_of<std::runtime_error>([&] { all_reduce(sum, own); }); }) < kHang);
      RANK_CHECK_THAT(error, ContainsSubstring("closed") && ContainsSubstring("rank 0"));
    }
    barrier(all);
  });
}

TEST_CASE_METHOD(Closing, "Closing: a message that nobody has taken is dropped, and who comes for it is told") {
  run([this](const GroupHandle& all, ProcessGroup& own) {
    constexpr int64_t kMany = 3'000'000;  // more than sockets and the memory between two ranks hold
    if (all.rank() == 0) {
      static_cast<void>(send_async(here(at::ones({kMany})), 1, own));
      RANK_CHECK(time_of([&] { own.close(); }) < kHang);
    }
    barrier(all);
    if (all.rank() == 0) return;
    at::Tensor received = here(at::zeros({kMany}));
    std::string error;
    RANK_CHECK(time_of([&] { error = error_of<std::runtime_error>([&] { recv(received, 0, own); }); }) < kHang);
    if (wire_ == test::Wire::kGloo && error == "no error") {  // it was on its way
      RANK_CHECK_THAT(received, EqualsTensor(at::ones({kMany})));
    } else {
      RANK_CHECK_THAT(error, ContainsSubstring("closed") && ContainsSubstring("rank 0"));
    }
  });
}

}  // namespace
}  // namespace ddp
