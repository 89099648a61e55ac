// Collectives beyond reduction and broadcast, and messages between two ranks: against closed forms, on gloo and on the
// backend whose results come late.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/comm/expect_equal.h"
#include "tests/support/captured_output.h"
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
using test::error_of;
using test::expect_equal;
using test::here;
using test::run_ranks;
using test::Wire;

at::Tensor matrix(int rank, int64_t rows, at::ScalarType dtype = at::kFloat) {
  return (here(at::arange(rows * 3, at::kLong)) + 100 * rank).view({rows, 3}).to(dtype);
}

class Exchange : public test::EveryWireAndSize {};

TEST_CASE_METHOD(Exchange, "Exchange: reduce scatter gives each rank its rows") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong}) {
      const at::Tensor input = (matrix(0, 2L * n, at::kLong).remainder(5) + group.rank()).to(dtype);
      const at::Tensor before = input.clone();
      const at::Tensor base = matrix(0, 2L * n, at::kLong).remainder(5).narrow(0, 2L * group.rank(), 2);
      const at::Tensor sum = base * n + n * (n - 1) / 2;
      expect_equal(reduce_scatter(input, group), sum.to(dtype), "sum");
      expect_equal(reduce_scatter(input, group, ReduceOp::kMin), base.to(dtype), "min");
      expect_equal(reduce_scatter(input, group, ReduceOp::kMax), (base + n - 1).to(dtype), "max");
      if (at::isFloatingType(dtype)) {
        expect_equal(reduce_scatter(input, group, ReduceOp::kAvg), sum.to(dtype).div(n), "avg");
        expect_equal(reduce_scatter_async(input, group, ReduceOp::kAvg).wait(), sum.to(dtype).div(n), "avg");
      }
      expect_equal(input, before, "the input is left alone");
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: reductions of bools are any and all") {
  run([](const GroupHandle& group) {
    const auto flags = [&](int rank) {
      return here(at::arange(4, at::kLong)).eq(rank).logical_or(here(at::arange(4, at::kLong)).eq(3));
    };
    at::Tensor any = here(at::zeros({4}, at::kBool));
    at::Tensor all = here(at::ones({4}, at::kBool));
    for (int rank = 0; rank < group.size(); ++rank) {
      any = any.logical_or(flags(rank));
      all = all.logical_and(flags(rank));
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kMin}) {
      at::Tensor tensor = flags(group.rank());
      all_reduce(tensor, group, op);
      expect_equal(tensor, op == ReduceOp::kSum || op == ReduceOp::kMax ? any : all);
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: all gather takes first dimensions that differ") {
  run([](const GroupHandle& group) {
    for (const int shift : {0, 1, 3}) {
      const auto rows = [&](int rank) { return static_cast<int64_t>((rank + shift) % 3); };  // 0 among them
      const auto all = all_gather_uneven(matrix(group.rank(), rows(group.rank())), group);
      RANK_REQUIRE(all.size() == static_cast<size_t>(group.size()));
      for (int rank = 0; rank < group.size(); ++rank) {
        expect_equal(all[static_cast<size_t>(rank)], matrix(rank, rows(rank)));
      }
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: uneven shapes that cannot fit are an error on every rank that names both") {
  run([](const GroupHandle& group) {
    if (group.size() == 1) return;
    const bool last = group.rank() == group.size() - 1;
    const at::Tensor tensor = last ? here(at::zeros({2, 4}, at::kDouble)) : here(at::zeros({1, 3}));
    const auto names_both =
        test::ContainsAll({"rank " + std::to_string(group.rank()) + " of ", "rank 0 has a Float tensor of shape [1, 3]",
                           "rank " + std::to_string(group.size() - 1) + " a Double tensor of shape [2, 4]"});
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_gather_uneven(tensor, group); }), names_both);
    std::vector<int64_t> counts(static_cast<size_t>(group.size()));
    counts[0] = tensor.size(0);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_to_all_uneven(tensor, counts, group); }), names_both);
    barrier(group);  // nothing is left over in the connections
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: gather fills the root and scatter reverses it") {
  run([](const GroupHandle& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const bool async : {false, true}) {
        const at::Tensor mine = matrix(group.rank(), 2);
        const at::Tensor all = async ? gather_async(mine, root, group).wait() : gather(mine, root, group);
        RANK_CHECK(all.defined() == (group.rank() == root));
        std::vector<at::Tensor> parts;
        if (group.rank() == root) {
          for (int rank = 0; rank < group.size(); ++rank) {
            expect_equal(all[rank], matrix(rank, 2));
            parts.push_back(all[rank]);
          }
        }
        at::Tensor back = here(at::full({2, 3}, -1.0F));
        async ? scatter_async(back, parts, root, group).wait() : scatter(back, parts, root, group);
        expect_equal(back, mine);
      }
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: all to all transposes the ranks") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    // Row r of rank s says "from s to r".
    const at::Tensor mine =
        (here(at::arange(n, at::kLong)) + 10 * group.rank()).unsqueeze(1).expand({n, 2}).contiguous();
    const at::Tensor expected =
        (here(at::arange(n, at::kLong)) * 10 + group.rank()).unsqueeze(1).expand({n, 2}).contiguous();
    expect_equal(all_to_all(mine, group), expected);
    expect_equal(all_to_all_async(mine, group).wait(), expected);
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: all to all takes parts of any length") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    const auto count = [](int from, int to) { return static_cast<int64_t>((from + 2 * to) % 3); };
    std::vector<int64_t> counts;
    std::vector<at::Tensor> parts;
    std::vector<at::Tensor> received;
    std::vector<at::Tensor> expected;
    for (int rank = 0; rank < n; ++rank) {
      counts.push_back(count(group.rank(), rank));
      parts.push_back(matrix(10 * group.rank() + rank, counts.back()));
      expected.push_back(matrix(10 * rank + group.rank(), count(rank, group.rank())));
      received.push_back(at::full_like(expected.back(), -1));
    }
    const UnevenParts result = all_to_all_uneven(at::cat(parts), counts, group);
    expect_equal(result.tensor, at::cat(expected));
    for (int rank = 0; rank < n; ++rank)
      RANK_CHECK(result.counts[static_cast<size_t>(rank)] == count(rank, group.rank()));

    all_to_all(received, parts, group);
    for (int rank = 0; rank < n; ++rank) {
      expect_equal(received[static_cast<size_t>(rank)], expected[static_cast<size_t>(rank)]);
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: async operations overlap and end in any order of waits") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    at::Tensor sum = here(at::full({1000}, group.rank() + 1.0F));
    at::Tensor copy = here(at::full({3}, group.rank(), at::kLong));
    at::Tensor highest = here(at::full({2}, group.rank() + 0.5));
    auto first = all_reduce_async(sum, group);
    auto second = broadcast_async(copy, n - 1, group);
    auto third = all_gather_async(here(at::full({2}, group.rank(), at::kInt)), group);
    auto fourth = reduce_async(highest, 0, group, ReduceOp::kMax);
    const at::Tensor all = third.wait();
    for (int rank = 0; rank < n; ++rank) expect_equal(all[rank], here(at::full({2}, rank, at::kInt)));
    fourth.wait();
    if (group.rank() == 0) expect_equal(highest, here(at::full({2}, n - 0.5)));
    first.wait();
    expect_equal(sum, here(at::full({1000}, n * (n + 1) / 2.0F)));
    second.wait();
    expect_equal(copy, here(at::full({3}, n - 1, at::kLong)));
    RANK_CHECK((first.is_done() && second.is_done() && third.is_done() && fourth.is_done()));
    expect_equal(third.wait(), all, "waiting twice");
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: is done becomes true without a wait") {
  run([](const GroupHandle& group) {
    at::Tensor tensor = here(at::ones({4}));
    auto pending = all_reduce_async(tensor, group);
    while (!pending.is_done()) std::this_thread::yield();
    pending.wait();
    expect_equal(tensor, here(at::full({4}, static_cast<float>(group.size()))));
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: coalesced lists take mixed dtypes and strides") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    const auto make = [](int rank) {
      return std::vector<at::Tensor>{
          matrix(rank, 2),      here(at::full({}, rank + 1, at::kLong)),     matrix(rank, 4).t(),
          here(at::zeros({0})), here(at::full({2, 2}, rank + 1, at::kLong)), here(at::full({3}, 0.5, at::kHalf))};
    };
    std::vector<at::Tensor> sums = make(0);
    for (int rank = 1; rank < n; ++rank) {
      const auto more = make(rank);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + more[i];
    }
    for (const bool async : {false, true}) {
      const auto mine = make(group.rank());
      async ? all_reduce_coalesced_async(mine, group).wait() : all_reduce_coalesced(mine, group);
      for (size_t i = 0; i < sums.size(); ++i) expect_equal(mine[i], sums[i], "tensor " + std::to_string(i));
    }
    const auto all = all_gather_coalesced(make(group.rank()), group);
    for (size_t i = 0; i < all.size(); ++i) {
      for (int rank = 0; rank < n; ++rank) expect_equal(all[i][rank], make(rank)[i].contiguous());
    }
    all_reduce_coalesced({}, group);
    RANK_CHECK(all_gather_coalesced({}, group).empty());
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: tags keep messages of a pair apart") {
  run([](const GroupHandle& group) {
    if (group.size() == 1 || group.rank() > 1) return;
    if (group.rank() == 0) {
      const at::Tensor first = here(at::full({4}, 1.0F));
      const at::Tensor second = here(at::full({2, 2}, 2.0, at::kDouble));
      auto a = send_async(first, 1, group, 7);
      auto b = send_async(second, 1, group, 8);
      a.wait();
      b.wait();
    } else {
      at::Tensor second = here(at::zeros({2, 2}, at::kDouble));
      at::Tensor first = here(at::zeros({4}));
      auto b = recv_async(second, 0, group, 8);
      auto a = recv_async(first, 0, group, 7);
      b.wait();
      a.wait();
      expect_equal(first, here(at::full({4}, 1.0F)));
      expect_equal(second, here(at::full({2, 2}, 2.0, at::kDouble)));
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: batched messages go round a ring without blocking") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    if (n == 1) {
      batch_send_recv({}, group);
      return;
    }
    const at::Tensor mine = here(at::full({100'000}, static_cast<float>(group.rank())));
    at::Tensor theirs = at::empty_like(mine);
    const int next = (group.rank() + 1) % n;
    const int previous = (group.rank() + n - 1) % n;
    batch_send_recv({send_to(next, mine), receive_from(previous, theirs)}, group);
    expect_equal(theirs, here(at::full({100'000}, static_cast<float>(previous))));
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: recv any says who sent") {
  run([](const GroupHandle& group) {
    if (group.rank() != 0) {
      send(here(at::full({2}, group.rank(), at::kLong)), 0, group, 3);
      return;
    }
    std::vector<bool> seen(static_cast<size_t>(group.size()));
    for (int i = 1; i < group.size(); ++i) {
      at::Tensor tensor = here(at::zeros({2}, at::kLong));
      const int from = recv_any(tensor, group, 3);
      expect_equal(tensor, here(at::full({2}, from, at::kLong)));
      seen.at(static_cast<size_t>(from)) = true;
    }
    RANK_CHECK(std::count(seen.begin(), seen.end(), true) == group.size() - 1);
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: JSON and strings arrive at the root or everywhere") {
  run([](const GroupHandle& group) {
    const auto value = [](int rank) {
      return nlohmann::json{{"rank", rank}, {"list", {1, "zwei", nullptr}}, {"text", std::string(1000, 'x')}};
    };
    const int root = group.size() - 1;
    RANK_CHECK(broadcast_json(group.rank() == root ? value(root) : nlohmann::json(), root, group) == value(root));
    const auto everywhere = all_gather_json(value(group.rank()), group);
    const auto at_root = gather_json(value(group.rank()), root, group);
    const auto texts = gather_strings(std::string(static_cast<size_t>(group.rank()), 'r'), root, group);
    RANK_CHECK(at_root.size() == (group.rank() == root ? static_cast<size_t>(group.size()) : 0U));
    RANK_CHECK(texts.size() == at_root.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto i = static_cast<size_t>(rank);
      RANK_CHECK(everywhere.at(i) == value(rank));
      if (group.rank() != root) continue;
      RANK_CHECK(at_root.at(i) == value(rank));
      RANK_CHECK(texts.at(i) == std::string(i, 'r'));
    }
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: reduce value works in place and reduce tensor on a copy") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    at::Tensor loss = here(at::full({}, group.rank() + 1.0F));
    const at::Tensor before = loss.clone();
    expect_equal(reduce_tensor(loss, group), here(at::full({}, (n + 1) / 2.0F)), "mean as a copy");
    expect_equal(reduce_tensor(loss, group, /*average=*/false), here(at::full({}, n * (n + 1) / 2.0F)),
                 "sum as a copy");
    expect_equal(loss, before, "left alone");
    const at::Tensor same = reduce_value(loss, group);
    RANK_CHECK(same.is_same(loss));
    expect_equal(loss, here(at::full({}, (n + 1) / 2.0F)));
    expect_equal(reduce_tensor(matrix(group.rank(), 2).t(), group, false),
                 (matrix(0, 2).t() * n + 50.0F * static_cast<float>(n * (n - 1))).contiguous(), "not contiguous");
    RANK_CHECK(is_main_process(group) == (group.rank() == 0));
  });
}

TEST_CASE_METHOD(Exchange, "Exchange: wrong arguments are refused on the rank alone and the group stays usable") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    const auto refuses = [&](const auto& body, const std::string& operation, const std::string& why) {
      RANK_CHECK_THAT(error_of<std::invalid_argument>(body),
                      ContainsSubstring("rank " + std::to_string(group.rank()) + " of " + std::to_string(n) + ": " +
                                        operation + ": ") &&
                          ContainsSubstring(why));
    };
    const at::Tensor one = here(at::ones({1}));
    const int other = (group.rank() + 1) % n;
    refuses([&] { all_reduce(here(at::ones({2}, at::kInt)), group, ReduceOp::kAvg); }, "all_reduce", "floating-point");
    RANK_CHECK(error_of<std::invalid_argument>([&] { all_reduce(one, group, static_cast<ReduceOp>(77)); }) ==
               "unknown ReduceOp 77");
    refuses([&] { all_reduce(here(at::ones({2}, at::kComplexFloat)), group, ReduceOp::kMax); }, "all_reduce",
            "complex");
    refuses([&] { reduce_scatter(here(at::ones({})), group); }, "reduce_scatter", "multiple of the group's size");
    refuses([&] { send(one, group.rank(), group); }, "send", "is the calling rank itself");
    refuses([&] { recv(one, group.rank(), group); }, "recv", "is the calling rank itself");
    refuses([&] { recv(one, n, group); }, "recv", "expected 0 to " + std::to_string(n - 1));
    refuses([&] { recv_any(one, group, -1); }, "recv_any", "expected a tag of at least 0, got -1");
    if (n > 1) {
      refuses([&] { send(one, other, group, -2); }, "send", "expected a tag of at least 0, got -2");
      refuses([&] { reduce_scatter(here(at::ones({n + 1})), group); }, "reduce_scatter",
              "multiple of the group's size");
      refuses([&] { all_to_all(here(at::ones({n + 1})), group); }, "all_to_all", "multiple of the group's size");
    }
    refuses([&] { scatter(one, std::vector<at::Tensor>(static_cast<size_t>(n) + 1, one), group.rank(), group); },
            "scatter", "expected one part per rank, " + std::to_string(n) + ", got " + std::to_string(n + 1));
    refuses(
        [&] {
          scatter(one, std::vector<at::Tensor>(static_cast<size_t>(n), here(at::ones({2}))), group.rank(), group);
        },
        "scatter", "part 0 is a Float tensor of shape [2] on cpu");
    refuses([&] { all_to_all_uneven(one, {5, 6, 7, 8, 9}, group); }, "all_to_all_uneven", "got (5, 6, 7, 8, 9)");
    refuses([&] { all_to_all(std::vector<at::Tensor>{}, {}, group); }, "all_to_all", "the first input is missing");
    refuses([&] { all_gather_uneven(here(at::ones({})), group); }, "all_gather_uneven", "expected 1 to 16 dimensions");
    refuses([&] { all_reduce_coalesced({one, at::Tensor()}, group); }, "all_reduce_coalesced", "a tensor is undefined");
    at::Tensor sum = here(at::ones({1}));
    all_reduce(sum, group);
    RANK_CHECK(sum.item<float>() == static_cast<float>(n));
  });
}

class Disagreement : protected test::EveryWire {};
TEST_CASE_METHOD(Disagreement, "Disagreement: of operations is named with both sides") {
  std::vector<std::string> messages(2);
  run_ranks(2,
            [&](const GroupHandle& group) {
              const CollectiveOptions options{.timeout = std::chrono::seconds(2)};  // both ranks call within it
              at::Tensor tensor = here(at::ones({4}));
              messages.at(static_cast<size_t>(group.rank())) = error_of<std::runtime_error>([&] {
                if (group.rank() == 0) all_reduce(tensor, group, ReduceOp::kSum, options);
                if (group.rank() == 1) broadcast(tensor, 0, group, options);
              });
            },
            {.wire = wire_});
  for (const std::string& message : messages) {
    CHECK_THAT(message,
               ContainsSubstring("rank 0 called all_reduce (sum) of Float [4], rank 1 called broadcast (root 0) of "
                                 "Float [4]"));
  }
}

TEST_CASE_METHOD(Exchange, "Exchange: complex numbers travel as they are") {
  run([](const GroupHandle& group) {
    const int n = group.size();
    const auto numbers = [](int rank) { return at::complex(matrix(rank, 2), matrix(rank + 7, 2)); };
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < n; ++rank) all.push_back(numbers(rank));
    const at::Tensor own = numbers(group.rank());
    expect_equal(all_gather(own, group), at::stack(all), "all_gather");
    const at::Tensor gathered = gather(own, 0, group);
    if (group.rank() == 0) expect_equal(gathered, at::stack(all), "gather");
    at::Tensor part = at::zeros_like(own);
    scatter(part, group.rank() == 0 ? all : std::vector<at::Tensor>{}, 0, group);
    expect_equal(part, own, "scatter");
    const at::Tensor rows = own.repeat({n, 1}).slice(0, 0, n).contiguous();
    const at::Tensor exchanged = all_to_all(rows, group);
    for (int rank = 0; rank < n; ++rank) {
      expect_equal(exchanged.select(0, rank), numbers(rank).repeat({n, 1}).select(0, group.rank()), "all_to_all");
    }
  });
}

TEST_CASE("PointToPoint: a message that nobody sends ends at the timeout and names the peer") {
  std::atomic<bool> failed{false};
  run_ranks(2, [&](const GroupHandle& group) {
    if (group.rank() == 0) {
      while (!failed) std::this_thread::yield();
      return;
    }
    at::Tensor tensor = here(at::ones({4}));
    RANK_CHECK_THAT(
        error_of<std::runtime_error>([&] { recv(tensor, 0, group, 5, {.timeout = std::chrono::milliseconds(300)}); }),
        ContainsSubstring("rank 1 of 2: recv from rank 0, tag 5 of a Float tensor of shape [4] on cpu failed"));
    failed = true;
  });
}

TEST_CASE("PrintOnMain: prints one line on rank zero only") {
  std::string said;
  {
    const test::CapturedStdout captured;
    for (int rank = 0; rank < 3; ++rank) print_on_main(test::unconnected_rank(rank, 3), "epoch ", 3, ", loss ", 0.5);
    said = captured.text();
  }
  CHECK(said == "epoch 3, loss 0.5\n");
}

}  // namespace
}  // namespace ddp
