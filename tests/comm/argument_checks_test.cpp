// What operations refuse, each with rank, operation, what was expected and what came; and that ranks may go on.
#include "comm/group/argument_checks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/every_wire.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;
using test::run_ranks;

using Tensors = std::vector<at::Tensor>;

struct Operation {
  const char* name;
  std::function<void(const at::Tensor& tensor, const GroupHandle& group, const CollectiveOptions& options)> run;
};

Tensors one_per_rank(const at::Tensor& tensor, const GroupHandle& group) {
  return Tensors(static_cast<size_t>(group.size()), tensor);
}

int neighbour(const GroupHandle& group) {
  return (group.rank() + 1) % group.size();
}

// Each waits for what it has started.
const std::vector<Operation>& operations() {
  static const std::vector<Operation> all{
      {"all_reduce", [](auto& t, auto& g, auto& o) { all_reduce(t, g, ReduceOp::kMax, o); }},
      {"all_reduce", [](auto& t, auto& g, auto& o) { all_reduce_async(t, g, ReduceOp::kMax, o).wait(); }},
      {"all_reduce_coalesced",
       [](auto& t, auto& g, auto& o) {
         all_reduce_coalesced({t, t}, g, ReduceOp::kMax, o);
       }},
      {"reduce", [](auto& t, auto& g, auto& o) { reduce(t, 0, g, ReduceOp::kMax, o); }},
      {"reduce", [](auto& t, auto& g, auto& o) { reduce_async(t, 0, g, ReduceOp::kMax, o).wait(); }},
      {"reduce_scatter", [](auto& t, auto& g, auto& o) { reduce_scatter(t, g, ReduceOp::kMax, o); }},
      {"reduce_scatter", [](auto& t, auto& g, auto& o) { reduce_scatter_async(t, g, ReduceOp::kMax, o).wait(); }},
      {"broadcast", [](auto& t, auto& g, auto& o) { broadcast(t, 0, g, o); }},
      {"broadcast", [](auto& t, auto& g, auto& o) { broadcast_async(t, 0, g, o).wait(); }},
      {"all_gather", [](auto& t, auto& g, auto& o) { all_gather(t, g, o); }},
      {"all_gather", [](auto& t, auto& g, auto& o) { all_gather_async(t, g, o).wait(); }},
      {"all_gather_uneven", [](auto& t, auto& g, auto& o) { all_gather_uneven(t, g, o); }},
      {"all_gather_uneven", [](auto& t, auto& g, auto& o) { all_gather_uneven_async(t, g, o).wait(); }},
      {"all_gather_coalesced",
       [](auto& t, auto& g, auto& o) {
         all_gather_coalesced({t, t}, g, o);
       }},
      {"gather", [](auto& t, auto& g, auto& o) { gather(t, 0, g, o); }},
      {"gather", [](auto& t, auto& g, auto& o) { gather_async(t, 0, g, o).wait(); }},
      {"scatter", [](auto& t, auto& g, auto& o) { scatter(t, one_per_rank(t, g), 0, g, o); }},
      {"scatter", [](auto& t, auto& g, auto& o) { scatter_async(t, one_per_rank(t, g), 0, g, o).wait(); }},
      {"all_to_all", [](auto& t, auto& g, auto& o) { all_to_all(t, g, o); }},
      {"all_to_all", [](auto& t, auto& g, auto& o) { all_to_all_async(t, g, o).wait(); }},
      {"all_to_all", [](auto& t, auto& g, auto& o) { all_to_all(one_per_rank(t, g), one_per_rank(t, g), g, o); }},
      {"all_to_all_uneven",
       [](auto& t, auto& g, auto& o) {
         std::vector<int64_t> counts(static_cast<size_t>(g.size()), 0);
         counts.back() = t.defined() && t.dim() > 0 ? t.size(0) : 0;
         all_to_all_uneven(t, counts, g, o);
       }},
      {"send", [](auto& t, auto& g, auto& o) { send(t, neighbour(g), g, 0, o); }},
      {"recv", [](auto& t, auto& g, auto& o) { recv(t, neighbour(g), g, 0, o); }},
      {"recv_any", [](auto& t, auto& g, auto& o) { recv_any(t, g, 0, o); }},
  };
  return all;
}

