// From events to the numbers and lines of a picture.

#include <cmath>
#include <limits>
#include <regex>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <ddprun/monitor/summary_writer.h>

#include "monitor/curves/axis.h"
#include "monitor/curves/scalars.h"
#include "monitor/curves/svg.h"
#include "monitor/event.h"
#include "monitor/wire/protobuf.h"
#include "tests/monitor/event_files.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::curves {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::Message;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::SizeIs;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinULP;
using test::ElementsAre;

std::vector<double> values_of(const Curve& curve) {
  std::vector<double> values;
  for (const Point& point : curve) values.push_back(point.value);
  return values;
}

TEST_CASE("Scalars: come from every folder below as runs") {
  const test::TemporaryFolder folder;
  {
    SummaryWriter writer(folder.path());
    writer.add_scalar("loss", 1, 5);
    writer.add_scalar("loss", 0.5, 6);
    writer.add_scalars("both", {{"a", 2.0}}, 1);
    writer.add_text("note", "no curve");
  }
  const Runs found = read_runs(folder.path());
  CHECK_THAT(found.problems, IsEmpty());
  REQUIRE_THAT(found.runs, SizeIs(2));
  CHECK(found.runs[0].name == ".");
  CHECK_THAT(values_of(found.runs[0].curves.at("loss")), ElementsAre(1, 0.5));
  CHECK(found.runs[0].curves.at("loss")[1].step == 6);
  CHECK(found.runs[0].curves.at("loss")[1].wall_time > 1e9);
  CHECK(found.runs[1].name == "both_a");
}

TEST_CASE("Scalars: of a resumed run replace the later steps") {
  const test::TemporaryFolder folder;
  for (int64_t step = 0; step < 10; ++step) SummaryWriter(folder.path()).add_scalar("loss", 1, step);
  SummaryWriter(folder.path(), {.purge_step = 4}).add_scalar("loss", 2, 4);
  CHECK_THAT(values_of(read_runs(folder.path()).runs.at(0).curves.at("loss")), ElementsAre(1, 1, 1, 1, 2));
}

TEST_CASE("Scalars: are read in TensorFlow's form too") {
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
  CHECK_THAT(values_of(run.curves.at("loss")), ElementsAre(0.5, 0.25, 8));
}

// A summary value with this tensor and, where `plugin` is not empty, this plugin's content.
std::string event_with(const wire::MessageWriter& tensor, std::string_view plugin = "", std::string_view content = "") {
  using wire::MessageWriter;
  MessageWriter value;
  value.bytes(1, "tag").bytes(8, tensor.str());
  if (!plugin.empty()) {
    const std::string data = MessageWriter().bytes(1, plugin).bytes(2, content).str();
    value.bytes(9, MessageWriter().bytes(1, data).str());
  }
  return MessageWriter().integer(2, 3).bytes(5, MessageWriter().bytes(1, value.str()).str()).str();
}

