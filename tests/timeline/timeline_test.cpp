#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "timeline/analysis.h"
#include "timeline/intervals.h"
#include "timeline/merge.h"
#include "timeline/range_shares.h"
#include "timeline/report.h"
#include "timeline/svg.h"
#include "timeline/trace_reader.h"

namespace ddp::timelines {
namespace {

const std::string kHead = R"({"displayTimeUnit":"ms","otherData":{"writer":"ddprun timeline 1"},"traceEvents":[)";
const std::string kTail = "\n],\"ddprun\":{\"lost_events\":{}}}\n";

// A slice in microseconds, on the main thread (tid 1) unless it is of a kind that has lanes of its own.
std::string slice(int rank, const std::string& kind, double begin, double end, const std::string& name = "",
                  const std::string& args = "") {
  const bool is_own = kind == "step" || kind == "bucket" || kind == "collective";
  std::ostringstream text;
  text << "\n{\"ph\":\"X\",\"pid\":" << rank << ",\"tid\":" << (is_own ? 1'000'000'000 : 1) << ",\"ts\":" << begin
       << ",\"dur\":" << end - begin << ",\"cat\":\"" << kind << "\",\"name\":\"" << (name.empty() ? kind : name)
       << "\"";
  if (!args.empty()) text << ",\"args\":{" << args << "}";
  text << "}";
  return text.str();
}

std::string file_of(const std::vector<std::string>& events) {
  std::string text = kHead;
  for (std::size_t i = 0; i < events.size(); ++i) text += (i == 0 ? "" : ",") + events[i];
  return text + kTail;
}

Trace read(const std::string& text) {
  std::istringstream stream(text);
  return read_trace(stream);
}

// Rank 1 computes longer, so rank 0 waits for it; a bucket is under way while backward goes on, and for 10 us behind
// it.
Trace two_ranks() {
  std::vector<std::string> events;
  for (const int rank : {0, 1}) {
    const double late = rank == 1 ? 30 : 0;
    events.push_back(slice(rank, "step", 0, 100, "step 7", "\"step\":7"));
    events.push_back(slice(rank, "forward", 0, 40 + late));
    events.push_back(slice(rank, "user", 10, 20, "attention"));
    events.push_back(slice(rank, "backward", 40 + late, 90));
    events.push_back(slice(rank, "wait", 60 + late / 1.5, 90));
    events.push_back(slice(rank, "bucket", 50 + late, 90, "bucket 0",
                           "\"index\":0,\"bytes\":4096,\"started\":" + std::to_string(52 + late)));
    events.push_back(slice(rank, "collective", 52 + late, 90, "all_reduce", "\"number\":3"));
    events.push_back(slice(rank, "optimizer", 90, 100));
  }
  return read(file_of(events));
}

TEST_CASE("Timeline: sets of moments are joined and cut") {
  const Intervals set = merged({{5, 7}, {1, 3}, {2, 4}, {7, 9}, {8, 8}});
  REQUIRE(set.size() == 2);
  CHECK(total(set) == 7);
  CHECK(total(common(set, {{3, 6}})) == 2);
  CHECK(total(common(set, {})) == 0);
}

TEST_CASE("Timeline: shares, overlap and exposed communication are those that were drawn") {
  const Trace trace = two_ranks();
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  const auto share = [&](int rank, Activity activity) {
    return analysis.ranks.at(rank).times[static_cast<std::size_t>(activity)];
  };
  CHECK(share(0, Activity::kForward) == 40'000);
  CHECK(share(0, Activity::kBackward) == 20'000);
  CHECK(share(0, Activity::kWait) == 30'000);
  CHECK(share(0, Activity::kOptimizer) == 10'000);
  CHECK(share(0, Activity::kUser) == 0);
  // 52 to 90, of which backward computes until 60.
  CHECK(analysis.overlaps.at(0).communication == 38'000);
  CHECK(analysis.overlaps.at(0).hidden == 8'000);
  REQUIRE(analysis.buckets.size() == 1);
  CHECK(analysis.buckets[0].bytes == 4096);
  CHECK(analysis.buckets[0].queued == 2'000);
  CHECK(analysis.buckets[0].exposed == (30'000 + 8'000) / 2);
}

// On the device backward computes from 10 to 50 and then waits for two buckets, under way from 20 to 40 and from 35
// to 60.
TEST_CASE("Timeline: what a device does, and how much of the communication backward hides there, is what was drawn") {
  std::vector<std::string> events = {slice(0, "step", 0, 100, "step 0", "\"step\":0"), slice(0, "forward", 0, 5)};
  const auto on_device = [&](double begin, double end, const std::string& name) {
    events.push_back(slice(0, "device", begin, end, name));
  };
  on_device(0, 10, "forward");
  on_device(10, 60, "backward");
  on_device(50, 60, "wait for gradients");
  on_device(20, 40, "bucket 0");
  on_device(35, 60, "bucket 1");
  on_device(70, 80, "optimizer");
  const Trace trace = read(file_of(events));
  const auto lines = rank_lines(trace);
  const auto shares = range_shares(trace, lines, Activity::kDevice, 8).ranks;
  REQUIRE(shares.size() == 1);
  const RangeShare& share = shares.at(0);
  CHECK(share.total == 100'000);  // of the step, and not of the ranges
  CHECK(share.busy == 70'000);
  CHECK(share.times == std::map<std::string, std::int64_t>{{"forward", 10'000},
                                                           {"backward", 40'000},
                                                           {"wait for gradients", 10'000},
                                                           {"communication", 40'000},
                                                           {"optimizer", 10'000}});
  CHECK(share.hidden == 30'000);
  const Analysis analysis = analyse(lines);
  CHECK_THAT(
      report_text(trace, lines, analysis),
      Catch::Matchers::ContainsSubstring(
          "what the devices do in the steps (hidden: of communication, while backward computes):\n  rank  busy "));
  CHECK_THAT(report_json(trace, lines, analysis), Catch::Matchers::ContainsSubstring("\"overlapped_ms\": 0.03"));
  CHECK(range_shares(two_ranks(), {}, Activity::kDevice, 8).ranks.empty());
  // A wait that lasts longer than what was computed is no more than all of the time.
  const auto waits =
      range_shares(
          read(file_of({slice(0, "device", 0, 10, "forward"), slice(0, "device", 5, 25, "wait for gradients")})), {},
          Activity::kDevice, 8)
          .ranks;
  CHECK(waits.at(0).total == 25'000);
  CHECK(waits.at(0).busy == 10'000);
}

TEST_CASE("Timeline: what a device does outside of the steps does not count, and no name is lost") {
  std::vector<std::string> events = {slice(0, "step", 100, 200, "step 1", "\"step\":1"),
                                     slice(0, "forward", 100, 105),
                                     slice(0, "device", 0, 1000, "busy"),
                                     slice(0, "device", 150, 160, "hidden"),
                                     slice(0, "device", 150, 160, "\\u202eevil"),
                                     slice(0, "device", 160, 170, " ")};
  for (int i = 0; i < 9; ++i) {
    events.push_back(slice(0, "device", 110 + i, 111 + 2 * i, "range " + std::to_string(i)));
  }
  const Trace trace = read(file_of(events));
  const auto lines = rank_lines(trace);
  const auto shares = range_shares(trace, lines, Activity::kDevice, 8);
  CHECK(shares.names.size() == 8);
  CHECK(shares.ranks.at(0).total == 100'000);
  CHECK(shares.ranks.at(0).times.at("busy") == 100'000);
  CHECK(shares.ranks.at(0).others == 9'000);  // of 0 to 4, from 110 to 119: each moment once
  const std::string text = report_text(trace, lines, analyse(lines));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("  rank  busy     \"busy\"  "));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("  \"hidden\"  "));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("  (no name)  "));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("  other ranges  hidden\n"));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring(" evil"));
  CHECK_THAT(text, !Catch::Matchers::ContainsSubstring("\u202e"));
  for (const std::size_t columns : {20U, 40U, 80U}) {
    std::istringstream narrow(report_text(trace, lines, analyse(lines), columns));
    for (std::string line; std::getline(narrow, line);) {
      INFO(line);
      CHECK(line.size() <= columns);
    }
  }
}

TEST_CASE("Timeline: own ranges within phases are told as well") {
  const Trace trace = two_ranks();
  const auto lines = rank_lines(trace);
  CHECK_THAT(report_text(trace, lines, analyse(lines)),
             Catch::Matchers::ContainsSubstring(
                 "the program's own ranges, in phases or not, of all threads:\n  rank  attention\n  0     10.0 %\n"));
  CHECK_THAT(report_json(trace, lines, analyse(lines)), Catch::Matchers::ContainsSubstring("\"attention\": 0.01"));
  CHECK_THAT(draw_svg(read(file_of({slice(0, "user", 0, 10, "\\u202e<x>")})),
                      rank_lines(read(file_of({slice(0, "user", 0, 10, "\\u202e<x>")}))),
                      analyse(rank_lines(read(file_of({slice(0, "user", 0, 10, "\\u202e<x>")}))))),
             !Catch::Matchers::ContainsSubstring("\u202e"));
}

TEST_CASE("Timeline: of a job that hangs the rank that never came decides") {
  std::vector<std::string> events;
  for (const int rank : {0, 2}) {
    events.push_back(slice(rank, "backward", 0, 100, "", "\"unfinished\":true"));
    events.push_back(slice(rank, "wait", 1, 100, "wait for all_reduce", "\"unfinished\":true"));
    events.push_back(slice(rank, "collective", 0, 100, "all_reduce", "\"number\":3,\"unfinished\":true"));
  }
  events.push_back(slice(1, "data", 0, 100, "", "\"unfinished\":true"));
  const Trace trace = read(file_of(events));
  const auto path = critical_path(rank_lines(trace), 0, 100'000, 2);
  REQUIRE(path.size() == 1);
  CHECK(path[0].rank == 1);
  CHECK(path[0].activity == Activity::kData);
}

TEST_CASE("Timeline: a rank of which the file has nothing is said to have none") {
  const Trace trace = read(file_of({slice(0, "step", 0, 100, "step 0", "\"step\":0"), slice(0, "forward", 0, 50),
                                    slice(1, "step", 0, 100, "step 0", "\"step\":0")}));
  const auto lines = rank_lines(trace);
  CHECK_THAT(report_text(trace, lines, analyse(lines)),
             Catch::Matchers::ContainsSubstring("  0     50.0 %  50.0 %\n  1     -       -\n"));
}

TEST_CASE("Timeline: a time that is none is told with its place") {
  const auto error_of = [](const std::string& bad) {
    try {
      read(file_of({slice(0, "forward", 0, 50), bad}));
    } catch (const TraceError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK(error_of(slice(0, "device", 20, 10)) == "the dur of event 2 in traceEvents is not a valid time: -10");
  CHECK(error_of(slice(0, "forward", 1e15, 2e15)) == "the ts of event 2 in traceEvents is not a valid time: 1e+15");
}

TEST_CASE("Timeline: the critical path goes on with the rank that came last") {
  const Trace trace = two_ranks();
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  REQUIRE(analysis.steps.size() == 1);
  CHECK(analysis.steps[0].number == 7);
  std::string path;
  for (const PathPart& part : analysis.steps[0].path) {
    path += std::to_string(part.rank) + " " + std::string(name_of(part.activity)) + " " +
            std::to_string((part.end - part.begin) / 1000) + "; ";
  }
  CHECK(path == "1 forward 70; 1 backward 10; 1 collective 2; 0 collective 8; 0 optimizer 10; ");
}

TEST_CASE("Timeline: a report, JSON and a picture come of it") {
  const Trace trace = two_ranks();
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  CHECK_THAT(report_text(trace, lines, analysis),
             Catch::Matchers::ContainsSubstring("1 step, from 7 to 7; a step takes 100 us"));
  CHECK_THAT(report_json(trace, lines, analysis), Catch::Matchers::ContainsSubstring("\"exposed_ms\": 0.03"));
  CHECK_THAT(draw_svg(trace, lines, analysis), Catch::Matchers::ContainsSubstring("prefers-color-scheme"));
}

TEST_CASE("Timeline: the picture has each time of its axis whole") {
  const Trace trace = two_ranks();  // ends with a time of the axis, at the right edge
  const auto lines = rank_lines(trace);
  const std::string picture = draw_svg(trace, lines, analyse(lines));
  const std::regex text("<text x=\"([0-9.]+)\"[^>]*text-anchor=\"middle\">([^<]*)</text>");
  int times = 0;
  for (std::sregex_iterator found(picture.begin(), picture.end(), text); found != std::sregex_iterator(); ++found) {
    const double half = 6 * static_cast<double>((*found)[2].length()) / 2;
    CHECK(std::stod((*found)[1]) + half <= 960);
    ++times;
  }
  CHECK(times > 3);
}

TEST_CASE("Timeline: ranges of the program's own are told by their names") {
  std::vector<std::string> events{slice(0, "step", 0, 100, "step 0", "\"step\":0"), slice(0, "forward", 0, 40),
                                  slice(0, "user", 40, 90, "augmentation"), slice(0, "user", 50, 60, "crop")};
  const Trace trace = read(file_of(events));
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  const std::string text = report_text(trace, lines, analysis);
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("rank  other   forward  augmentation  crop\n"
                                                      "  0     10.0 %  40.0 %   40.0 %        10.0 %"));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("40.0 %  0     augmentation"));
  CHECK_THAT(report_json(trace, lines, analysis), Catch::Matchers::ContainsSubstring("\"augmentation\": 0.04"));
  events.clear();
  for (int i = 0; i < 30; ++i) {
    events.push_back(slice(0, "user", 100 * i, 100 * i + 10 + i, "sample\\t" + std::to_string(i)));
  }
  const Trace many = read(file_of(events));
  CHECK_THAT(report_text(many, rank_lines(many), analyse(rank_lines(many))),
             Catch::Matchers::ContainsSubstring("own ranges\n"));
}

std::string rank_name(int rank, const std::string& name) {
  return "\n{\"ph\":\"M\",\"pid\":" + std::to_string(rank) + ",\"name\":\"process_name\",\"args\":{\"name\":\"" + name +
         "\"}}";
}

TEST_CASE("Timeline: steps before and behind a restart are told apart, though they have the same numbers") {
  CHECK(restart_of("rank 3 on host, restart 12") == 12);
  CHECK(restart_of("rank 3 on restart 12") == 0);
  CHECK(restart_of("rank 3, restart x") == 0);
  CHECK(restart_of("rank 3, restart -4") == 0);
  CHECK(restart_of("rank 3, restart 99999999999999") == 0);
  std::vector<std::string> events;
  for (const int restart : {0, 1}) {
    events.push_back(rank_name(0, restart == 0 ? "rank 0 on a" : "rank 0 on b, restart 1"));
    for (int step = 0; step < 3; ++step) {
      const double begin = 10'000 * restart + 100 * step;
      events.push_back(slice(0, "step", begin, begin + 100, "step", "\"step\":" + std::to_string(step)));
      std::string forward = slice(0, "forward", begin, begin + 100);
      forward.replace(forward.find("\"tid\":1"), 7, restart == 0 ? "\"tid\":1" : "\"tid\":2");
      events.push_back(forward);
    }
  }
  const Trace trace = read(file_of(events));
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  REQUIRE(analysis.steps.size() == 6);
  // Each process has a main thread of its own.
  CHECK(analysis.ranks.at(0).times[static_cast<std::size_t>(Activity::kForward)] == 6 * 100'000);
  for (const StepSummary& step : analysis.steps) CHECK(step.duration() == 100'000);
  CHECK_THAT(report_text(trace, lines, analysis),
             Catch::Matchers::ContainsSubstring("6 steps, from 0 to 2, of restart 1 from 0 to 2; a step takes 100 us"));
}

TEST_CASE("Timeline: without steps everything is one, and without events there is nothing") {
  const Trace trace = read(file_of({slice(0, "forward", 0, 10)}));
  const auto lines = rank_lines(trace);
  const Analysis analysis = analyse(lines);
  CHECK(analysis.steps.at(0).duration() == 10'000);
  const Trace empty = read(file_of({}));
  const auto none = rank_lines(empty);
  CHECK_THAT(report_text(empty, none, analyse(none)), Catch::Matchers::ContainsSubstring("no rank recorded anything"));
  CHECK_FALSE(draw_svg(empty, none, analyse(none)).empty());
}

TEST_CASE("Timeline: a file that is cut off anywhere is read up to there") {
  const std::string whole = file_of({slice(0, "forward", 0, 10), slice(0, "backward", 10, 20)});
  for (std::size_t length = kHead.size(); length < whole.size() - 1; ++length) {
    const Trace trace = read(whole.substr(0, length));
    CHECK(trace.is_cut_off);
    CHECK(trace.slices.size() <= 2);
  }
}

TEST_CASE("Timeline: files of others and nonsense are refused") {
  const auto refused = Catch::Matchers::ContainsSubstring("not a timeline of ddprun");
  CHECK_THROWS_WITH(read(R"({"schemaVersion":1,"traceEvents":[{"ph":"X"}]})"), refused);
  CHECK_THROWS_WITH(read(R"([{"ph":"X","pid":0,"tid":0,"ts":1,"dur":1,"name":"NEGOTIATE_ALLREDUCE"}])"), refused);
  CHECK_THROWS_WITH(read(R"({"otherData":{"writer":"somebody"},"traceEvents":[]})"), refused);
  CHECK_THROWS_WITH(read("\x7f"
                         "ELF"),
                    refused);
  CHECK_THROWS_WITH(read(""), refused);
  CHECK_THROWS_WITH(read(kHead + "{]}, nonsense"), Catch::Matchers::ContainsSubstring("not JSON at byte"));
  CHECK_THROWS_WITH(read(file_of({slice(0, "forward", 1e300, 1e301)})),
                    Catch::Matchers::ContainsSubstring("of event 1 in traceEvents is not a valid time"));
  CHECK_THROWS_WITH(read(file_of({slice(0, "forward", 0, 1, std::string(2 << 20, 'x'))})),
                    Catch::Matchers::ContainsSubstring("a string of more than"));
  CHECK_THROWS_AS(read(kHead + std::string(1'000'000, '[') + "}, nonsense"), TraceError);
  std::istringstream stream(file_of({slice(0, "forward", 0, 1), slice(0, "forward", 1, 2)}));
  CHECK_THROWS_WITH(read_trace(stream, {.events = 1}), Catch::Matchers::ContainsSubstring("more than 1 events"));
}

TEST_CASE("Timeline: files are merged on one clock") {
  const test::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& about, const std::string& event) {
    const std::string path = folder / name;
    std::ofstream(path) << R"({"displayTimeUnit":"ms","otherData":{"writer":"ddprun timeline 1",)" << about
                        << "},\"traceEvents\":[" << event
                        << "\n],\"ddprun\":{\"lost_events\":{\"1\":4},\"clock_error_us\":{\"" << name << "\":12" << name
                        << "}}}\n";
    return path;
  };
  const std::string first = write("0", R"("boot":"b","steady_ns":1000000,"wall_ns":5)", slice(0, "forward", 10, 20));
  const std::string same_host = write("1", R"("boot":"b","steady_ns":3000000,"wall_ns":77)",
                                      slice(1, "bucket", 10, 20, "bucket 0", "\"started\":12"));
  const std::string other_host =
      write("2", R"("boot":"c","steady_ns":9,"wall_ns":1000005)", slice(2, "forward", 10, 20));
  const std::string out = folder / "out";
  const MergeResult result = merge_traces({first, same_host, other_host}, out);
  CHECK(result.events == 3);
  CHECK(result.by_time_of_day == std::vector<std::string>{other_host});
  std::ifstream file(out);
  const Trace trace = read_trace(file);
  REQUIRE(trace.slices.size() == 3);
  CHECK(trace.slices[0].begin == 10'000);
  CHECK(trace.slices[1].begin == 2'010'000);
  CHECK(trace.slices[1].started == 2'012'000);
  CHECK(trace.slices[2].begin == 1'010'000);
  CHECK(trace.lost == 3 * 4);
  CHECK(trace.clock_error == 122'000);
  const auto lines = rank_lines(trace);
  CHECK_THAT(report_text(trace, lines, analyse(lines)),
             Catch::Matchers::ContainsSubstring("; clocks of different hosts agree within 122 us"));
  CHECK_THROWS_WITH(merge_traces({first, same_host, first}, out),
                    Catch::Matchers::ContainsSubstring("it is given twice"));
  CHECK_THROWS_WITH(merge_traces({first, folder / "./1", same_host}, out),
                    Catch::Matchers::ContainsSubstring("it is the same file as"));
  const std::string later = write("4", R"("boot":"c","steady_ns":9,"wall_ns":1000005)",
                                  rank_name(0, "rank 0 on other, restart 1") + "," + slice(0, "forward", 10, 20));
  CHECK(merge_traces({first, later}, out).events == 2);
  const std::string twice = write("3", R"("boot":"b","steady_ns":0,"wall_ns":0)", slice(0, "forward", 1, 2));
  CHECK_THROWS_WITH(merge_traces({first, twice}, out), Catch::Matchers::ContainsSubstring("rank 0 is in"));
  CHECK_THROWS_WITH(merge_traces({first}, first), Catch::Matchers::ContainsSubstring("one of the files"));
  CHECK_THROWS_WITH(merge_traces({folder / "none"}, out), Catch::Matchers::ContainsSubstring("cannot be read"));
}

}  // namespace
}  // namespace ddp::timelines
