#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/join.h>

#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::run_ranks;
using test::Wire;

// Sums one number over the ranks per iteration; a rank that has joined adds zeros.
class Summing final : public Joinable {
 public:
  explicit Summing(GroupHandle group) : group_(std::move(group)) {}

  float step(float value) {
    notify_join_context();
    return sum(value);
  }

  std::unique_ptr<JoinHook> join_hook(const JoinOptions& /*options*/) override { return std::make_unique<Hook>(*this); }
  c10::Device join_device() const override { return c10::kCPU; }
  const GroupHandle& join_group() const override { return group_; }

  int shadowed = 0;
  int last = -1;

 private:
  struct Hook final : JoinHook {
    explicit Hook(Summing& summing) : owner(summing) {}
    void main_hook() override {
      owner.sum(0);
      ++owner.shadowed;
    }
    void post_hook(bool is_last_joiner) override { owner.last = is_last_joiner ? 1 : 0; }
    Summing& owner;
  };

  float sum(float value) {
    const at::Tensor total = at::full({1}, value);
    all_reduce(total, group_);
    return total.item<float>();
  }

  GroupHandle group_;
};

class JoinTest : protected test::EveryWire {};
TEST_CASE_METHOD(JoinTest, "Join: ranks without input shadow the others until all have joined") {
  run_ranks(3,
            [](const GroupHandle& group) {
              Summing first(group);
              Summing second(group);
              const int inputs = 2 + group.rank();
              join({&first, &second}, [&] {
                for (int i = 0; i < inputs; ++i) {
                  const float active = i < 2 ? 3.F : i < 3 ? 2.F : 1.F;
                  RANK_CHECK(first.step(1) == active);
                  RANK_CHECK(second.step(2) == 2 * active);
                }
              });
              RANK_CHECK(first.shadowed == 4 - inputs);
              RANK_CHECK(second.shadowed == 4 - inputs);
              RANK_CHECK(second.last == (group.rank() == 2 ? 1 : 0));
              RANK_INFO("outside of join nothing more than its own collective");
              RANK_CHECK(first.step(1) == 3);
            },
            {.wire = wire_});
}

TEST_CASE_METHOD(JoinTest, "Join: early termination throws on every rank") {
  run_ranks(2,
            [](const GroupHandle& group) {
              Summing joinable(group);
              std::string message;
              try {
                join({&joinable},
                     [&] {
                       for (int i = 0; i <= group.rank(); ++i) joinable.step(1);
                     },
                     {.throw_on_early_termination = true});
              } catch (const std::runtime_error& error) {
                message = error.what();
              }
              RANK_CHECK_THAT(message,
                              ContainsSubstring(group.rank() == 0 ? "rank 0 of 2: join: Rank 0 exhausted all inputs."
                                                                  : "rank 1 of 2: join: Detected at least one rank"));
            },
            {.wire = wire_});
}

TEST_CASE("Join: an exception of the body passes at once and disabled does nothing") {
  run_ranks(2, [](const GroupHandle& group) {
    Summing joinable(group);
    RANK_CHECK_THROWS_AS(join({&joinable}, [] { throw std::domain_error("mine"); }), std::domain_error);
    join({&joinable}, [&] { RANK_CHECK(joinable.step(1) == 2); }, {.enable = false});
    RANK_CHECK(joinable.last == -1);
  });
}

TEST_CASE("Join: refuses no joinables and joinables of different groups") {
  CHECK_THROWS_AS(join({}, [] {}), std::invalid_argument);
  Summing one(test::unconnected_rank(0, 2));
  Summing two(test::unconnected_rank(0, 2));
  CHECK_THROWS_AS(join({&one, &two}, [] {}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
