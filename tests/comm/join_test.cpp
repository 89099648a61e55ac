#include "comm/join.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <stdexcept>
#include <string>

#include "comm/collectives.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using test::run_ranks;
using test::Wire;
using testing::HasSubstr;

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

class JoinTest : public testing::TestWithParam<Wire> {};
INSTANTIATE_TEST_SUITE_P(Wires, JoinTest, testing::Values(Wire::kGloo, Wire::kLate));

TEST_P(JoinTest, ranks_without_input_shadow_the_others_until_all_have_joined) {
  run_ranks(3,
            [](const GroupHandle& group) {
              Summing first(group);
              Summing second(group);
              const int inputs = 2 + group.rank();
              join({&first, &second}, [&] {
                for (int i = 0; i < inputs; ++i) {
                  const float active = i < 2 ? 3.F : i < 3 ? 2.F : 1.F;
                  EXPECT_EQ(first.step(1), active);
                  EXPECT_EQ(second.step(2), 2 * active);
                }
              });
              EXPECT_EQ(first.shadowed, 4 - inputs);
              EXPECT_EQ(second.shadowed, 4 - inputs);
              EXPECT_EQ(second.last, group.rank() == 2 ? 1 : 0);
              EXPECT_EQ(first.step(1), 3) << "outside of join nothing more than its own collective";
            },
            {.wire = GetParam()});
}

TEST_P(JoinTest, early_termination_throws_on_every_rank) {
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
              EXPECT_THAT(message, HasSubstr(group.rank() == 0 ? "rank 0 of 2: join: Rank 0 exhausted all inputs."
                                                               : "rank 1 of 2: join: Detected at least one rank"));
            },
            {.wire = GetParam()});
}

TEST(Join, an_exception_of_the_body_passes_at_once_and_disabled_does_nothing) {
  run_ranks(2, [](const GroupHandle& group) {
    Summing joinable(group);
    EXPECT_THROW(join({&joinable}, [] { throw std::domain_error("mine"); }), std::domain_error);
    join({&joinable}, [&] { EXPECT_EQ(joinable.step(1), 2); }, {.enable = false});
    EXPECT_EQ(joinable.last, -1);
  });
}

TEST(Join, refuses_no_joinables_and_joinables_of_different_groups) {
  EXPECT_THROW(join({}, [] {}), std::invalid_argument);
  Summing one(test::unconnected_rank(0, 2));
  Summing two(test::unconnected_rank(0, 2));
  EXPECT_THROW(join({&one, &two}, [] {}), std::invalid_argument);
}

}  // namespace
}  // namespace ddp
