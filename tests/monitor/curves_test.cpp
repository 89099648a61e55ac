// From events to the numbers and lines of a picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "monitor/curves/axis.h"
#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"
#include "monitor/event.h"
#include "monitor/summary_writer.h"
#include "monitor/wire/message_writer.h"
#include "tests/monitor/files.h"

namespace ddp::curves {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

std::vector<double> values_of(const Curve& curve) {
  std::vector<double> values;
  for (const Point& point : curve) values.push_back(point.value);
  return values;
}

TEST(Scalars, come_from_every_folder_below_as_runs) {
  const testing::TemporaryFolder folder;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalar("loss", 1, 5);
    writer.add_scalar("loss", 0.5, 6);
    writer.add_scalars("both", {{"a", 2.0}}, 1);
    writer.add_text("note", "no curve");
  }
  const Runs found = read_runs(folder.path());
  EXPECT_THAT(found.problems, IsEmpty());
  ASSERT_THAT(found.runs, SizeIs(2));
  EXPECT_EQ(found.runs[0].name, ".");
  EXPECT_THAT(values_of(found.runs[0].curves.at("loss")), ElementsAre(1, 0.5));
  EXPECT_EQ(found.runs[0].curves.at("loss")[1].step, 6);
  EXPECT_GT(found.runs[0].curves.at("loss")[1].wall_time, 1e9);
  EXPECT_EQ(found.runs[1].name, "both_a");
}

TEST(Scalars, of_a_resumed_run_replace_the_later_steps) {
  const testing::TemporaryFolder folder;
  for (int64_t step = 0; step < 10; ++step) SummaryWriter(folder.path()).add_scalar("loss", 1, step);
  SummaryWriter(folder.path(), {.purge_step = 4}).add_scalar("loss", 2, 4);
  EXPECT_THAT(values_of(read_runs(folder.path()).runs.at(0).curves.at("loss")), ElementsAre(1, 1, 1, 1, 2));
}

TEST(Scalars, are_read_in_tensorflows_form_too) {
  using wire::MessageWriter;
  const auto event = [](const MessageWriter& tensor) {
    const std::string value = MessageWriter().bytes(1, "loss").bytes(8, tensor.str()).str();
    return MessageWriter().integer(2, 3).bytes(5, MessageWriter().bytes(1, value).str()).str();
  };
  curves::Run run;
  add_event(event(MessageWriter().integer(1, 1).real32(5, 0.5F)), run);
  add_event(event(MessageWriter().integer(1, 2).packed(6, std::vector<double>{0.25})), run);
  add_event(event(MessageWriter().integer(1, 2).bytes(4, MessageWriter().real(1, 8).str().substr(1))), run);
  add_event(event(MessageWriter().integer(1, 7).bytes(8, "text")), run);
  EXPECT_THAT(values_of(run.curves.at("loss")), ElementsAre(0.5, 0.25, 8));
}

TEST(Scalars, before_the_damage_are_kept_and_the_damage_is_told) {
  const testing::TemporaryFolder folder;
  std::string content;
  wire::append_record(content, encode_scalar({.step = 1}, "a", 1));
  wire::append_record(content, "\xFF\xFF");
  testing::write_file(folder.path() / "events.out.tfevents.1", content);
  const Runs found = read_runs(folder.path());
  EXPECT_THAT(values_of(found.runs.at(0).curves.at("a")), ElementsAre(1));
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("events.out.tfevents.1: not a protobuf message")));
}

TEST(Scalars, a_folder_without_event_files_is_named) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT([&] { read_runs(folder.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr(folder.path().string() + ": no event file")));
}

TEST(Scalars, a_path_that_does_not_exist_is_called_so) {
  const testing::TemporaryFolder folder;
  for (const char* name : {"nowhere", "nowhere/run.tfevents"}) {
    const fs::path path = folder.path() / name;
    EXPECT_THAT([&] { read_runs(path); },
                ThrowsMessage<std::runtime_error>(path.string() + ": no such file or folder"));
  }
}

