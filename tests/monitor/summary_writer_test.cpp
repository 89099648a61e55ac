#include "monitor/summary_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "ranks/job.h"
#include "tests/monitor/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Scalar;
using testing::scalars_in;
using ::testing::ThrowsMessage;

TEST(SummaryWriter, writes_scalars_that_can_be_read_after_a_flush) {
  const testing::TemporaryFolder folder;
  SummaryWriter writer(folder.path());
  EXPECT_TRUE(writer.is_active());
  writer.add_scalar("loss", 0.5, 1);
  writer.add_scalar("loss", 0.25, 2);
  writer.flush();
  EXPECT_EQ(scalars_in(folder.path()), (std::vector<Scalar>{{"loss", 1, 0.5F}, {"loss", 2, 0.25F}}));
}

TEST(SummaryWriter, a_group_of_scalars_goes_into_runs_of_its_own_below_the_folder) {
  const testing::TemporaryFolder folder;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalars("loss/all", {{"train", 1.0}, {"../../evil", 2.0}}, 3);
    writer.add_scalars("loss/all", {{"train", 0.5}}, 4);
  }
  EXPECT_EQ(scalars_in(folder.path() / "loss_all_train"),
            (std::vector<Scalar>{{"loss/all", 3, 1.0F}, {"loss/all", 4, 0.5F}}));
  EXPECT_EQ(scalars_in(folder.path() / "loss_all_.._.._evil"), (std::vector<Scalar>{{"loss/all", 3, 2.0F}}));
}

TEST(SummaryWriter, only_rank_0_writes_unless_every_rank_shall) {
  const testing::TemporaryFolder folder;
  SummaryWriter silent(folder.path() / "run", {.rank = 3});
  EXPECT_FALSE(silent.is_active());
  silent.add_scalar("a", 1, 1);
  silent.add_scalars("a", {{"b", 1}}, 1);
  silent.add_text("a", "text");
  silent.add_histogram("a", std::vector<float>{1.0F});
  silent.add_images("a", ImagesView<float>{});
  silent.add_hparams({}, {});
  silent.flush();
  silent.close();
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
  SummaryWriter(folder.path() / "run", {.rank = 3, .every_rank = true}).add_scalar("a", 1, 1);
  EXPECT_EQ(scalars_in(folder.path() / "run" / "rank-00003").size(), 1U);
}

struct Group {
  int rank() const { return 1; }
  int size() const { return 2; }
};

TEST(SummaryWriter, takes_its_rank_from_the_group) {
  const testing::TemporaryFolder folder;
  EXPECT_FALSE(SummaryWriter(folder.path(), Group()).is_active());
  EXPECT_TRUE(SummaryWriter(folder.path(), Group(), {.every_rank = true}).is_active());
  EXPECT_TRUE(fs::exists(folder.path() / "rank-00001"));
}

TEST(SummaryWriter, refuses_in_a_job_of_several_ranks_when_nobody_said_which_this_is) {
  const testing::TemporaryFolder folder;
  const ThreadJob job({.rank = 1, .size = 2});
  for (const bool every_rank : {false, true}) {
    EXPECT_THAT([&] { SummaryWriter(folder.path() / "run", {.every_rank = every_rank}); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("rank 1 of 2: SummaryWriter: it was not told")));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
  EXPECT_TRUE(SummaryWriter(folder.path() / "run", {.rank = 0}).is_active());
}

TEST(SummaryWriter, a_run_that_goes_on_after_a_step_keeps_that_steps_values) {
  const testing::TemporaryFolder folder;
  SummaryWriter(folder.path()).add_scalar("accuracy", 1, 10);
  SummaryWriter(folder.path(), {.resume_after = 10}).add_scalar("accuracy", 2, 20);
  const auto records = testing::records_of(testing::event_files(folder.path()).at(1));
  EXPECT_EQ(testing::field_at(records.at(1), {2}).integer, 11U) << "the first step to drop";
  EXPECT_THAT([&] { SummaryWriter(folder.path(), {.rank = 1, .resume_after = 10, .purge_step = 11}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("say the same")));
}

TEST(SummaryWriter, a_resumed_run_tells_readers_from_where_to_drop_and_keeps_the_earlier_file) {
  const testing::TemporaryFolder folder;
  SummaryWriter(folder.path()).add_scalar("loss", 1, 10);
  SummaryWriter(folder.path(), {.purge_step = 5}).add_scalar("loss", 2, 5);
  const auto files = testing::event_files(folder.path());
  ASSERT_EQ(files.size(), 2U);
  const auto records = testing::records_of(files[1]);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(testing::field_at(records[1], {2}).integer, 5U);
  EXPECT_EQ(testing::field_at(records[1], {7, 1}).integer, 1U);
}

TEST(SummaryWriter, can_be_moved) {
  const testing::TemporaryFolder folder;
  SummaryWriter first(folder.path());
  first.add_scalar("a", 1, 1);
  SummaryWriter second = std::move(first);
  second.add_scalar("a", 2, 2);
  second.close();
  EXPECT_EQ(scalars_in(folder.path()).size(), 2U);
}

}  // namespace
}  // namespace ddp