std::string me(const GroupHandle& group) {
  return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ": ";
}

void expect_in_step(const GroupHandle& group) {
  at::Tensor sum = at::full({3}, group.rank() + 1.F);
  all_reduce(sum, group);
  const int n = group.size();
  RANK_CHECK_THAT(sum, test::EqualsTensor(at::full({3}, static_cast<float>(n * (n + 1) / 2))));
}

TEST_CASE("ArgumentChecks: a time to wait that is not above zero is refused by every operation") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const auto limit : {0ms, -1ms, -5000ms}) {
      for (const Operation& operation : operations()) {
        const std::string message = error_of<std::invalid_argument>([&] {
          operation.run(at::ones({2, 2}), group, {.timeout = limit});
        });
        RANK_CHECK_THAT(message, test::ContainsAll({me(group) + operation.name + ": expected a timeout above 0, got ",
                                                    std::to_string(limit.count()) + " ms"}));
      }
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { barrier(group, {.timeout = limit}); }),
                      ContainsSubstring(me(group) + "barrier: expected a timeout above 0"));
    }
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: tensors without memory are refused by every operation") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor nowhere = at::empty({2, 2}, at::device(at::kMeta));
    for (const Operation& operation : operations()) {
      RANK_INFO(operation.name);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { operation.run(nowhere, group, {}); }),
                      test::ContainsAll({me(group) + operation.name, "Float tensor of shape [2, 2] on meta"}));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_coalesced({nowhere}, 0, group); }),
                    ContainsSubstring("Float tensor of shape [2, 2] on meta"));
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: a backend of every device serves none but the CPU and CUDA") {
  ProcessGroup alone = init_process_group({.backend = "gloo", .rank_info = RankInfo{}});
  for (const Operation& operation : operations()) {
    if (std::string(operation.name) == "send" || std::string(operation.name) == "recv") continue;  // no peer
    INFO(operation.name);
    CHECK_THAT(error_of<std::invalid_argument>([&] {
                 operation.run(at::empty({2, 2}, at::device(at::kMeta)), alone, {});
               }),
               ContainsSubstring("does not support a Float tensor of shape [2, 2] on meta"));
  }
}