TEST(Axis, has_round_numbers_within_the_range) {
  EXPECT_THAT(make_axis(0, 10).ticks, ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(make_axis(-0.3, 0.26).ticks,
              ElementsAre(DoubleNear(-0.2, 1e-12), DoubleNear(0, 1e-12), DoubleNear(0.2, 1e-12)));
  const Axis roomy = make_axis(0, 10, {.margin = 0.05});
  EXPECT_EQ(roomy.begin, -0.5);
  EXPECT_EQ(roomy.end, 10.5);
  EXPECT_THAT(roomy.ticks, ElementsAre(0, 5, 10));
}

TEST(Axis, of_a_single_value_has_the_size_of_that_value) {
  const Axis flat = make_axis(3, 3);
  EXPECT_EQ(flat.begin, 1.5);
  EXPECT_EQ(flat.end, 4.5);
  EXPECT_NEAR(flat.place(3), 0.5, 1e-12);
  const Axis zero = make_axis(0, 0);
  EXPECT_EQ(zero.begin, -1);
  EXPECT_EQ(zero.end, 1);
  EXPECT_DOUBLE_EQ(make_axis(1e-20, 1e-20).end, 1.5e-20) << "small numbers are numbers too";
}

TEST(Axis, of_steps_has_whole_numbers) {
  EXPECT_THAT(make_axis(1, 3, {.ticks = 10, .whole = true}).ticks, ElementsAre(1, 2, 3));
  const Axis one = make_axis(0, 0, {.whole = true});
  EXPECT_THAT(one.ticks, ElementsAre(0));
  EXPECT_EQ(one.place(0), 0.5);
}

TEST(Axis, of_any_finite_numbers_ends) {
  for (const double least : {-1e308, -1.0, 0.0, 1e-310, 1.0, 1e17}) {
    for (const double width : {0.0, 1e-320, 1e-17, 1.0, 1e300}) {
      for (const bool whole : {false, true}) {
        const Axis axis = make_axis(least, least + width, {.margin = 0.05, .whole = whole});
        EXPECT_LE(axis.ticks.size(), 101U);
        EXPECT_TRUE(std::isfinite(axis.place(least))) << least << " + " << width;
      }
    }
  }
}

TEST(Axis, labels_are_short_and_differ) {
  EXPECT_EQ(tick_label(0.05), "0.05");
  EXPECT_EQ(tick_label(20000), "20k");
  EXPECT_EQ(tick_label(2.5e6), "2.5M");
  EXPECT_EQ(tick_label(1e12), "1e+12");
  EXPECT_THAT(tick_labels(make_axis(0, 10)), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_THAT(tick_labels({.begin = 1, .end = 2, .ticks = {1.000001, 1.000002}}), ElementsAre("1.000001", "1.000002"));
}

TEST(Svg, has_a_line_through_the_points_of_each_run_and_escaped_texts) {
  const std::string svg =
      draw_svg({{.title = "a<b", .x_label = "step", .lines = {{.label = "x&y", .x = {0, 1, 2}, .y = {0, 5, 10}}}}},
               {.columns = 1});
  EXPECT_THAT(svg, ContainsRegex("<path d=\" M[0-9.,]+ L[0-9.,]+ L[0-9.,]+\" fill=\"none\" stroke=\"#0072B2\""));
  EXPECT_THAT(svg, HasSubstr(">a&lt;b</text>"));
  EXPECT_THAT(svg, HasSubstr(">x&amp;y</text>"));
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"480\" height=\"300\""));
}

TEST(Svg, of_a_million_points_is_small) {
  Line line{.label = "long"};
  for (int i = 0; i < 1'000'000; ++i) {
    line.x.push_back(i);
    line.y.push_back(std::sin(i));
  }
  EXPECT_LT(draw_svg({{.lines = {line}}}, {.columns = 1}).size(), 25'000U);
}

TEST(Chart, smoothing_is_an_unbiased_exponential_mean) {
  EXPECT_THAT(smoothed({1, 2, 3}, 0), ElementsAre(1, 2, 3));
  const auto values = smoothed({4, std::nan(""), 0}, 0.5);
  EXPECT_EQ(values[0], 4);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_NEAR(values[2], 4.0 / 3, 1e-12);
}

}  // namespace
}  // namespace ddp::curves
