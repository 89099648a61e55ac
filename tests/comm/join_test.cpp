#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/process_group.h>

#include "tests/support/catch.h"
#include "tests/support/every_wire.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::here;
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
  c10::Device join_device() const override { return test::test_device(); }
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
    const at::Tensor total = here(at::full({1}, value));
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

TEST_CASE("Join: refuses a joinable that is none and a loop that is none, before anything runs") {
  Summing one(test::unconnected_rank(0, 2));
  CHECK_THROWS_AS(join({nullptr}, [] { FAIL_CHECK("ran"); }), std::invalid_argument);
  CHECK_THROWS_AS(join({&one, nullptr}, [] { FAIL_CHECK("ran"); }), std::invalid_argument);
  CHECK_THROWS_AS(join({&one}, nullptr), std::invalid_argument);
}

TEST_CASE_METHOD(JoinTest, "Join: any numbers of inputs, none included, sum over those that still have some") {
  for (int round = 0; round < 6; ++round) {
    const int size = 1 + round % 4;
    std::mt19937 random(static_cast<unsigned>(round));
    std::vector<int> inputs;
    for (int rank = 0; rank < size; ++rank) inputs.push_back(static_cast<int>(random() % 5));
    const int most = *std::max_element(inputs.begin(), inputs.end());
    run_ranks(size,
              [&](const GroupHandle& group) {
                Summing joinable(group);
                const int mine = inputs[static_cast<size_t>(group.rank())];
                join({&joinable}, [&] {
                  for (int i = 0; i < mine; ++i) {
                    const auto active = std::count_if(inputs.begin(), inputs.end(), [i](int n) { return n > i; });
                    RANK_CHECK(joinable.step(2) == 2 * static_cast<float>(active));
                  }
                });
                RANK_CHECK(joinable.shadowed == most - mine);
                RANK_CHECK(joinable.last == (mine == most ? 1 : 0));
              },
              {.wire = wire_});
  }
}

TEST_CASE_METHOD(JoinTest, "Join: may follow on itself, on an early end that threw, and in sub groups at once") {
  run_ranks(4,
            [](const GroupHandle& group) {
              const auto low = new_group(group, {0, 1});
              const auto high = new_group(group, {2, 3});
              const GroupHandle& pair = low ? *low : *high;
              Summing joinable(pair);
              for (int round = 0; round < 3; ++round) {
                const int inputs = 1 + (group.rank() + round) % 3;
                join({&joinable}, [&] {
                  for (int i = 0; i < inputs; ++i) joinable.step(1);
                });
                RANK_CHECK_THROWS_AS(join({&joinable},
                                          [&] {
                                            for (int i = 0; i < 1 + pair.rank(); ++i) joinable.step(1);
                                          },
                                          {.throw_on_early_termination = true}),
                                     std::runtime_error);
              }
              RANK_CHECK(joinable.step(1) == 2);
            },
            {.wire = wire_});
}

}  // namespace
}  // namespace ddp
