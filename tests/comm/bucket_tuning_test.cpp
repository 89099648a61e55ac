// Bucket sizes that are measured: what the engine is told, and that all ranks settle on the same.
#include "comm/reducer/bucket_tuning.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "comm/reducer/option_rules.h"
#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"

namespace ddp::detail {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = kKiB << 10;

// `count` parameters of so many bytes each, whose order the engine takes for final at once.
class Tuned {
 public:
  Tuned(const GroupHandle& group, int count, int64_t bytes_each)
      : context_(std::make_shared<ReductionContext>(
            model(count, bytes_each), group,
            DdpOptions{.bucket_cap_bytes = kAutoBucketCap, .find_unused_parameters = true})),
        engine_(make_engine(context_)),
        tuning_(context_) {}
  ~Tuned() { engine_->remove_autograd_hooks(); }
  Tuned(const Tuned&) = delete;
  Tuned& operator=(const Tuned&) = delete;

  // One step whose reduction takes `seconds` of this thread. True if the buckets were regrouped before.
  bool step(double seconds = 0) {
    const bool regrouped = tuning_.before_forward(*engine_);
    tuning_.after_forward(*engine_);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
    }
    tuning_.after_backward();
    return regrouped;
  }

  BucketTuning& tuning() { return tuning_; }
  ReducerEngine& engine() { return *engine_; }
  std::vector<int64_t> buckets() const { return engine_->bucket_bytes(); }

 private:
  static ReducedModel model(int count, int64_t bytes_each) {
    ReducedModel model{.name = "Net"};
    for (int i = 0; i < count; ++i) {
      model.parameters.push_back(test::here(at::zeros({bytes_each / 4})).requires_grad_());
      model.names.push_back("parameter " + std::to_string(i));
    }
    return model;
  }

  const std::shared_ptr<ReductionContext> context_;
  const std::shared_ptr<ReducerEngine> engine_;
  BucketTuning tuning_;
};

// As buckets of at most `first` and then `cap` bytes come about of parameters of `bytes_each`: one is closed by the
// parameter that reaches its limit.
std::vector<int64_t> grouped(int count, int64_t bytes_each, int64_t first, int64_t cap) {
  std::vector<int64_t> buckets;
  int64_t open = 0;
  for (int i = 0; i < count; ++i) {
    open += bytes_each;
    if (open < (buckets.empty() ? first : cap)) continue;
    buckets.push_back(open);
    open = 0;
  }
  if (open > 0) buckets.push_back(open);
  return buckets;
}

class Tuning : protected test::EveryWireAndSize {};

TEST_CASE_METHOD(Tuning, "BucketTuning: each size regroups the buckets once, and all ranks settle on one of them") {
  run([](const GroupHandle& group) {
    constexpr int kCount = 8;
    Tuned tuned(group, kCount, 256 * kKiB);
    BucketTuning& tuning = tuned.tuning();
    std::set<int64_t> tried;
    int64_t applied = 0;
    for (int steps = 0; !tuning.is_finished(); ++steps) {
      RANK_REQUIRE(steps < 100);
      const bool regrouped = tuning.before_forward(tuned.engine());
      const int64_t bytes = tuning.bytes();
      RANK_INFO("step " << steps << ", " << bytes << " bytes");
      RANK_CHECK(regrouped == (bytes != applied));
      RANK_CHECK(tuned.buckets() == grouped(kCount, 256 * kKiB, std::min(kMiB, bytes), bytes));
      applied = bytes;
      tried.insert(bytes);
      tuning.after_forward(tuned.engine());
      tuning.after_backward();
    }
    RANK_CHECK(tried == std::set<int64_t>{2 * kMiB, kMiB, 512 * kKiB, 256 * kKiB});
    const int64_t chosen = tuning.bytes();
    const at::Tensor all = all_gather(test::here(at::tensor({chosen}, at::kLong)), group);
    for (int rank = 0; rank < group.size(); ++rank) RANK_CHECK(all[rank].item<int64_t>() == chosen);
    for (int i = 0; i < 10; ++i) RANK_CHECK_FALSE(tuned.step());
    RANK_CHECK(tuning.bytes() == chosen);
  });
}

