// Messages between two ranks: every kind of tensor, in every order, and what becomes of those that nobody takes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/process_group.h>

#include "ddprun/comm/collectives.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
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

constexpr int kLargestTag = std::numeric_limits<int>::max() - 1;  // of users; the next one is the library's

// With each backend whose messages have tags.
class PointToPoint {
 protected:
  void run(int size, const std::function<void(const GroupHandle&)>& body) const {
    test::run_ranks(size, body, {.wire = wire_});
  }

  const test::Wire wire_ = GENERATE(test::Wire::kGloo, test::Wire::kShm);
  FIXTURE_INFO("wire: " << wire_);
};

// Values that depend on the rank, of every kind that a user may have.
std::vector<at::Tensor> every_kind(int rank) {
  std::vector<at::Tensor> tensors;
  const at::Tensor numbers = here(at::arange(6, at::kLong)).add(10 * rank).view({2, 3});
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kShort, at::kInt, at::kLong,
        at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    tensors.push_back(numbers.to(dtype));
  }
  tensors.push_back(here(at::full({}, rank + 0.5F)));
  tensors.push_back(here(at::zeros({0})));
  tensors.push_back(here(at::zeros({2, 0, 3})));
  tensors.push_back(here(at::full({300'000}, rank + 1.F)));  // more than sockets hold
  tensors.push_back(here(at::full({2}, rank + 7.F)).requires_grad_());
  tensors.push_back(here(at::full({4, 2}, rank + 3.F)).narrow(0, 1, 2));  // a part that is contiguous
  return tensors;
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: every kind of tensor arrives as it was sent") {
  run(3, [](const GroupHandle& group) {
    const int n = group.size();
    const int to = (group.rank() + 1) % n;
    const int from = (group.rank() + n - 1) % n;
    const std::vector<at::Tensor> mine = every_kind(group.rank());
    const std::vector<at::Tensor> expected = every_kind(from);
    for (size_t i = 0; i < mine.size(); ++i) {
      RANK_INFO("tensor " << i);
      at::Tensor received = at::zeros_like(mine[i].detach());
      Pending<void> sending = send_async(mine[i], to, group, static_cast<int>(i));
      recv(received, from, group, static_cast<int>(i));
      sending.wait();
      RANK_CHECK_THAT(received, EqualsTensor(expected[i].detach()));
      RANK_CHECK_THAT(mine[i].detach(), EqualsTensor(every_kind(group.rank())[i].detach()));
    }
  });
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: a leaf takes a message without being recorded") {
  run(2, [](const GroupHandle& group) {
    at::Tensor leaf = here(at::zeros({2})).requires_grad_();
    if (group.rank() == 0) send(here(at::ones({2})), 1, group);
    if (group.rank() == 1) {
      recv(leaf, 0, group);
      RANK_CHECK((leaf.is_leaf() && leaf.requires_grad()));
      RANK_CHECK_THAT(leaf.detach(), EqualsTensor(at::ones({2})));
    }
  });
}

TEST_CASE_METHOD(PointToPoint,
                 "PointToPoint: messages of different tags are taken in any order, those of one tag in theirs") {
  run(2, [](const GroupHandle& group) {
    constexpr int kTags = 6;
    constexpr int kEach = 4;
    const std::vector<int> tags{0, 1, 77, 1 << 20, kLargestTag - 1, kLargestTag};
    const auto value = [](size_t tag, int number) {
      return static_cast<float>(100 * tag) + static_cast<float>(number);
    };
    if (group.rank() == 0) {
      std::vector<Pending<void>> pending;
      for (int number = 0; number < kEach; ++number) {
        for (size_t tag = 0; tag < kTags; ++tag) {
          pending.push_back(send_async(here(at::full({3}, value(tag, number))), 1, group, tags[tag]));
        }
      }
      for (Pending<void>& each : pending) each.wait();
      return;
    }
    std::vector<size_t> order(kTags);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(4));
    for (const size_t tag : order) {
      for (int number = 0; number < kEach; ++number) {
        at::Tensor received = here(at::zeros({3}));
        recv(received, 0, group, tags[tag]);
        RANK_CHECK_THAT(received, EqualsTensor(at::full({3}, value(tag, number))));
      }
    }
  });
}

TEST_CASE_METHOD(PointToPoint,
                 "PointToPoint: all pairs of ranks may exchange at once, waited for in another order on each") {
  for (const int size : {2, 3, 4}) {
    run(size, [](const GroupHandle& group) {
      const auto text = [](int from, int to) { return here(at::full({5}, static_cast<float>(10 * from + to))); };
      std::vector<std::pair<int, at::Tensor>> received;
      std::vector<Pending<void>> pending;
      for (int peer = group.size() - 1; peer >= 0; --peer) {
        if (peer == group.rank()) continue;
        received.emplace_back(peer, here(at::zeros({5})));
        pending.push_back(recv_async(received.back().second, peer, group, 3));
        pending.push_back(send_async(text(group.rank(), peer), peer, group, 3));
      }
      std::shuffle(pending.begin(), pending.end(), std::mt19937(static_cast<unsigned>(group.rank())));
      for (Pending<void>& each : pending) each.wait();
      for (const auto& [peer, tensor] : received) {
        RANK_CHECK_THAT(tensor, EqualsTensor(text(peer, group.rank())));
      }
    });
  }
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: one receiver of any rank's messages gets each once and knows from whom") {
  run(4, [](const GroupHandle& group) {
    constexpr int kEach = 5;
    if (group.rank() != 2) {
      for (int i = 0; i < kEach; ++i) send(here(at::full({}, static_cast<float>(10 * group.rank() + i))), 2, group, 9);
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < 3 * kEach; ++i) {
      at::Tensor received = here(at::zeros({}));
      const int from = recv_any(received, group, 9);
      RANK_REQUIRE((from >= 0 && from < 4 && from != 2));
      RANK_CHECK(received.item<float>() == static_cast<float>(10 * from + next[static_cast<size_t>(from)]++));
    }
    RANK_CHECK(next == std::vector<int>{kEach, kEach, 0, kEach});
  });
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: a message without elements comes from any rank as others do") {
  run(2, [](const GroupHandle& group) {
    for (int i = 0; i < 3; ++i) {
      at::Tensor nothing = here(at::zeros({0, 3}));
      at::Tensor something = here(at::zeros({2}));
      if (group.rank() == 0) {
        send(nothing, 1, group, 4);
        send(here(at::full({2}, 5.F)), 1, group, 4);
      } else {
        RANK_CHECK(recv_any(nothing, group, 4) == 0);
        RANK_CHECK(recv_any(something, group, 4) == 0);
        RANK_CHECK_THAT(something, EqualsTensor(at::full({2}, 5.F)));
      }
    }
  });
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: messages do not mix with collectives or with those of a sub group") {
  run(2, [](const GroupHandle& group) {
    const auto other = new_group(group, {0, 1});
    const int peer = 1 - group.rank();
    at::Tensor in_group = here(at::zeros({2}));
    at::Tensor in_other = here(at::zeros({2}));
    Pending<void> first = recv_async(in_group, peer, group);
    Pending<void> second = recv_async(in_other, peer, *other);
    for (int i = 0; i < 10; ++i) {
      const at::Tensor sum = here(at::ones({3}));
      all_reduce(sum, group);
      RANK_CHECK_THAT(sum, EqualsTensor(at::full({3}, 2.F)));
      all_reduce(sum, *other);
    }
    send(here(at::full({2}, 4.F)), peer, *other);
    send(here(at::full({2}, 3.F)), peer, group);
    second.wait();
    first.wait();
    RANK_CHECK_THAT(in_group, EqualsTensor(at::full({2}, 3.F)));
    RANK_CHECK_THAT(in_other, EqualsTensor(at::full({2}, 4.F)));
  });
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: tags that users must not use are refused") {
  run(2, [](const GroupHandle& group) {
    at::Tensor tensor = here(at::ones({2}));
    for (const int tag : {-1, std::numeric_limits<int>::min(), kLargestTag + 1}) {
      for (const auto& message : {error_of<std::invalid_argument>([&] { send(tensor, 1 - group.rank(), group, tag); }),
                                  error_of<std::invalid_argument>([&] { recv(tensor, 1 - group.rank(), group, tag); }),
                                  error_of<std::invalid_argument>([&] { recv_any(tensor, group, tag); })}) {
        RANK_CHECK_THAT(message, test::ContainsAll(
                                     {"rank " + std::to_string(group.rank()) + " of 2: ", "tag", std::to_string(tag)}));
      }
    }
  });
}

TEST_CASE_METHOD(PointToPoint,
                 "PointToPoint: a message that does not come in time fails the wait for it and says which one it was") {
  std::atomic<bool> gave_up{false};
  run(2, [&](const GroupHandle& group) {
    if (group.rank() == 1) {
      at::Tensor tensor = here(at::zeros({2}));
      const auto begin = std::chrono::steady_clock::now();
      RANK_CHECK_THAT(
          error_of<std::runtime_error>([&] { recv(tensor, 0, group, 8, {.timeout = 200ms}); }),
          ContainsSubstring("rank 1 of 2: recv from rank 0, tag 8 of a Float tensor of shape [2] on cpu failed"));
      RANK_CHECK(std::chrono::steady_clock::now() - begin >= 200ms);
      RANK_CHECK_THAT(error_of<std::runtime_error>([&] { recv_any(tensor, group, 8, {.timeout = 200ms}); }),
                      ContainsSubstring("rank 1 of 2: recv_any tag 8"));
      gave_up = true;
    } else {
      while (!gave_up) std::this_thread::yield();
    }
  });
  CHECK(gave_up);
}

TEST_CASE_METHOD(PointToPoint, "PointToPoint: a handle whose group was closed meanwhile ends, one way or the other") {
  run(2, [](const GroupHandle& group) {
    auto other = new_group(group, {0, 1});
    at::Tensor received = here(at::zeros({2}));
    Pending<void> sending = send_async(here(at::ones({2})), 1 - group.rank(), *other);
    Pending<void> receiving = recv_async(received, 1 - group.rank(), *other);
    receiving.wait();
    barrier(group);
    other->close();
    sending.wait();
    receiving.wait();  // again
    RANK_CHECK_THAT(received, EqualsTensor(at::ones({2})));
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { send(here(at::ones({2})), 1 - group.rank(), *other); }),
                    ContainsSubstring("closed"));
  });
}

}  // namespace
}  // namespace ddp
