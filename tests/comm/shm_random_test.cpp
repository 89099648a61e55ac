// Random calls of every kind, many under way at once, in a group and a part of it: each rank's results have gloo's
// bits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/backends/c10d_compat.h"
#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::Wire;

// One step of a script, which all ranks draw alike.
struct Step {
  enum Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kGather,
    kScatter,
    kReduceScatter,
    kAllToAll,
    kGaps,
    kPair,
    kKinds
  };
  Kind kind;
  at::ScalarType dtype;
  int64_t count;
  ReduceOp op;
  int root;
  bool is_async;
  bool in_part;
};

Step draw(std::mt19937& random, int ranks) {
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  // Around what is tiny, direct, a chunk, a slot, a channel's piece; in bytes.
  constexpr std::array<int64_t, 9> kBorders{32, 4096, 16'384, 32'768, 65'536, 131'072, 262'144, 524'288, 1'000'000};
  constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong};
  constexpr std::array kRandomOps{ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax};
  Step step{};
  step.kind = static_cast<Step::Kind>(below(Step::kKinds));
  step.dtype = kDtypes[static_cast<size_t>(below(kDtypes.size()))];
  const auto border = kBorders[static_cast<size_t>(below(kBorders.size()))];
  step.count = std::max<int64_t>(1, border / static_cast<int64_t>(c10::elementSize(step.dtype)) + below(3) - 1);
  if (below(4) == 0) step.count = 1 + below(40);
  step.op = kRandomOps[static_cast<size_t>(below(kRandomOps.size()))];
  if (step.op == ReduceOp::kAvg && !at::isFloatingType(step.dtype)) step.op = ReduceOp::kSum;
  step.root = below(ranks);
  step.is_async = below(2) == 0;
  step.in_part = ranks > 2 && below(3) == 0;
  return step;
}

at::Tensor random_numbers_of(int rank, int64_t number, int64_t count, at::ScalarType dtype) {
  const at::Tensor wide = at::arange(count, at::kDouble).mul(0.37).add(rank * 1.618 + number).sin().mul(rank + 3.0);
  return at::isFloatingType(dtype) ? wide.to(dtype) : wide.mul(1000).to(dtype);
}

// What a call leaves, once `wait` has returned.
struct Started {
  at::Tensor result;
  std::function<void()> wait;
};

template <typename Handle>
std::function<void()> waits_for(Handle pending) {
  return [kept = std::make_shared<Handle>(std::move(pending))] { static_cast<void>(kept->wait()); };
}

// A call that returns its result.
Started kept(Pending<at::Tensor> pending) {
  at::Tensor result = at::empty({0});
  return {result, [result, handle = std::make_shared<Pending<at::Tensor>>(std::move(pending))] {
            const at::Tensor arrived = handle->wait();
            if (arrived.defined()) result.set_data(arrived);
          }};
}

