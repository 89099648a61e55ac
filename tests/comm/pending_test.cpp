// Handles of operations that are under way, in every order that users can bring them in.
#include "ddprun/comm/pending.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/core/call_log.h"
#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::EqualsTensor;
using test::error_of;
using test::here;

class PendingWorks : protected test::EveryWireAndSize {
 protected:
  static float all_ranks(const GroupHandle& group) { return static_cast<float>(group.size()); }
};

TEST_CASE_METHOD(PendingWorks, "Pending: a call ends when the others have come, whatever has become of its handle") {
  std::atomic<bool> has_looked{false};
  run([&](const GroupHandle& group) {
    const auto open = [&] {
      const auto calls = group.state().log().report().calls;
      return std::ranges::count(calls, false, &detail::CallRecord::ended);
    };
    while (group.rank() > 0 && !has_looked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::optional<Pending<void>> kept = all_reduce_async(here(at::ones({3})), group);
    { const auto dropped = all_reduce_async(here(at::ones({3})), group); }
    const bool is_told_by_its_work =
        !test::is_on_devices() && (wire_ == test::Wire::kShm || wire_ == test::Wire::kGloo);
    if (group.rank() == 0 && group.size() > 1 && is_told_by_its_work) RANK_CHECK(open() == 2);
    has_looked = true;
    barrier(group);
    const auto begin = std::chrono::steady_clock::now();
    if (!is_told_by_its_work) kept->wait();  // this one ends for who waits for it
    while (open() > 0 && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    RANK_CHECK(open() == 0);
    kept->wait();
    RANK_CHECK(open() == 0);
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: a group that is closed has done what was under way") {
  run([](const GroupHandle& group) {
    std::vector<int> all(static_cast<size_t>(group.size()));
    std::iota(all.begin(), all.end(), 0);
    for (int round = 0; round < 6; ++round) {
      const int64_t count = round % 2 == 0 ? 1 : 300'000;
      const bool is_dropped = round % 3 == 0;
      std::optional<ProcessGroup> own = new_group(group, all);
      const at::Tensor sum = here(at::ones({count}));
      std::optional<Pending<void>> pending = all_reduce_async(sum, *own);
      if (is_dropped) pending.reset();
      if (round >= 3 && group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (round == 5) {
        own.reset();
      } else {
        own->close();
      }
      if (pending) pending->wait();
      RANK_CHECK_THAT(sum, EqualsTensor(here(at::full({count}, all_ranks(group)))));
    }
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: operations may be waited for in any order") {
  run([](const GroupHandle& group) {
    constexpr size_t kCount = 12;
    std::mt19937 order(static_cast<unsigned>(group.rank()));  // another one on each rank
    std::vector<at::Tensor> sums;
    std::vector<Pending<void>> reductions;
    std::vector<Pending<at::Tensor>> gathered;
    for (size_t i = 0; i < kCount; ++i) {
      sums.push_back(here(at::full({static_cast<int64_t>(i + 1)}, static_cast<float>(i))));
      reductions.push_back(all_reduce_async(sums.back(), group));
      gathered.push_back(all_gather_async(here(at::full({2}, static_cast<float>(i * 10) + group.rank())), group));
    }
    std::vector<size_t> places(2 * kCount);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), order);
    for (const size_t place : places) {
      if (place < kCount) {
        reductions[place].wait();
        RANK_CHECK(reductions[place].is_done());
        RANK_CHECK_THAT(sums[place], EqualsTensor(at::full_like(sums[place], all_ranks(group) * place)));
      } else {
        const at::Tensor all = gathered[place - kCount].wait();
        for (int rank = 0; rank < group.size(); ++rank) {
          RANK_CHECK_THAT(all[rank], EqualsTensor(at::full({2}, static_cast<float>((place - kCount) * 10) + rank)));
        }
      }
    }
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: what is never waited for ends all the same and disturbs nobody") {
  run([](const GroupHandle& group) {
    for (int round = 0; round < 20; ++round) {
      static_cast<void>(all_reduce_async(here(at::ones({1000})), group));
      static_cast<void>(all_gather_async(here(at::ones({1000})), group));
      static_cast<void>(all_to_all_async(here(at::ones({group.size(), 10})), group));
      static_cast<void>(all_reduce_coalesced_async({here(at::ones({7})), here(at::ones({3}, at::kLong))}, group));
      static_cast<void>(scatter_async(here(at::zeros({3})),
                                      std::vector<at::Tensor>(static_cast<size_t>(group.size()), here(at::ones({3}))),
                                      0, group));
    }
    const at::Tensor sum = here(at::ones({5}));
    all_reduce(sum, group);
    RANK_CHECK_THAT(sum, EqualsTensor(at::full({5}, all_ranks(group))));
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: further waits return the same and change nothing") {
  run([](const GroupHandle& group) {
    Pending<at::Tensor> pending = all_gather_async(here(at::ones({2})), group);
    const at::Tensor first = pending.wait();
    first.fill_(7);
    RANK_CHECK(pending.wait().is_same(first));
    RANK_CHECK_THAT(pending.wait(), EqualsTensor(at::full({group.size(), 2}, 7.F)));
    at::Tensor tensor = here(at::ones({2}));
    Pending<void> sum = all_reduce_coalesced_async({tensor.t()}, group);
    sum.wait();
    tensor.fill_(9);
    sum.wait();
    RANK_CHECK_THAT(tensor, EqualsTensor(at::full({2}, 9.F)));
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: a handle that was moved from says so") {
  run([](const GroupHandle& group) {
    at::Tensor tensor = here(at::ones({2}));
    Pending<void> first = all_reduce_async(tensor, group);
    Pending<void> second = std::move(first);
    const auto says_so = ContainsSubstring("this handle refers to no operation");
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { first.wait(); }), says_so);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { static_cast<void>(first.is_done()); }), says_so);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { static_cast<void>(std::move(first).then<int>(1, [] {})); }),
                    says_so);
    first = std::move(second);
    first.wait();
    RANK_CHECK_THAT(tensor, EqualsTensor(at::full({2}, all_ranks(group))));
    Pending<at::Tensor> gathering = all_gather_async(here(at::ones({2})), group);
    Pending<int> counting = std::move(gathering).then<int>(3, [](const at::Tensor&) {});
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { gathering.wait(); }), says_so);
    RANK_CHECK_THAT(error_of<std::logic_error>([&] { static_cast<void>(gathering.is_done()); }), says_so);
    RANK_CHECK(counting.wait() == 3);
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: steps follow once, in order, with the result and without recording") {
  run([](const GroupHandle& group) {
    std::vector<std::string> steps;
    const at::Tensor weight = here(at::ones({2})).requires_grad_();
    at::Tensor product;
    Pending<std::string> last = all_gather_async(here(at::ones({2})), group)
                                    .then<int>(5,
                                               [&](const at::Tensor& all) {
                                                 RANK_CHECK(all.size(0) == group.size());
                                                 product = weight * all[0];
                                                 steps.emplace_back("first");
                                               })
                                    .then<std::string>("end", [&](const int& number) {
                                      RANK_CHECK(number == 5);
                                      steps.emplace_back("second");
                                    });
    RANK_CHECK(steps.empty());
    RANK_CHECK(last.wait() == "end");
    RANK_CHECK(last.wait() == "end");
    RANK_CHECK(steps == std::vector<std::string>{"first", "second"});
    RANK_CHECK_FALSE(product.requires_grad());
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: what a step throws reaches who waits, and the group goes on") {
  run([](const GroupHandle& group) {
    Pending<int> pending = all_gather_async(here(at::ones({2})), group).then<int>(1, [](const at::Tensor&) {
      throw std::domain_error("mine");
    });
    RANK_CHECK_THROWS_AS(pending.wait(), std::domain_error);
    const at::Tensor sum = here(at::ones({1}));
    all_reduce(sum, group);
    RANK_CHECK(sum.item<float>() == all_ranks(group));
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: a step that throws runs once, and later waits throw the same") {
  run([](const GroupHandle& group) {
    int calls = 0;
    int later_calls = 0;
    const at::Tensor sum = here(at::ones({1}));
    Pending<int> pending = all_reduce_async(sum, group)
                               .then<int>(1,
                                          [&] {
                                            ++calls;
                                            sum.mul_(2);  // a second run would be seen in what it has done
                                            throw std::domain_error("call " + std::to_string(calls));
                                          })
                               .then<int>(2, [&](const int&) { ++later_calls; });
    for (int i = 0; i < 3; ++i) {
      RANK_CHECK(error_of<std::domain_error>([&] { pending.wait(); }) == "call 1");
      RANK_CHECK(pending.is_done());
    }
    RANK_CHECK(calls == 1);
    RANK_CHECK(later_calls == 0);
    RANK_CHECK(sum.item<float>() == 2 * all_ranks(group));
    // Whatever was thrown, also what is no std::exception.
    Pending<int> odd = all_reduce_async(here(at::ones({1})), group).then<int>(1, [&] { throw ++calls; });
    RANK_CHECK_THROWS_AS(odd.wait(), int);
    RANK_CHECK_THROWS_AS(odd.wait(), int);
    RANK_CHECK(calls == 2);
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: a step that waits for its own handle's group may start new operations") {
  run([](const GroupHandle& group) {
    const at::Tensor second = here(at::ones({2}));
    Pending<int> pending =
        all_reduce_async(here(at::ones({1})), group).then<int>(1, [&] { all_reduce_async(second, group).wait(); });
    RANK_CHECK(pending.wait() == 1);
    RANK_CHECK(pending.wait() == 1);
    RANK_CHECK_THAT(second, EqualsTensor(at::full({2}, all_ranks(group))));
  });
}

TEST_CASE("Pending: an operation that failed is done, and each wait throws the same words at once") {
  std::atomic<bool> is_over{false};
  test::run_ranks(2,
                  [&](const GroupHandle& group) {
                    if (group.rank() == 1) {
                      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      return;
                    }
                    int calls = 0;
                    const at::Tensor tensor = here(at::ones({2}));
                    Pending<int> pending = all_reduce_async(tensor, group).then<int>(1, [&] { ++calls; });
                    RANK_CHECK_FALSE(pending.is_done());
                    const std::string first = error_of<std::runtime_error>([&] { pending.wait(); });
                    RANK_CHECK_THAT(first, ContainsSubstring("rank 0 of 2: all_reduce (number 0) of a Float tensor") &&
                                               ContainsSubstring("did not take part in it: rank 1"));
                    RANK_CHECK(pending.is_done());
                    RANK_CHECK(error_of<std::runtime_error>([&] { pending.wait(); }) == first);
                    RANK_CHECK(calls == 0);
                    is_over = true;
                  },
                  {.timeout = std::chrono::seconds(1)});
}

TEST_CASE_METHOD(PendingWorks, "Pending: operations of several groups end independently of each other's order") {
  run([](const GroupHandle& group) {
    std::vector<int> everybody(static_cast<size_t>(group.size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    std::vector<ProcessGroup> groups;
    for (int i = 0; i < 3; ++i) groups.push_back(std::move(*new_group(group, everybody)));
    std::vector<at::Tensor> tensors;
    std::vector<Pending<void>> pending;
    // Each rank begins with another group: in one group this would be another order of calls.
    for (size_t i = 0; i < groups.size(); ++i) {
      const size_t which = (i + static_cast<size_t>(group.rank())) % groups.size();
      tensors.push_back(here(at::full({4}, static_cast<float>(which + 1))));
      pending.push_back(all_reduce_async(tensors.back(), groups[which]));
    }
    for (size_t i = pending.size(); i-- > 0;) {
      pending[i].wait();
      const size_t which = (i + static_cast<size_t>(group.rank())) % groups.size();
      RANK_CHECK_THAT(tensors[i], EqualsTensor(at::full({4}, all_ranks(group) * static_cast<float>(which + 1))));
    }
    while (!groups.empty()) groups.pop_back();
  });
}

TEST_CASE_METHOD(PendingWorks, "Pending: lists without tensors are done") {
  run([](const GroupHandle& group) {
    Pending<void> nothing = all_reduce_coalesced_async({}, group);
    RANK_CHECK(nothing.is_done());
    nothing.wait();
    batch_send_recv_async({}, group).wait();
    RANK_CHECK(all_gather_coalesced({}, group).empty());
  });
}

}  // namespace
}  // namespace ddp