TEST_CASE("BucketTuning: a size that is slow on any rank is not taken") {
  test::run_ranks(3, [](const GroupHandle& group) {
    Tuned tuned(group, 4, 512 * kKiB);
    // Fast on rank 0: 2 MiB and 512 KiB. On rank 1: 512 and 256 KiB. On rank 2 all.
    const std::vector<std::set<int64_t>> fast{
        {2 * kMiB, 512 * kKiB}, {512 * kKiB, 256 * kKiB}, {2 * kMiB, kMiB, 512 * kKiB, 256 * kKiB}};
    const std::set<int64_t>& own = fast.at(static_cast<size_t>(group.rank()));
    for (int steps = 0; !tuned.tuning().is_finished(); ++steps) {
      RANK_REQUIRE(steps < 100);
      tuned.step(own.contains(tuned.tuning().bytes()) ? 0 : 0.15);
    }
    RANK_CHECK(tuned.tuning().bytes() == 512 * kKiB);
  });
}

TEST_CASE("BucketTuning: steps that do not reduce, or have failed, are not measured") {
  test::run_ranks(1, [](const GroupHandle& group) {
    Tuned tuned(group, 4, 512 * kKiB);
    const int64_t first = tuned.tuning().bytes();
    for (int i = 0; i < 20; ++i) tuned.tuning().after_backward();  // under no_sync() there is no forward before it
    for (int i = 0; i < 20; ++i) {                                 // a backward that throws has no end
      tuned.tuning().before_forward(tuned.engine());
      tuned.tuning().after_forward(tuned.engine());
    }
    RANK_CHECK(tuned.tuning().bytes() == first);
    RANK_CHECK_FALSE(tuned.tuning().is_finished());
    for (int i = 0; i < 4; ++i) tuned.step();
    RANK_CHECK(tuned.tuning().bytes() < first);
  });
}

TEST_CASE("BucketTuning: nothing is measured before the order of the gradients is final") {
  test::run_ranks(1, [](const GroupHandle& group) {
    ReducedModel model{.name = "Net"};
    for (const char* name : {"a", "b"}) {
      model.parameters.push_back(test::here(at::zeros({1 << 18})).requires_grad_());
      model.names.emplace_back(name);
    }
    const auto context =
        std::make_shared<ReductionContext>(std::move(model), group, DdpOptions{.bucket_cap_bytes = kAutoBucketCap});
    const auto engine = make_engine(context);
    BucketTuning tuning(context);
    const auto buckets = engine->bucket_bytes();
    RANK_REQUIRE(engine->should_rebuild_buckets());
    for (int i = 0; i < 50; ++i) {
      RANK_CHECK_FALSE(tuning.before_forward(*engine));
      tuning.after_forward(*engine);
      tuning.after_backward();
    }
    RANK_CHECK_FALSE(tuning.is_finished());
    RANK_CHECK(engine->bucket_bytes() == buckets);
    engine->remove_autograd_hooks();
  });
}

TEST_CASE("BucketTuning: stopped early it goes back to the size to begin with, once and for good") {
  test::run_ranks(2, [](const GroupHandle& group) {
    Tuned tuned(group, 8, 8 * kMiB);
    for (int i = 0; i < 5; ++i) tuned.step();
    RANK_CHECK(tuned.tuning().stop(tuned.engine()));
    RANK_CHECK(tuned.tuning().is_finished());
    RANK_CHECK(tuned.tuning().bytes() == BucketCap::kDefaultBytes);
    RANK_CHECK(tuned.buckets() == grouped(8, 8 * kMiB, kMiB, BucketCap::kDefaultBytes));
    RANK_CHECK_FALSE(tuned.tuning().stop(tuned.engine()));
    for (int i = 0; i < 5; ++i) RANK_CHECK_FALSE(tuned.step());
    RANK_CHECK(tuned.tuning().bytes() == BucketCap::kDefaultBytes);
  });
}

TEST_CASE_METHOD(Tuning, "BucketTuning: models of one parameter, of many, and without an element settle as well") {
  run([](const GroupHandle& group) {
    for (const auto& [count, bytes] : std::vector<std::pair<int, int64_t>>{{1, 4}, {1, 0}, {3, 0}, {400, 1024}}) {
      RANK_INFO(count << " parameters of " << bytes << " bytes");
      Tuned tuned(group, count, bytes);
      for (int steps = 0; !tuned.tuning().is_finished(); ++steps) {
        RANK_REQUIRE(steps < 100);
        tuned.step();
      }
      int64_t sum = 0;
      for (const int64_t bucket : tuned.buckets()) sum += bucket;
      RANK_CHECK(sum == count * bytes);
      RANK_CHECK(tuned.tuning().bytes() >= 256 * kKiB);
    }
  });
}

}  // namespace
}  // namespace ddp::detail
