#include <limits>
#include <stdexcept>

#include <ddprun/samplers/batch_sampler.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::ElementsAre;

std::vector<std::vector<int64_t>> all(const BatchSampler& batches) {
  std::vector<std::vector<int64_t>> seen;
  for (const auto batch : batches) seen.emplace_back(batch.begin(), batch.end());
  CHECK(static_cast<int64_t>(seen.size()) == batches.size());
  return seen;
}

// list(torch.utils.data.BatchSampler([5, 3, 1, 4, 2], batch_size, drop_last))
TEST_CASE("BatchSampler: groups the indices in order as Python does") {
  const std::vector<int64_t> indices = {5, 3, 1, 4, 2};
  CHECK_THAT(all({indices, 2}), ElementsAre(ElementsAre(5, 3), ElementsAre(1, 4), ElementsAre(2)));
  CHECK_THAT(all({indices, 2, true}), ElementsAre(ElementsAre(5, 3), ElementsAre(1, 4)));
  CHECK_THAT(all({indices, 5, true}), ElementsAre(ElementsAre(5, 3, 1, 4, 2)));
  CHECK_THAT(all({indices, 6, true}), ElementsAre());
  CHECK_THAT(all({indices, std::numeric_limits<int64_t>::max()}), ElementsAre(ElementsAre(5, 3, 1, 4, 2)));
  CHECK_THAT(all({{}, 3}), ElementsAre());
}

TEST_CASE("BatchSampler: gives any batch by its number") {
  const BatchSampler batches({5, 3, 1}, 2);
  CHECK_THAT(batches[1], ElementsAre(1));
  CHECK_THROWS_MATCHES(batches[2], std::out_of_range, MessageMatches(ContainsSubstring("batch 2")));
  CHECK_THROWS_AS(batches[-1], std::out_of_range);
  CHECK_THROWS_MATCHES(BatchSampler({1}, 0), std::invalid_argument, MessageMatches(ContainsSubstring("batch size 0")));
}

}  // namespace
}  // namespace ddp
