// Shared memory on each of several hosts and gloo between them: ranks 0, 2, 4 … are on one "host", the others on
// another.
#include "comm/backends/shm_hosts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/backends/c10d_compat.h"
#include "comm/group/group_state.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::run_ranks;
using test::Wire;

void run(int ranks, const std::function<void(const GroupHandle&)>& body) {
  run_ranks(ranks, body, {.wire = Wire::kHosts});
}

TEST_CASE("ShmHosts: sums, averages and extremes are those of all ranks of all hosts") {
  for (const int ranks : {3, 4, 5}) {
    run(ranks, [ranks](const GroupHandle& group) {
      for (const int64_t count : {1, 1000, 70'001}) {
        const at::Tensor own = at::arange(count, at::kFloat).add(group.rank());
        const auto reduced = [&](ReduceOp op) {
          const at::Tensor tensor = own.clone();
          all_reduce(tensor, group, op);
          return tensor;
        };
        const at::Tensor base = at::arange(count, at::kFloat);
        const float others = static_cast<float>(ranks * (ranks - 1)) / 2;
        RANK_CHECK(reduced(ReduceOp::kSum).equal(base * ranks + others));
        RANK_CHECK(reduced(ReduceOp::kAvg).allclose(base + others / static_cast<float>(ranks)));
        RANK_CHECK(reduced(ReduceOp::kMax).equal(base + (ranks - 1)));
        RANK_CHECK(reduced(ReduceOp::kMin).equal(base));
      }
    });
  }
}

TEST_CASE("ShmHosts: every root's tensor reaches all, whichever its place on its host") {
  run(5, [](const GroupHandle& group) {
    for (int root = 0; root < group.size(); ++root) {
      const at::Tensor tensor = at::full({33'000}, static_cast<float>(group.rank()));
      broadcast(tensor, root, group);
      RANK_CHECK(tensor.equal(at::full({33'000}, static_cast<float>(root))));
    }
  });
}

TEST_CASE("ShmHosts: many calls under way at once end in their order, beside messages between hosts") {
  run(4, [](const GroupHandle& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Pending<void>> pending;
    for (int i = 0; i < 30; ++i) {
      tensors.push_back(at::full({1 + 500 * i}, static_cast<float>(i)));
      pending.push_back(all_reduce_async(tensors.back(), group));
    }
    at::Tensor message = at::full({3}, static_cast<float>(group.rank()));
    if (group.rank() == 0) send(message, 3, group);
    if (group.rank() == 3) recv(message, 0, group);
    barrier(group);
    for (auto& each : pending) each.wait();
    for (int i = 0; i < 30; ++i) {
      RANK_CHECK(tensors[static_cast<size_t>(i)].equal(at::full({1 + 500 * i}, 4.F * static_cast<float>(i))));
    }
    if (group.rank() == 3) RANK_CHECK(message.equal(at::full({3}, 0.F)));
  });
}

TEST_CASE("ShmHosts: a rank that fails is named on every host, by its number in the job") {
  std::array<std::string, 4> errors;
  const auto job = [&](const GroupHandle& group) {
    barrier(group);
    if (group.rank() == 3) throw std::runtime_error("bad data");
    errors[static_cast<size_t>(group.rank())] = test::error_of<std::runtime_error>([&] {
      for (;;) all_reduce(at::full({3}, 1.F), group);
    });
  };
  CHECK_THROWS(run(4, job));
  for (const size_t rank : {0, 1, 2}) {
    CAPTURE(rank, errors[rank]);
    CHECK(errors[rank].find("rank 3") != std::string::npos);
  }
}

// The first rank of its host, and of all. Its sums wait for `may_end`.
class LoneRank final : public c10d::Backend {
 public:
  explicit LoneRank(const std::atomic<bool>& may_end) : Backend(0, 1), may_end_(may_end) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& /*tensors*/,
                                           const c10d::AllreduceOptions& /*options*/) override {
    while (!may_end_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return c10::make_intrusive<Done>();
  }
  void abort() override {}
  void shutdown() override {}

 private:
  struct Done final : c10d::Work {
    bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  };

  const std::atomic<bool>& may_end_;
};

const std::atomic<bool> kAtOnce{true};

c10::intrusive_ptr<detail::ShmHostsBackend> lone_backend(const std::atomic<bool>& may_end = kAtOnce) {
  const auto rank = c10::make_intrusive<LoneRank>(may_end);
  return c10::make_intrusive<detail::ShmHostsBackend>(
      rank, detail::ShmHostsBackend::Parts{.inter_host = rank, .hosts = {0}, .timeout = std::chrono::seconds(60)});
}

TEST_CASE("ShmHosts: who has waited for a call finds its future completed") {
  const auto backend = lone_backend();
  std::vector<at::Tensor> tensors{at::full({3}, 1.F)};
  int completed = 0;
  constexpr int kCalls = 2000;
  for (int i = 0; i < kCalls; ++i) {
    const auto work = backend->allreduce(tensors, {});
    while (!work->isCompleted()) {  // a sleeper would come too late to see it
    }
    completed += work->getFuture()->completed() ? 1 : 0;
  }
  CHECK(completed == kCalls);
}

TEST_CASE("ShmHosts: a callback of a call may throw, or hold the last handle of its group") {
  std::vector<at::Tensor> tensors{at::full({3}, 1.F)};
  for (const bool throws : {true, false}) {
    CAPTURE(throws);
    std::atomic<bool> may_end{false};
    auto backend = lone_backend(may_end);
    const c10::weak_intrusive_ptr<detail::ShmHostsBackend> watched(backend);
    auto work = backend->allreduce(tensors, {});
    work->getFuture()->addCallback([kept = backend, throws](c10::ivalue::Future& /*done*/) {
      if (throws) throw std::runtime_error("a callback's own affair");
    });
    work.reset();
    backend.reset();
    may_end = true;
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (watched.use_count() > 0 && std::chrono::steady_clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(watched.use_count() == 0);
  }
}

TEST_CASE("ShmHosts: an average of whole numbers is refused before anything has begun") {
  const auto backend = lone_backend();
  std::vector<at::Tensor> whole{at::full({3}, 1, at::kInt)};
  c10d::AllreduceOptions average;
  average.reduceOp = c10d::ReduceOp::AVG;
  CHECK_THROWS(backend->allreduce(whole, average));
  std::vector<at::Tensor> tensors{at::full({3}, 1.F)};
  CHECK(backend->allreduce(tensors, average)->wait());
}

}  // namespace
}  // namespace ddp