TEST_CASE("Scalars: are read from tensors of every real dtype") {
  using wire::MessageWriter;
  using namespace std::string_view_literals;
  enum : int64_t { kInt32 = 3, kUint8 = 4, kInt16 = 5, kInt8 = 6, kComplex64 = 8, kInt64 = 9, kBool = 10 };
  enum : int64_t { kBfloat16 = 14, kUint16 = 17, kHalf = 19, kUint32 = 22, kUint64 = 23 };
  const auto tensor = [](int64_t dtype) { return MessageWriter().integer(1, dtype); };
  curves::Run run;
  const auto value = [&](const MessageWriter& of) {
    run.curves.clear();
    add_event(event_with(of), run);
    return run.curves.empty() ? std::vector<double>() : values_of(run.curves.at("tag"));
  };
  using Values = std::vector<double>;
  // The numbers of TensorFlow's make_tensor_proto().
  CHECK(value(tensor(kHalf).bytes(13, "\x80\x70")) == Values{0.5});  // 0x3800
  CHECK(value(tensor(kHalf).integer(13, 0x3555)) == Values{0.333251953125});
  CHECK(value(tensor(kHalf).bytes(4, "\x01\x80")) == Values{-std::ldexp(1.0, -24)});
  CHECK(value(tensor(kHalf).bytes(4, "\xff\x7b")) == Values{65504});
  CHECK(value(tensor(kHalf).bytes(4, "\x00\xfc"sv)) == Values{-std::numeric_limits<double>::infinity()});
  CHECK(std::isnan(value(tensor(kHalf).bytes(4, "\x00\x7e"sv)).at(0)));
  CHECK(value(tensor(kBfloat16).bytes(4, "\x80\x3f")) == Values{1});
  CHECK(value(tensor(kBfloat16).integer(13, 0xC2F7)) == Values{-123.5});
  CHECK(value(tensor(kInt32).integer(7, -5)) == Values{-5});
  CHECK(value(tensor(kInt16).bytes(4, "\xfe\xff")) == Values{-2});
  CHECK(value(tensor(kInt8).bytes(4, "\x80")) == Values{-128});
  CHECK(value(tensor(kUint8).bytes(4, "\x80")) == Values{128});
  CHECK(value(tensor(kUint16).integer(7, 65535)) == Values{65535});
  CHECK(value(tensor(kInt64).integer(10, int64_t{-1} << 40)) == Values{-std::ldexp(1.0, 40)});
  CHECK(value(tensor(kBool).integer(11, 1)) == Values{1});
  CHECK(value(tensor(kUint32).bytes(4, "\xff\xff\xff\xff")) == Values{4294967295.0});
  CHECK(value(tensor(kUint64).bytes(4, std::string(8, '\xff'))) == Values{std::ldexp(1.0, 64)});
  INFO("several elements, or none, are not a scalar");
  CHECK_THAT(value(tensor(kHalf).bytes(4, "\x00\x3c\x00\x3c"sv)), IsEmpty());
  CHECK_THAT(value(tensor(kHalf).bytes(13, "\x80\x70\x80\x70")), IsEmpty());
  CHECK_THAT(value(tensor(kHalf).integer(13, 0x3800).integer(13, 0x3800)), IsEmpty());
  CHECK_THAT(value(tensor(kHalf)), IsEmpty());
  CHECK_THAT(value(tensor(kComplex64).bytes(4, std::string(8, '\0'))), IsEmpty());
  CHECK_THAT(value(MessageWriter().bytes(4, "\x00\x3c"sv)), IsEmpty());
}

TEST_CASE("Scalars: the HParams page names its metrics, and its own tensors are not scalars") {
  const test::TemporaryFolder folder;
  SummaryWriter(folder / "a").add_hparams({{"lr", 0.5}}, {{"dice", 0.75}, {"loss", 0.25}});
  const Runs found = read_runs(folder.path());
  CHECK_THAT(found.metrics, ElementsAre("dice", "loss"));
  CHECK_THAT(values_of(found.runs.at(0).curves.at("dice")), ElementsAre(0.75));
  // TensorFlow's have a tensor of one 0.
  using wire::MessageWriter;
  curves::Run run;
  add_event(event_with(MessageWriter().integer(1, 1).real32(5, 0), "hparams", "\xFF no message"), run);
  CHECK(run.curves.empty());
  add_event(event_with(MessageWriter().integer(1, 1).real32(5, 0), "scalars"), run);
  CHECK_THAT(values_of(run.curves.at("tag")), ElementsAre(0));
}

TEST_CASE("Scalars: before the damage are kept and the damage is told") {
  const test::TemporaryFolder folder;
  std::string content;
  wire::append_record(content, encode_scalar({.step = 1}, "a", 1));
  wire::append_record(content, "\xFF\xFF");
  test::write_file(folder.path() / "events.out.tfevents.1", content);
  const Runs found = read_runs(folder.path());
  CHECK_THAT(values_of(found.runs.at(0).curves.at("a")), ElementsAre(1));
  CHECK_THAT(found.problems, ElementsAre(ContainsSubstring("events.out.tfevents.1: not a protobuf message")));
}

TEST_CASE("Scalars: a folder without event files is named") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_MATCHES(read_runs(folder.path()), std::runtime_error,
                       MessageMatches(ContainsSubstring(folder.path().string() + ": no event file")));
}

TEST_CASE("Scalars: a path that does not exist is called so") {
  const test::TemporaryFolder folder;
  for (const char* name : {"nowhere", "nowhere/run.tfevents"}) {
    const fs::path path = folder.path() / name;
    CHECK_THROWS_MATCHES(read_runs(path), std::runtime_error, Message(path.string() + ": no such file or folder"));
  }
}

