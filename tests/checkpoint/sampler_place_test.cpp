// Ranks that do not stand at the same place of a run are told apart from those that do.
#include "checkpoint/sampler_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Places = std::vector<std::optional<SamplerPlace>>;

SamplerPlace at(int64_t epoch, int64_t consumed, uint64_t seed = 1) {
  return {.seed = seed, .epoch = epoch, .consumed = consumed, .length = 13};
}

TEST(SamplerPlace, is_read_from_a_states_numbers_and_from_nothing_else) {
  const auto place = sampler_place(to_json(at(3, 8, ~uint64_t{0})));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->seed, ~uint64_t{0});
  EXPECT_EQ(place->epoch, 3);
  EXPECT_EQ(place->consumed, 8);
  EXPECT_EQ(place->length, 13);
  EXPECT_THAT(to_json(at(3, 8)), Not(HasSubstr(" ")));
  for (const auto* state :
       {"", "PK\3\4", "7", "[]", "{}", R"({"seed": 1, "epoch": 1.5, "consumed": 0, "length": 1})"}) {
    EXPECT_FALSE(sampler_place(state)) << state;
  }
}

TEST(SamplerPlace, is_the_same_on_ranks_that_have_used_as_much) {
  EXPECT_THAT(different_places({}), IsEmpty());
  EXPECT_THAT(different_places(Places{at(1, 8), at(1, 8), at(1, 8)}), IsEmpty());
  EXPECT_THAT(different_places(Places{at(1, 8), std::nullopt}), IsEmpty()) << "one that cannot be read";
}

TEST(SamplerPlace, may_be_uneven_at_an_epochs_end) {
  EXPECT_THAT(different_places(Places{at(1, 14), at(1, 12)}), IsEmpty());
  EXPECT_THAT(different_places(Places{at(1, 15), at(1, 12), at(1, 12)}), IsEmpty());
  EXPECT_THAT(different_places(Places{at(1, 14), at(1, 10)}), HasSubstr("on rank 1")) << "one sample is left there";
}

TEST(SamplerPlace, differs_by_epoch_by_samples_and_by_seed) {
  EXPECT_THAT(different_places(Places{at(0, 14), at(0, 12), at(1, 4)}),
              AllOf(HasSubstr("on rank 2: its sampler stands in epoch 1 after 4 of 13 samples, but rank 0's in epoch 0 "
                              "after 14 of 13 samples; "),
                    Not(HasSubstr("rank 1")), Not(HasSubstr("seed"))));
  EXPECT_THAT(different_places(Places{at(0, 8), at(0, 4)}), HasSubstr("on rank 1: its sampler stands"));
  EXPECT_THAT(different_places(Places{at(0, 8, 1), at(0, 8, 2)}), AllOf(HasSubstr("(seed 2)"), HasSubstr("(seed 1)")));
}

}  // namespace
}  // namespace ddp
