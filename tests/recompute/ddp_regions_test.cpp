// Regions and DistributedDataParallel: inside the wrapped model with any option; around the wrapper it is refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>

#include "ddprun/ddp/distributed_data_parallel.h"
#include "ddprun/recompute/recompute.h"
#include "tests/recompute/regions.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp::regions {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("Regions and ddp: a region around the wrapper is refused with the remedy") {
  for (const test::Wire wire : test::wires({test::Wire::kGloo, test::Wire::kShm})) {
    test::run_ranks(2,
                    [](const GroupHandle& group) {
                      auto net = block();
                      DistributedDataParallel model(net, group);
                      const at::Tensor input = here(at::rand({8, 16})).requires_grad_();
                      std::string message;
                      try {
                        checkpoint([&](const at::Tensor& x) { return model(x).sin(); }, input).sum().backward();
                      } catch (const std::exception& error) {
                        message = error.what();
                      }
                      RANK_CHECK_THAT(message, ContainsSubstring("Call checkpoint() inside the wrapped model"));
                    },
                    {.wire = wire});
  }
}

}  // namespace
}  // namespace ddp::regions
