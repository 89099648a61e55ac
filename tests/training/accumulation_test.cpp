#include "training/accumulation.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddp {
namespace {

TEST(UpdatePart, every_pass_belongs_to_one_update_and_the_last_one_has_what_is_left) {
  for (const int64_t accumulate : {1, 2, 4, 7, 100}) {
    for (const int64_t passes : {1, 6, 7, 8}) {
      std::vector<int64_t> updates;  // passes of each, as counted from the firsts and lasts
      int64_t open = 0;
      for (int64_t pass = 0; pass < passes; ++pass) {
        const auto part = update_part(pass, passes, accumulate);
        EXPECT_EQ(part.is_first, open == 0) << "an update begins when none is open";
        ++open;
        EXPECT_LE(open, accumulate);
        if (!part.is_last) continue;
        EXPECT_EQ(part.passes, open);
        updates.push_back(open);
        open = 0;
      }
      EXPECT_EQ(open, 0) << "no pass is left without a step";
      EXPECT_EQ(static_cast<int64_t>(updates.size()), (passes + accumulate - 1) / accumulate);
    }
  }
}

TEST(UpdatePart, all_passes_of_an_update_know_their_number) {
  for (int64_t pass = 0; pass < 7; ++pass) EXPECT_EQ(update_part(pass, 7, 4).passes, pass < 4 ? 4 : 3);
}

}  // namespace
}  // namespace ddp
