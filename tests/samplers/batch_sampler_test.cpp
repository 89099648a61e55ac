#include "samplers/batch_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::vector<int64_t>> all(const BatchSampler& batches) {
  std::vector<std::vector<int64_t>> seen;
  for (const auto batch : batches) seen.emplace_back(batch.begin(), batch.end());
  EXPECT_EQ(static_cast<int64_t>(seen.size()), batches.size());
  return seen;
}

// list(torch.utils.data.BatchSampler([5, 3, 1, 4, 2], batch_size, drop_last))
TEST(BatchSampler, groups_the_indices_in_order_as_python_does) {
  const std::vector<int64_t> indices = {5, 3, 1, 4, 2};
  EXPECT_THAT(all({indices, 2}), ElementsAre(ElementsAre(5, 3), ElementsAre(1, 4), ElementsAre(2)));
  EXPECT_THAT(all({indices, 2, true}), ElementsAre(ElementsAre(5, 3), ElementsAre(1, 4)));
  EXPECT_THAT(all({indices, 5, true}), ElementsAre(ElementsAre(5, 3, 1, 4, 2)));
  EXPECT_THAT(all({indices, 6, true}), ElementsAre());
  EXPECT_THAT(all({indices, std::numeric_limits<int64_t>::max()}), ElementsAre(ElementsAre(5, 3, 1, 4, 2)));
  EXPECT_THAT(all({{}, 3}), ElementsAre());
}

TEST(BatchSampler, gives_any_batch_by_its_number) {
  const BatchSampler batches({5, 3, 1}, 2);
  EXPECT_THAT(batches[1], ElementsAre(1));
  EXPECT_THAT([&] { static_cast<void>(batches[2]); }, ThrowsMessage<std::out_of_range>(HasSubstr("batch 2")));
  EXPECT_THROW(static_cast<void>(batches[-1]), std::out_of_range);
  EXPECT_THAT([] { BatchSampler({1}, 0); }, ThrowsMessage<std::invalid_argument>(HasSubstr("batch size 0")));
}

}  // namespace
}  // namespace ddp
