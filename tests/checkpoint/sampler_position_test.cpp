// Ranks that do not stand at the same place of a run are told apart from those that do.
#include "checkpoint/core/sampler_position.h"

#include <vector>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;

using Places = std::vector<std::optional<SamplerPosition>>;

SamplerPosition at(int64_t epoch, int64_t consumed, uint64_t seed = 1) {
  return {.seed = seed, .epoch = epoch, .consumed = consumed, .length = 13};
}

TEST_CASE("SamplerPosition: is read from a states numbers and from nothing else") {
  const auto place = sampler_position(to_json(at(3, 8, ~uint64_t{0})));
  REQUIRE(place);
  CHECK(place->seed == ~uint64_t{0});
  CHECK(place->epoch == 3);
  CHECK(place->consumed == 8);
  CHECK(place->length == 13);
  CHECK_THAT(to_json(at(3, 8)), !ContainsSubstring(" "));
  for (const auto* state :
       {"", "PK\3\4", "7", "[]", "{}", R"({"seed": 1, "epoch": 1.5, "consumed": 0, "length": 1})"}) {
    INFO(state);
    CHECK_FALSE(sampler_position(state));
  }
}

TEST_CASE("SamplerPosition: is the same on ranks that have used as much") {
  CHECK_THAT(different_positions({}), IsEmpty());
  CHECK_THAT(different_positions(Places{at(1, 8), at(1, 8), at(1, 8)}), IsEmpty());
  INFO("one that cannot be read");
  CHECK_THAT(different_positions(Places{at(1, 8), std::nullopt}), IsEmpty());
}

TEST_CASE("SamplerPosition: may be uneven at an epochs end") {
  CHECK_THAT(different_positions(Places{at(1, 14), at(1, 12)}), IsEmpty());
  CHECK_THAT(different_positions(Places{at(1, 15), at(1, 12), at(1, 12)}), IsEmpty());
  INFO("one sample is left there");
  CHECK_THAT(different_positions(Places{at(1, 14), at(1, 10)}), ContainsSubstring("on rank 1"));
}

TEST_CASE("SamplerPosition: differs by epoch by samples and by seed") {
  CHECK_THAT(different_positions(Places{at(0, 14), at(0, 12), at(1, 4)}),
             ContainsSubstring("on rank 2: its sampler is in epoch 1 after 4 of 13 samples, but rank 0's is in epoch 0 "
                               "after 14 of 13 samples; ") &&
                 !ContainsSubstring("rank 1") && !ContainsSubstring("seed"));
  CHECK_THAT(different_positions(Places{at(0, 8), at(0, 4)}), ContainsSubstring("on rank 1: its sampler is"));
  CHECK_THAT(different_positions(Places{at(0, 8, 1), at(0, 8, 2)}),
             ContainsSubstring("(seed 2)") && ContainsSubstring("(seed 1)"));
}

TEST_CASE("SamplerPosition: ranks of a stream have used as many, or have all ended") {
  const auto of_stream = [](int64_t consumed) {
    return sampler_position(R"({"seed":1,"epoch":2,"stages":[[2,4]],"consumed":)" + std::to_string(consumed) +
                            R"(,"length":-1})");
  };
  CHECK_THAT(different_positions({of_stream(8), of_stream(8)}), IsEmpty());
  CHECK_THAT(different_positions({of_stream(-1), of_stream(-1)}), IsEmpty());
  CHECK_THAT(
      different_positions({of_stream(8), of_stream(6)}),
      ContainsSubstring("on rank 1: its sampler is in epoch 2 after 6 samples, but rank 0's is in epoch 2 after 8"));
  CHECK_THAT(different_positions({of_stream(8), of_stream(-1)}), ContainsSubstring("is in epoch 2 at the end"));
}

}  // namespace
}  // namespace ddp