Started begin(const Step& step, int64_t number, const GroupHandle& group) {
  const int root = step.root % group.size();
  const int64_t rows = group.size() * step.count;
  const bool spreads = step.kind == Step::kReduceScatter || step.kind == Step::kAllToAll;
  const at::Tensor own = random_numbers_of(group.rank(), number, spreads ? rows : step.count, step.dtype);
  switch (step.kind) {
    case Step::kAllReduce:
      if (step.is_async) return {own, waits_for(all_reduce_async(own, group, step.op))};
      all_reduce(own, group, step.op);
      return {own, [] {}};
    case Step::kReduce: {
      auto pending = reduce_async(own, root, group, step.op);
      return {group.rank() == root ? own : at::empty({0}), waits_for(std::move(pending))};
    }
    case Step::kBroadcast:
      return {own, waits_for(broadcast_async(own, root, group))};
    case Step::kAllGather:
      return kept(all_gather_async(own, group));
    case Step::kGather:
      return kept(gather_async(own, root, group));
    case Step::kScatter: {
      std::vector<at::Tensor> parts;
      for (int rank = 0; group.rank() == root && rank < group.size(); ++rank) {
        parts.push_back(random_numbers_of(rank, -number, step.count, step.dtype));
      }
      return {own, waits_for(scatter_async(own, parts, root, group))};
    }
    case Step::kReduceScatter:
      return kept(reduce_scatter_async(own, group, step.op));
    case Step::kAllToAll:
      return kept(all_to_all_async(own, group));
    case Step::kGaps: {  // which gloo does not take: it gets them without
      const at::Tensor wide = random_numbers_of(group.rank(), number, 2 * step.count, step.dtype).view({step.count, 2});
      const bool takes_gaps = group.state().group("test")->getBackend(c10::kCPU)->getBackendName() == "shm";
      std::vector<at::Tensor> columns{takes_gaps ? wide.narrow(1, 1, 1) : wide.narrow(1, 1, 1).contiguous()};
      group.state().group("test")->allreduce(columns)->wait();
      return {columns[0], [] {}};
    }
    case Step::kPair: {  // to the next one, from the one before
      const int tag = static_cast<int>(number % 3);
      const at::Tensor received = at::empty_like(own);
      if (group.size() == 1) return {own, [] {}};
      auto sent = send_async(own, (group.rank() + 1) % group.size(), group, tag);
      auto got = recv_async(received, (group.rank() + group.size() - 1) % group.size(), group, tag);
      return {received, [first = waits_for(std::move(sent)), second = waits_for(std::move(got)), own] {
                second();
                first();
              }};
    }
    case Step::kKinds:
      break;
  }
  throw std::logic_error("no such step");
}

// Of every rank: what each step has left.
std::vector<std::vector<at::Tensor>> results(int ranks, unsigned seed, Wire wire) {
  constexpr int kSteps = 40;
  std::vector<std::vector<at::Tensor>> all(static_cast<size_t>(ranks));
  test::run_ranks(ranks,
                  [&](const GroupHandle& group) {
                    const auto part = group.size() > 2 ? new_group(group, {0, group.size() - 1}) : std::nullopt;
                    std::mt19937 random(seed);
                    std::vector<Started> started;
                    for (int64_t number = 0; number < kSteps; ++number) {
                      const Step step = draw(random, group.size());
                      if (step.in_part && !part) continue;
                      started.push_back(begin(step, number, step.in_part ? *part : group));
                    }
                    // In an order of its own.
                    std::mt19937 own(seed + static_cast<unsigned>(group.rank()) + 1);
                    std::vector<size_t> order(started.size());
                    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
                    std::ranges::shuffle(order, own);
                    for (const size_t i : order) started[i].wait();
                    for (Started& each : started)
                      all[static_cast<size_t>(group.rank())].push_back(each.result.contiguous());
                  },
                  {.wire = wire, .timeout = std::chrono::seconds(60)});
  return all;
}

// DDPRUN_TEST_SCRIPTS: how many.
unsigned scripts() {
  const char* text = std::getenv("DDPRUN_TEST_SCRIPTS");
  return text == nullptr ? 5 : static_cast<unsigned>(std::atoi(text));
}

TEST_CASE("ShmBackend: random calls under way at once leave what gloo leaves, on every rank") {
  for (unsigned seed = 0; seed < scripts(); ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 5);
    const auto own = results(ranks, seed, Wire::kShm);
    const auto gloos = results(ranks, seed, Wire::kGloo);
    for (size_t rank = 0; rank < own.size(); ++rank) {
      REQUIRE(own[rank].size() == gloos[rank].size());
      for (size_t i = 0; i < own[rank].size(); ++i) {
        INFO("script " << seed << ", rank " << rank << " of " << ranks << ", result " << i);
        CHECK(own[rank][i].equal(gloos[rank][i]));
      }
    }
  }
}

}  // namespace
}  // namespace ddp
