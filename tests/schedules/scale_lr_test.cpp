// How the learning rate is scaled with the number of ranks.
#include <cmath>
#include <limits>
#include <stdexcept>

#include <ddprun/schedules/scale_lr.h>

#include "tests/schedules/refused.h"
#include "tests/support/catch.h"

namespace ddp::schedules {
namespace {

using test::refused;

TEST_CASE("ScaleLr: grows with the ranks with their root or by a factor") {
  CHECK(scale_lr(0.1, 8) == 0.8);
  CHECK(scale_lr(0.1, 4, LrScaling::sqrt()) == 0.2);
  CHECK(scale_lr(0.1, 8, LrScaling::factor(3)) == 0.1 * 3);
  CHECK(scale_lr(0.1, 1) == 0.1);
  refused([] { scale_lr(0.1, 0); }, "the world size must be at least 1, got 0");
  refused([] { scale_lr(std::nan(""), 2); }, "Invalid learning rate: nan");
  refused([] { scale_lr(-1, 2); }, "Invalid learning rate: -1.0");
  refused([] { scale_lr(1, 2, LrScaling::factor(std::numeric_limits<double>::infinity())); }, "Invalid factor: inf");
  refused([] { scale_lr(1, 2, LrScaling::factor(-0.5)); }, "Invalid factor: -0.5");
  refused([] { scale_lr(1, 2, LrScaling::factor(std::nan(""))); }, "Invalid factor: nan");
  refused([] { scale_lr(std::numeric_limits<double>::infinity(), 2); }, "Invalid learning rate: inf");
  refused([] { LrScaling::sqrt().multiplier(-3); }, "the world size must be at least 1, got -3");
}

TEST_CASE("ScaleLr: ranks in two stages are ranks at once") {
  for (const int nodes : {1, 2, 3, 16}) {
    for (const int ranks : {1, 5, 8}) {
      CAPTURE(nodes, ranks);
      for (const auto& scaling : {LrScaling::linear(), LrScaling::sqrt()}) {
        CHECK_THAT(scale_lr(scale_lr(0.3, nodes, scaling), ranks, scaling),
                   Catch::Matchers::WithinRel(scale_lr(0.3, nodes * ranks, scaling), 1e-14));
      }
      CHECK(scale_lr(0, nodes * ranks) == 0);
      CHECK(LrScaling::factor(0).multiplier(nodes * ranks) == 0);
    }
  }
}

}  // namespace
}  // namespace ddp::schedules
