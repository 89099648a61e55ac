#include <ATen/TensorOperators.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/comm/expect_equal.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::error_of;
using test::expect_equal;
using test::here;
using test::RankOptions;
using test::run_ranks;
using test::Wire;

// Small whole numbers, different on every rank, whose sums and products every dtype holds.
at::Tensor values(int rank, at::ScalarType dtype) {
  return (here(at::arange(7, at::kLong)) + rank).remainder(3).add(1).to(dtype);
}

at::Tensor combine(ReduceOp op, int size, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values(rank, at::kLong));
  const at::Tensor stacked = at::stack(all);
  switch (op) {
    case ReduceOp::kSum:
      return stacked.sum(0).to(dtype);
    case ReduceOp::kAvg:
      return stacked.sum(0).to(dtype).div(size);
    case ReduceOp::kProduct:
      return stacked.prod(0).to(dtype);
    case ReduceOp::kMin:
      return stacked.amin(0).to(dtype);
    case ReduceOp::kMax:
      return stacked.amax(0).to(dtype);
  }
  throw std::logic_error("unknown ReduceOp");
}

const char* name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "?";
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax};
constexpr at::ScalarType kFloats[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
constexpr at::ScalarType kIntegers[] = {at::kChar, at::kByte, at::kInt, at::kLong};

class Collectives : public test::EveryWireAndSize {};

TEST_CASE_METHOD(Collectives, "Collectives: all reduce combines every dtype with every operation") {
  run([](const GroupHandle& group) {
    const auto check = [&](ReduceOp op, at::ScalarType dtype) {
      at::Tensor tensor = values(group.rank(), dtype);
      all_reduce(tensor, group, op);
      expect_equal(tensor, combine(op, group.size(), dtype), std::string(name(op)) + " of " + toString(dtype));
    };
    for (const ReduceOp op : kOps) {
      for (const at::ScalarType dtype : kFloats) check(op, dtype);
      if (op == ReduceOp::kAvg) continue;  // not defined for integers
      for (const at::ScalarType dtype : kIntegers) check(op, dtype);
    }
    check(ReduceOp::kSum, at::kComplexFloat);
    check(ReduceOp::kSum, at::kComplexDouble);
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: reduce gives the root the result") {
  run([](const GroupHandle& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const ReduceOp op : kOps) {
        at::Tensor tensor = values(group.rank(), at::kFloat);
        reduce(tensor, root, group, op);
        if (group.rank() == root) expect_equal(tensor, combine(op, group.size(), at::kFloat), name(op));
      }
    }
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: broadcast overwrites with the root's values") {
  run([](const GroupHandle& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kLong, at::kByte, at::kBool, at::kComplexFloat}) {
        at::Tensor tensor = values(group.rank(), dtype);
        broadcast(tensor, root, group);
        expect_equal(tensor, values(root, dtype));
      }
    }
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: all gather stacks in rank order whatever the shape") {
  run([](const GroupHandle& group) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {3}, {2, 3}, {2, 1, 4}, {0}, {3, 0, 2}}) {
      const at::Tensor mine = here(at::full(shape, group.rank() + 1.5F));
      std::vector<at::Tensor> expected;
      for (int rank = 0; rank < group.size(); ++rank) expected.push_back(here(at::full(shape, rank + 1.5F)));
      const at::Tensor all = all_gather(mine, group);
      expect_equal(all, at::stack(expected));
      expect_equal(mine, here(at::full(shape, group.rank() + 1.5F)), "the input is left alone");
    }
    const at::Tensor flags = all_gather(here(at::full({2}, group.rank() % 2 == 0, at::kBool)), group);
    for (int rank = 0; rank < group.size(); ++rank)
      expect_equal(flags[rank], here(at::full({2}, rank % 2 == 0, at::kBool)));
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: all gather takes leaves that require gradients") {
  run([](const GroupHandle& group) {
    const at::Tensor parameter = here(at::ones({2})).requires_grad_(true);
    const at::Tensor all = all_gather(parameter, group);
    RANK_CHECK_FALSE(all.requires_grad());
    at::Tensor also = here(at::ones({2})).requires_grad_(true);
    all_reduce(also, group);
    expect_equal(also, here(at::full({2}, static_cast<float>(group.size()))));
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: strings arrive with every byte") {
  run([](const GroupHandle& group) {
    const std::vector<std::string> texts = {"", std::string("nul\0inside\0", 11), std::string(300'000, 'x') + "end",
                                            "\xff\xfe grüße"};
    for (int root = 0; root < group.size(); ++root) {
      for (const std::string& text : texts) {
        RANK_CHECK(broadcast_string(group.rank() == root ? text : "ignored", root, group) == text);
      }
    }
    for (size_t shift = 0; shift < texts.size(); ++shift) {
      const auto text_of = [&](int rank) { return texts[(static_cast<size_t>(rank) + shift) % texts.size()]; };
      const auto all = all_gather_strings(text_of(group.rank()), group);
      RANK_REQUIRE(all.size() == static_cast<size_t>(group.size()));
      for (int rank = 0; rank < group.size(); ++rank) RANK_CHECK(all[static_cast<size_t>(rank)] == text_of(rank));
    }
    RANK_CHECK(all_gather_strings("", group) == std::vector<std::string>(static_cast<size_t>(group.size())));
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: no rank leaves the barrier before the last has reached it") {
  std::atomic<int> arrived{0};
  constexpr int kRounds = 20;
  run([&](const GroupHandle& group) {
    for (int round = 1; round <= kRounds; ++round) {
      ++arrived;
      barrier(group);
      RANK_CHECK(arrived.load() >= round * group.size());
      barrier(group);
    }
  });
}

TEST_CASE_METHOD(Collectives, "Collectives: broadcast coalesced takes mixed dtypes and strides") {
  for (const int64_t buffer_bytes : {int64_t{1}, int64_t{64}, int64_t{250} << 20}) {
    run([&](const GroupHandle& group) {
      const auto make = [](int rank) {
        std::vector<at::Tensor> tensors;
        tensors.push_back(here(at::full({3, 2}, rank + 0.5F)));
        tensors.push_back(here(at::full({}, rank + 7, at::kLong)));
        tensors.push_back((here(at::arange(24, at::kFloat)) + rank).view({2, 3, 4}).transpose(0, 2));
        tensors.push_back((here(at::arange(40, at::kDouble)) * (rank + 1)).view({10, 4}).slice(1, 1, 3));
        tensors.push_back(
            (here(at::arange(120, at::kFloat)) - rank).view({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
        tensors.push_back(here(at::full({5}, rank % 2 == 0, at::kBool)));
        tensors.push_back(here(at::zeros({0})));
        tensors.push_back(here(at::full({2}, static_cast<double>(rank), at::kHalf)));
        return tensors;
      };
      const int root = group.size() - 1;
      const std::vector<at::Tensor> tensors = make(group.rank());
      broadcast_coalesced(tensors, root, group, buffer_bytes);
      const std::vector<at::Tensor> expected = make(root);
      for (size_t i = 0; i < tensors.size(); ++i) {
        expect_equal(tensors[i], expected[i], "tensor " + std::to_string(i));
        RANK_CHECK(tensors[i].strides() == expected[i].strides());
      }
    });
  }
}

TEST_CASE_METHOD(Collectives, "Collectives: a list of no tensors is nothing to broadcast") {
  run([](const GroupHandle& group) { broadcast_coalesced({}, 0, group); });
}

TEST_CASE_METHOD(Collectives, "Collectives: wrong arguments are refused on the rank alone and the group stays usable") {
  run([](const GroupHandle& group) {
    const std::string who = "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ": ";
    const auto refuses = [&](const auto& body, const std::string& operation, const std::string& why) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>(body),
                      ContainsSubstring(who + operation + ": ") && ContainsSubstring(why));
    };
    const at::Tensor good = here(at::ones({2, 2}));
    refuses([&] { all_reduce(at::Tensor(), group); }, "all_reduce", "the tensor is undefined");
    refuses([&] { broadcast(at::Tensor(), 0, group); }, "broadcast", "the tensor is undefined");
    refuses([&] { reduce(at::Tensor(), 0, group); }, "reduce", "the tensor is undefined");
    refuses([&] { all_gather(at::Tensor(), group); }, "all_gather", "the tensor is undefined");
    refuses([&] { broadcast_coalesced({good, at::Tensor()}, 0, group); }, "broadcast_coalesced", "undefined");
    refuses(
        [&] {
          all_reduce(here(at::ones({2, 3})).t(), group);
        },
        "all_reduce", "Float tensor of shape [3, 2] on cpu");
    refuses([&] { all_gather(here(at::ones({4})).slice(0, 0, 4, 2), group); }, "all_gather", "pass .contiguous()");
    refuses([&] { all_reduce(good.to_sparse(), group); }, "all_reduce", "expected a dense tensor");
    const at::Tensor conjugated = here(at::ones({2}, at::kComplexFloat)).conj();
    refuses([&] { all_reduce(conjugated, group); }, "all_reduce", "pass .resolve_conj()");
    refuses([&] { broadcast(conjugated, 0, group); }, "broadcast", "pass .resolve_conj()");
    refuses([&] { all_gather(conjugated, group); }, "all_gather", "pass .resolve_conj()");
    refuses([&] { all_reduce(at::_neg_view(good), group); }, "all_reduce", "pass .resolve_neg()");
    for (const int root : {-1, group.size(), 1000}) {
      const std::string why =
          "root " + std::to_string(root) + " is not a rank: expected 0 to " + std::to_string(group.size() - 1);
      refuses([&] { broadcast(good, root, group); }, "broadcast", why);
      refuses([&] { reduce(good, root, group); }, "reduce", why);
      refuses([&] { broadcast_coalesced({good}, root, group); }, "broadcast_coalesced", why);
      refuses([&] { broadcast_string("text", root, group); }, "broadcast_string", why);
    }
    at::Tensor one = here(at::ones({1}));
    all_reduce(one, group);
    RANK_CHECK(one.item<float>() == static_cast<float>(group.size()));
  });
}

class LateRank : protected test::EveryWire {};
TEST_CASE_METHOD(LateRank, "LateRank: is named with operation and number within the timeout") {
  constexpr int kSize = 3;
  constexpr int kLate = 1;
  constexpr auto kTimeout = std::chrono::milliseconds(500);
  std::atomic<int> failed{0};
  std::atomic<bool> give_up{false};
  run_ranks(kSize,
            [&](const GroupHandle& group) {
              at::Tensor tensor = here(at::ones({4}));
              all_reduce(tensor, group);
              if (group.rank() == kLate) {
                while (failed < kSize - 1 && !give_up) std::this_thread::yield();
                return;
              }
              const auto start = std::chrono::steady_clock::now();
              const std::string message = error_of<std::runtime_error>(
                  [&] { all_reduce(tensor, group, ReduceOp::kSum, {.timeout = kTimeout}); });
              const auto waited = std::chrono::steady_clock::now() - start;
              RANK_CHECK_THAT(
                  message, ContainsSubstring("rank " + std::to_string(group.rank()) + " of 3: all_reduce (number 1)") &&
                               ContainsSubstring("Float tensor of shape [4] on cpu") &&
                               ContainsSubstring("did not take part in it: rank 1") && !ContainsSubstring("rank 1,") &&
                               !ContainsSubstring("\n"));
              RANK_CHECK(waited < kTimeout + std::chrono::seconds(3));
              ++failed;
            },
            {.wire = wire_});
  give_up = true;
  CHECK(failed == kSize - 1);
}

TEST_CASE_METHOD(LateRank, "LateRank: is named by the barrier") {
  std::atomic<bool> failed{false};
  run_ranks(2,
            [&](const GroupHandle& group) {
              if (group.rank() == 0) {
                while (!failed) std::this_thread::yield();
                return;
              }
              RANK_CHECK_THAT(
                  error_of<std::runtime_error>([&] { barrier(group, {.timeout = std::chrono::milliseconds(300)}); }),
                  ContainsSubstring("rank 1 of 2: barrier (number 0)") &&
                      ContainsSubstring("did not take part in it: rank 0"));
              failed = true;
            },
            {.wire = wire_});
}

}  // namespace
}  // namespace ddp
