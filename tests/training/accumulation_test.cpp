#include <vector>

#include <ddprun/training/accumulation.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("UpdatePart: every pass belongs to one update and the last one has what is left") {
  for (const int64_t accumulate : {1, 2, 4, 7, 100}) {
    for (const int64_t passes : {1, 6, 7, 8}) {
      std::vector<int64_t> updates;  // passes of each, as counted from the firsts and lasts
      int64_t open = 0;
      for (int64_t pass = 0; pass < passes; ++pass) {
        const auto part = update_part(pass, passes, accumulate);
        UNSCOPED_INFO("an update begins when none is open");
        CHECK(part.is_first == (open == 0));
        ++open;
        CHECK(open <= accumulate);
        if (!part.is_last) continue;
        CHECK(part.passes == open);
        updates.push_back(open);
        open = 0;
      }
      UNSCOPED_INFO("no pass is left without a step");
      CHECK(open == 0);
      CHECK(static_cast<int64_t>(updates.size()) == (passes + accumulate - 1) / accumulate);
    }
  }
}

TEST_CASE("UpdatePart: all passes of an update know their number") {
  for (int64_t pass = 0; pass < 7; ++pass) CHECK(update_part(pass, 7, 4).passes == (pass < 4 ? 4 : 3));
}

}  // namespace
}  // namespace ddp