TEST_CASE("Axis: has round numbers within the range") {
  CHECK_THAT(make_axis(0, 10).ticks, ElementsAre(0, 2, 4, 6, 8, 10));
  CHECK_THAT(make_axis(-0.3, 0.26).ticks,
             ElementsAre(WithinAbs(-0.2, 1e-12), WithinAbs(0, 1e-12), WithinAbs(0.2, 1e-12)));
  const Axis roomy = make_axis(0, 10, {.margin = 0.05});
  CHECK(roomy.begin == -0.5);
  CHECK(roomy.end == 10.5);
  CHECK_THAT(roomy.ticks, ElementsAre(0, 5, 10));
}

TEST_CASE("Axis: of a single value has the size of that value") {
  const Axis flat = make_axis(3, 3);
  CHECK(flat.begin == 1.5);
  CHECK(flat.end == 4.5);
  CHECK_THAT(flat.place(3), WithinAbs(0.5, 1e-12));
  const Axis zero = make_axis(0, 0);
  CHECK(zero.begin == -1);
  CHECK(zero.end == 1);
  INFO("small numbers are numbers too");
  CHECK_THAT(make_axis(1e-20, 1e-20).end, WithinULP(1.5e-20, 4));
}

TEST_CASE("Axis: of steps has whole numbers") {
  CHECK_THAT(make_axis(1, 3, {.ticks = 10, .whole = true}).ticks, ElementsAre(1, 2, 3));
  const Axis one = make_axis(0, 0, {.whole = true});
  CHECK_THAT(one.ticks, ElementsAre(0));
  CHECK(one.place(0) == 0.5);
}

TEST_CASE("Axis: of any finite numbers ends") {
  for (const double least : {-1e308, -1.0, 0.0, 1e-310, 1.0, 1e17}) {
    for (const double width : {0.0, 1e-320, 1e-17, 1.0, 1e300}) {
      for (const bool whole : {false, true}) {
        const Axis axis = make_axis(least, least + width, {.margin = 0.05, .whole = whole});
        CHECK(axis.ticks.size() <= 101U);
        INFO(least << " + " << width);
        CHECK(std::isfinite(axis.place(least)));
      }
    }
  }
}

TEST_CASE("Axis: labels are short and differ") {
  CHECK(tick_label(0.05) == "0.05");
  CHECK(tick_label(20000) == "20k");
  CHECK(tick_label(2.5e6) == "2.5M");
  CHECK(tick_label(1e12) == "1e+12");
  CHECK_THAT(tick_labels(make_axis(0, 10)), ElementsAre("0", "2", "4", "6", "8", "10"));
  CHECK_THAT(tick_labels({.begin = 1, .end = 2, .ticks = {1.000001, 1.000002}}), ElementsAre("1.000001", "1.000002"));
}

TEST_CASE("Svg: has a line through the points of each run and escaped texts") {
  const std::string svg =
      draw_svg({{.title = "a<b", .x_label = "step", .lines = {{.label = "x&y", .x = {0, 1, 2}, .y = {0, 5, 10}}}}},
               {.columns = 1});
  CHECK(std::regex_search(svg,
                          std::regex("<path d=\" M[0-9.,]+ L[0-9.,]+ L[0-9.,]+\" fill=\"none\" stroke=\"#0072B2\"")));
  CHECK_THAT(svg, ContainsSubstring(">a&lt;b</text>"));
  CHECK_THAT(svg, ContainsSubstring(">x&amp;y</text>"));
  CHECK_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"480\" height=\"300\""));
}

TEST_CASE("Svg: of a million points is small") {
  Line line{.label = "long"};
  for (int i = 0; i < 1'000'000; ++i) {
    line.x.push_back(i);
    line.y.push_back(std::sin(i));
  }
  CHECK(draw_svg({{.lines = {line}}}, {.columns = 1}).size() < 25'000U);
}

TEST_CASE("Chart: smoothing is an unbiased exponential mean") {
  CHECK_THAT(smoothed({1, 2, 3}, 0), ElementsAre(1, 2, 3));
  const auto values = smoothed({4, std::nan(""), 0}, 0.5);
  CHECK(values[0] == 4);
  CHECK(std::isnan(values[1]));
  CHECK_THAT(values[2], WithinAbs(4.0 / 3, 1e-12));
}

}  // namespace
}  // namespace ddp::curves
