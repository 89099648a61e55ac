#include "checkpoint/core/rank_names.h"

#include <limits>

#include "checkpoint/storage/damage.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {

TEST_CASE("RankNames: the number is read, and nothing of other names") {
  CHECK(rank_in_name("rank.0.rng.cpu") == 0);
  CHECK(rank_in_name("rank.17.object.loader") == 17);
  CHECK(rank_in_name("rank.99999999999999999999.rng.cpu") == std::numeric_limits<uint64_t>::max());
  for (const auto* name : {"", "rank", "rank.", "rank.1", "rank.x.rng", "rank.-1.rng", "rank..rng", "fc.weight"}) {
    CHECK_FALSE(rank_in_name(name));
  }
}

TEST_CASE("RankNames: a rank that there is not is refused") {
  CHECK_NOTHROW(check_rank_name("f", "rank.2.rng.cpu", 3));
  CHECK_NOTHROW(check_rank_name("f", "other", 1));
  for (const auto* name : {"rank.3.rng.cpu", "rank.99999999999999999999.rng.cpu"}) {
    CHECK_THAT(test::error_of<storage::DamagedCheckpoint>([&] { check_rank_name("f", name, 3); }),
               Catch::Matchers::ContainsSubstring(name) && Catch::Matchers::ContainsSubstring("world_size 3"));
  }
}

}  // namespace ddp