TEST_CASE("ArgumentChecks: sparse and undefined tensors are refused by every operation") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const Operation& operation : operations()) {
      RANK_INFO(operation.name);
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { operation.run(at::Tensor(), group, {}); }),
                      ContainsSubstring(me(group) + operation.name));
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                        operation.run(at::ones({2, 2}).to_sparse(), group, {});
                      }),
                      ContainsSubstring(me(group) + operation.name));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                      broadcast_coalesced({at::ones({2, 2}).to_sparse()}, 0, group);
                    }),
                    ContainsSubstring(me(group) + "broadcast_coalesced: expected dense tensors"));
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: tensors that repeat their memory are refused by operations that write to it") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor repeated = at::ones({1, 2}).expand({2, 2});
    for (const Operation& operation : operations()) {
      RANK_INFO(operation.name);
      if (std::string(operation.name) == "all_gather_coalesced") continue;  // reads only
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { operation.run(repeated, group, {}); }),
                      ContainsSubstring(me(group) + operation.name));
    }
    RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_coalesced({repeated}, 0, group); }),
                    ContainsSubstring(me(group) + "broadcast_coalesced"));
    const Tensors both = all_gather_coalesced({repeated}, group);
    RANK_CHECK_THAT(both.at(0), test::EqualsTensor(at::ones({2, 2, 2})));
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: counts whose sum only seems to fit are refused") {
  run_ranks(3, [](const GroupHandle& group) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{
             {kMax, kMax, 2}, {kMax, 1, kMax}, {1, 2, 0}, {-1, 1, 0}, {kMax, 0, 0}, {}, {0, 0}, {0, 0, 0, 0}}) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] {
                        all_to_all_uneven(at::ones({0, 2}), counts, group);
                      }),
                      ContainsSubstring(me(group) + "all_to_all_uneven: expected 3 counts of at least 0"));
    }
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: roots and peers that are not ranks are refused by every operation that has one") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor good = at::ones({2});
    for (const int rank : {-1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      const std::vector<std::pair<const char*, std::function<void()>>> calls{
          {"reduce", [&] { reduce(good, rank, group); }},
          {"broadcast", [&] { broadcast(good, rank, group); }},
          {"broadcast_coalesced", [&] { broadcast_coalesced({good}, rank, group); }},
          {"broadcast_coalesced", [&] { broadcast_coalesced({}, rank, group); }},
          {"gather", [&] { gather(good, rank, group); }},
          {"scatter",
           [&] {
             scatter(good, {good, good}, rank, group);
           }},
          {"gather_strings", [&] { gather_strings("", rank, group); }},
          {"broadcast_string", [&] { broadcast_string("", rank, group); }},
          {"send", [&] { send(good, rank, group); }},
          {"recv", [&] { recv(good, rank, group); }},
          {"recv", [&] {
             batch_send_recv({send_to(1 - group.rank(), good), receive_from(rank, good)}, group);
           }}};
      for (const auto& [name, call] : calls) {
        RANK_CHECK_THAT(
            error_of<std::invalid_argument>(call),
            test::ContainsAll({me(group) + name + ": ", std::to_string(rank) + " is not a rank: expected 0 to 1"}));
      }
    }
    // Of the refused list nothing was sent.
    if (group.rank() == 0) send(at::full({2}, 7.F), 1, group);
    at::Tensor received = at::zeros({2});
    if (group.rank() == 1) {
      recv(received, 0, group);
      RANK_CHECK_THAT(received, test::EqualsTensor(at::full({2}, 7.F)));
    }
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: messages of broadcast_coalesced have at least a byte") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const int64_t size : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>([&] { broadcast_coalesced({at::ones({2})}, 0, group, size); }),
                      ContainsSubstring(me(group) + "broadcast_coalesced: expected a buffer of at least 1 byte, got " +
                                        std::to_string(size)));
    }
    expect_in_step(group);
  });
}

TEST_CASE("ArgumentChecks: on a closed group nothing works, even where nothing is to be sent") {
  ProcessGroup owner = init_process_group({.backend = "gloo", .rank_info = RankInfo{}});
  const GroupHandle group = owner;
  owner.close();
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"all_gather", [&] { all_gather(at::zeros({0}), group); }},
      {"all_gather_coalesced", [&] { all_gather_coalesced({}, group); }},
      {"all_reduce_coalesced", [&] { all_reduce_coalesced({}, group); }},
      {"all_to_all",
       [&] {
         all_to_all(at::zeros({0, 2}), group);
       }},
      {"broadcast_coalesced", [&] { broadcast_coalesced({}, 0, group); }},
      {"batch_send_recv", [&] { batch_send_recv({}, group); }},
      {"new_group", [&] { static_cast<void>(new_group(group, {0})); }},
  };
  for (const auto& [name, call] : calls) {
    INFO(name);
    CHECK_THAT(error_of<std::runtime_error>(call), ContainsSubstring("on a process group that was closed"));
  }
}

TEST_CASE("ArgumentChecks: tensors are told by dtype, shape and device") {
  CHECK(detail::describe(at::ones({2, 3})) == "Float tensor of shape [2, 3] on cpu");
  CHECK(detail::describe(at::zeros({}, at::kLong)) == "Long tensor of shape [] on cpu");
  CHECK(detail::describe(at::empty({0, 7}, at::device(at::kMeta).dtype(at::kComplexDouble))) ==
        "ComplexDouble tensor of shape [0, 7] on meta");
}

}  // namespace
}  // namespace ddp
