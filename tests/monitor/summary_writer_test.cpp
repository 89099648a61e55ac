#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include <ddprun/monitor/figure.h>
#include <ddprun/monitor/summary_writer.h>

#include "base/job.h"
#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::Scalar;
using test::scalars_in;

TEST_CASE("SummaryWriter: writes scalars that can be read after a flush") {
  const test::TemporaryFolder folder;
  SummaryWriter writer(folder.path());
  CHECK(writer.is_active());
  writer.add_scalar("loss", 0.5, 1);
  writer.add_scalar("loss", 0.25, 2);
  writer.flush();
  CHECK(scalars_in(folder.path()) == std::vector<Scalar>{{"loss", 1, 0.5F}, {"loss", 2, 0.25F}});
}

TEST_CASE("SummaryWriter: a group of scalars goes into runs of its own below the folder") {
  const test::TemporaryFolder folder;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalars("loss/all", {{"train", 1.0}, {"../../evil", 2.0}}, 3);
    writer.add_scalars("loss/all", {{"train", 0.5}}, 4);
  }
  CHECK(scalars_in(folder.path() / "loss_all_train") ==
        std::vector<Scalar>{{"loss/all", 3, 1.0F}, {"loss/all", 4, 0.5F}});
  CHECK(scalars_in(folder.path() / "loss_all_.._.._evil") == std::vector<Scalar>{{"loss/all", 3, 2.0F}});
}

TEST_CASE("SummaryWriter: a figure's lines are an image of the figure's size") {
  const test::TemporaryFolder folder;
  const Figure figure{.title = "precision",
                      .x_label = "recall",
                      .lines = {{"daisy", {0, 0.5, 1}, {1, 0.75, 0}}, {"rose", {0, 1}, {1, 0.5}}},
                      .width = 200,
                      .height = 160};
  Bitmap bitmap;
  try {
    bitmap = figure.draw();
  } catch (const std::runtime_error& error) {
    SKIP(error.what());  // cairo is not installed
  }
  CHECK(bitmap.width == 200);
  CHECK(bitmap.height == 160);
  REQUIRE(bitmap.channels == 3);
  // Two lines have two colours of their own.
  std::set<std::array<uint8_t, 3>> colours;
  for (size_t i = 0; i < bitmap.pixels.size(); i += 3) {
    const std::array<uint8_t, 3> pixel{bitmap.pixels[i], bitmap.pixels[i + 1], bitmap.pixels[i + 2]};
    if (*std::max_element(pixel.begin(), pixel.end()) - *std::min_element(pixel.begin(), pixel.end()) > 100)
      colours.insert(pixel);
  }
  CHECK(colours.size() >= 2);
  {
    SummaryWriter writer(folder.path());
    writer.add_figure("recall", figure, 7);
    writer.add_figure("recall", {.lines = {{.x = {1, 2}, .y = {3, 4}}}}, 8);
    CHECK_THROWS_MATCHES(writer.add_figure("a", {.lines = {{"b", {1}, {}}}}), std::invalid_argument,
                         MessageMatches(ContainsSubstring("line 'b' has 1 x and 0 y")));
    CHECK_THROWS_MATCHES(writer.add_figure("a", {.width = 5000}), std::invalid_argument,
                         MessageMatches(ContainsSubstring("from 150 to 4096 pixels, got 5000x300")));
  }
  const auto content = test::read_file(test::event_files(folder.path()).front());
  CHECK_THAT(content, ContainsSubstring("recall") && ContainsSubstring(encode_png(bitmap)));
  SummaryWriter silent(folder.path() / "silent", {.rank = 1});
  silent.add_figure("a", {.lines = {{"b", {1}, {}}}});  // is not even drawn
}

TEST_CASE("SummaryWriter: only rank 0 writes unless every rank shall") {
  const test::TemporaryFolder folder;
  SummaryWriter silent(folder.path() / "run", {.rank = 3});
  CHECK_FALSE(silent.is_active());
  silent.add_scalar("a", 1, 1);
  silent.add_scalars("a", {{"b", 1}}, 1);
  silent.add_text("a", "text");
  silent.add_histogram("a", std::vector<float>{1.0F});
  silent.add_images("a", ImagesView<float>{});
  silent.add_hparams({}, {});
  silent.flush();
  silent.close();
  CHECK_FALSE(fs::exists(folder.path() / "run"));
  SummaryWriter(folder.path() / "run", {.rank = 3, .every_rank = true}).add_scalar("a", 1, 1);
  CHECK(scalars_in(folder.path() / "run" / "rank-00003").size() == 1U);
}

struct WriterGroup {
  int rank() const { return 1; }
  int size() const { return 2; }
};

TEST_CASE("SummaryWriter: takes its rank from the group") {
  const test::TemporaryFolder folder;
  CHECK_FALSE(SummaryWriter(folder.path(), WriterGroup()).is_active());
  CHECK(SummaryWriter(folder.path(), WriterGroup(), {.every_rank = true}).is_active());
  CHECK(fs::exists(folder.path() / "rank-00001"));
}

TEST_CASE("SummaryWriter: refuses in a job of several ranks when nobody said which this is") {
  const test::TemporaryFolder folder;
  const ThreadJob job({.rank = 1, .size = 2});
  for (const bool every_rank : {false, true}) {
    CHECK_THROWS_MATCHES(
        SummaryWriter(folder.path() / "run", {.every_rank = every_rank}), std::invalid_argument,
        MessageMatches(ContainsSubstring("rank 1 of 2: SummaryWriter: no group and no rank were given")));
  }
  CHECK_FALSE(fs::exists(folder.path() / "run"));
  CHECK(SummaryWriter(folder.path() / "run", {.rank = 0}).is_active());
}

TEST_CASE("SummaryWriter: a run that goes on after a step keeps that steps values") {
  const test::TemporaryFolder folder;
  SummaryWriter(folder.path()).add_scalar("accuracy", 1, 10);
  SummaryWriter(folder.path(), {.resume_after = 10}).add_scalar("accuracy", 2, 20);
  const auto records = test::records_of(test::event_files(folder.path()).at(1));
  UNSCOPED_INFO("the first step to drop");
  CHECK(test::field_at(records.at(1), {2}).integer == 11U);
  CHECK_THROWS_MATCHES(SummaryWriter(folder.path(), {.rank = 1, .resume_after = 10, .purge_step = 11}),
                       std::invalid_argument, MessageMatches(ContainsSubstring("give either `.purge_step`")));
}

TEST_CASE("SummaryWriter: a resumed run tells readers from where to drop and keeps the earlier file") {
  const test::TemporaryFolder folder;
  SummaryWriter(folder.path()).add_scalar("loss", 1, 10);
  SummaryWriter(folder.path(), {.purge_step = 5}).add_scalar("loss", 2, 5);
  const auto files = test::event_files(folder.path());
  REQUIRE(files.size() == 2U);
  const auto records = test::records_of(files[1]);
  REQUIRE(records.size() == 3U);
  CHECK(test::field_at(records[1], {2}).integer == 5U);
  CHECK(test::field_at(records[1], {7, 1}).integer == 1U);
}

TEST_CASE("SummaryWriter: can be moved") {
  const test::TemporaryFolder folder;
  SummaryWriter first(folder.path());
  first.add_scalar("a", 1, 1);
  SummaryWriter second = std::move(first);
  second.add_scalar("a", 2, 2);
  second.close();
  CHECK(scalars_in(folder.path()).size() == 2U);
}

}  // namespace
}  // namespace ddp
