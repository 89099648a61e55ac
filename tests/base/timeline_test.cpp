// What ranks record becomes events of the trace: their order, their lanes, and what is lost.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/timeline/collector.h"
#include "base/timeline/recorder.h"
#include "base/timeline/trace_event.h"
#include "tests/base/timeline_events.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

// Slices of one lane lie within each other or beside each other.
bool overlap(const std::vector<TraceEvent>& slices) {
  for (const TraceEvent& one : slices) {
    for (const TraceEvent& other : slices) {
      const bool is_partial = one.begin < other.begin && other.begin < one.end && one.end < other.end;
      if (one.lane == other.lane && is_partial) return true;
    }
  }
  return false;
}

TEST_CASE("Timeline records: what is written is read") {
  const Record record{.type = RecordType::kBegin,
                      .kind = EventKind::kBucket,
                      .time = 123'456'789'012,
                      .number = 7,
                      .value = 25 << 20,
                      .text = "bucket 7"};
  std::array<std::uint64_t, kMaxRecordWords> words{};
  const std::size_t count = encode(record, words);
  const auto decoded = decode(std::span(words).first(count));
  REQUIRE(decoded);
  CHECK(decoded->words == count);
  CHECK(decoded->record.kind == EventKind::kBucket);
  CHECK(decoded->record.time == 123'456'789'012);
  CHECK(decoded->record.number == 7);
  CHECK(decoded->record.value == 25 << 20);
  CHECK(decoded->record.text == "bucket 7");
  CHECK_FALSE(decode(std::span(words).first(count - 1)));
  words[1] |= std::uint64_t{1} << 40;  // a length beyond all
  CHECK_FALSE(decode(words));
}

TEST_CASE_METHOD(TimelineTest, "Timeline: an answer on the clock moves what comes, and no lane goes backwards") {
  assembler.set_ahead(-1'000'000'000'000);
  const std::uint64_t start = timeline_clock() + 1'000'000'000'000;
  const auto outer = recorder->begin(EventKind::kForward, "outer");
  recorder->end(recorder->begin(EventKind::kUser, "before"));
  read();
  assembler.set_ahead(-999'000'000'000);  // a second earlier than was thought
  recorder->end(recorder->begin(EventKind::kUser, "after"));
  recorder->end(outer);
  recorder->end(recorder->begin(EventKind::kData, "data"));
  read();
  CHECK_FALSE(overlap(slices()));
  CHECK(only("before").begin >= start);
  CHECK(only("after").begin >= only("before").end);
  CHECK(only("outer").end >= only("after").end);
  CHECK(only("data").begin >= only("outer").end);
  CHECK(only("data").end < start + 1'000'000'000'000 / 2);

  assembler.set_ahead(-1'000'000'000'000);
  recorder->end(recorder->begin(EventKind::kData, "later"));
  read();
  CHECK(only("later").begin >= start);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: ranges of a thread are slices that lie within each other") {
  const auto outer = recorder->begin(EventKind::kForward, "forward");
  const auto inner = recorder->begin(EventKind::kUser, "attention");
  recorder->end(inner);
  recorder->end(outer);
  read();
  CHECK(only("attention").begin >= only("forward").begin);
  CHECK(only("attention").end <= only("forward").end);
  CHECK(only("attention").lane == only("forward").lane);
  CHECK(only("forward").lane == static_cast<std::uint64_t>(::gettid()));
  CHECK(events.front().form == TraceEvent::Form::kLaneName);
  CHECK(events.front().name == "main thread");
}

TEST_CASE_METHOD(TimelineTest, "Timeline: an end that comes too late closes what is open above it") {
  const auto outer = recorder->begin(EventKind::kUser, "outer");
  const auto inner = recorder->begin(EventKind::kUser, "inner");
  recorder->end(outer);
  recorder->end(inner);
  read();
  CHECK(only("inner").end == only("outer").end);
  CHECK(assembler.damaged() == 0);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: collectives that overlap get lanes of their own") {
  const auto first = recorder->begin(EventKind::kCollective, "all_reduce", 0);
  const auto second = recorder->begin(EventKind::kCollective, "broadcast", 1);
  std::thread([&] { recorder->end(first); }).join();
  std::thread([&] { recorder->end(second); }).join();
  const auto third = recorder->begin(EventKind::kCollective, "barrier", 2);
  recorder->end(third);
  for (int i = 0; i < 3; ++i) read();
  CHECK(only("all_reduce").number == 0);
  CHECK(only("all_reduce").lane != only("broadcast").lane);
  CHECK(only("all_reduce").lane >= kStepsLane);
  CHECK(only("barrier").lane == only("all_reduce").lane);
  CHECK_FALSE(overlap(slices()));
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a bucket is ready, starts and finishes in this order") {
  const auto bucket = recorder->begin(EventKind::kBucket, "bucket 0", 0, 4096);
  recorder->mark(bucket);
  std::thread([&] { recorder->end(bucket); }).join();
  for (int i = 0; i < 2; ++i) read();
  const TraceEvent event = only("bucket 0");
  REQUIRE(event.started);
  CHECK(event.begin <= *event.started);
  CHECK(*event.started <= event.end);
  CHECK(event.bytes == 4096);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what is open at the end is there, unfinished") {
  recorder->begin(EventKind::kUser, "for ever");
  recorder->begin(EventKind::kCollective, "all_reduce");
  read();
  CHECK(slices().empty());
  assembler.finish(timeline_clock());
  CHECK(only("for ever").is_unfinished);
  CHECK(only("all_reduce").is_unfinished);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: without room events are lost and counted, and those that began end") {
  const auto outer = recorder->begin(EventKind::kUser, "outer");
  std::uint64_t refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto id = recorder->begin(EventKind::kUser, "inner");
    refused += id == 0 ? 1U : 0U;
    recorder->end(id);
  }
  recorder->end(outer);
  CHECK(refused > 0);
  CHECK(reader->lost() == refused);
  read();
  CHECK(slices("inner").size() + refused == 100'000);
  CHECK_FALSE(only("outer").is_unfinished);
  recorder->end(recorder->begin(EventKind::kUser, "afterwards"));
  read();
  CHECK(slices("afterwards").size() == 1);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: lanes of threads that have ended are used again") {
  for (std::size_t i = 0; i < 3 * kLanes; ++i) {
    std::thread([&] { recorder->end(recorder->begin(EventKind::kUser, "work")); }).join();
    read();
  }
  CHECK(slices("work").size() == 3 * kLanes);
  CHECK(reader->lost() == 0);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: more threads than lanes lose their events, and are counted") {
  std::vector<std::thread> threads;
  std::atomic<std::size_t> done{0};
  for (std::size_t i = 0; i < 2 * kLanes; ++i) {
    threads.emplace_back([&] {
      recorder->end(recorder->begin(EventKind::kUser, "work"));
      ++done;
      while (done < 2 * kLanes) std::this_thread::yield();
    });
  }
  for (auto& thread : threads) thread.join();
  read();
  CHECK(slices("work").size() == kLanes);
  CHECK(reader->lost() == kLanes);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: threads write while it is read, and nothing is torn") {
  constexpr int kThreads = 4;
  constexpr int kRanges = 20'000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> recorded{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "range of " + std::to_string(t);
      for (int i = 0; i < kRanges; ++i) {
        const auto outer = recorder->begin(EventKind::kUser, name);
        const auto inner = recorder->begin(EventKind::kCollective, "all_reduce", static_cast<std::uint64_t>(i));
        recorder->end(inner);
        recorder->end(outer);
        recorded += (outer != 0 ? 1U : 0U) + (inner != 0 ? 1U : 0U);
      }
      --running;
    });
  }
  while (running > 0) read();
  for (auto& thread : threads) thread.join();
  read();
  read();
  assembler.finish(timeline_clock());
  CHECK(assembler.damaged() == 0);
  CHECK(slices().size() == recorded);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what a process that was killed had recorded is there") {
  auto* shared = static_cast<TimelineRing*>(
      ::mmap(nullptr, sizeof(TimelineRing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(shared != MAP_FAILED);
  shared->mode = static_cast<std::uint64_t>(RecordingMode::kOn);
  const pid_t child = ::fork();
  if (child == 0) {
    Recorder own(*shared);
    own.end(own.begin(EventKind::kUser, "finished"));
    own.begin(EventKind::kUser, "unfinished");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  RingReader(*shared).read(
      [&](std::size_t lane, std::uint64_t position, auto words) { assembler.take(lane, position, words); });
  assembler.finish(timeline_clock());
  CHECK_FALSE(only("finished").is_unfinished);
  CHECK(only("unfinished").is_unfinished);
  ::munmap(shared, sizeof(TimelineRing));
}

TEST_CASE_METHOD(TimelineTest, "Timeline: hostile memory harms nobody") {
  for (auto& lane : ring->lanes) lane.head = 1 << 20;
  read();
  for (auto& lane : ring->lanes) lane.head = (1 << 20) + 1000;
  for (auto& words : ring->words) {
    for (auto& word : words) word = 0x0101'0101'0101'0101;
  }
  read();
  assembler.finish(0);
  CHECK(slices().empty());
  CHECK(assembler.damaged() > 0);
}

TEST_CASE("Timeline: names are valid JSON whatever they are") {
  CHECK(json_text("a\"b\\c\nd") == "\"a\\\"b\\\\c\\u000ad\"");
  CHECK(json_text(std::string_view("x\0y", 3)) == "\"x\\ufffdy\"");
  CHECK(json_text("Größe \xff") == "\"Größe \\ufffd\"");
}

TEST_CASE("Timeline: times are microseconds with three digits behind the point") {
  const TraceEvent event{.kind = EventKind::kForward, .lane = 5, .begin = 1'002'003, .end = 2'002'010, .name = "f"};
  CHECK(trace_json(event, 3, 0) ==
        R"({"ph":"X","pid":3,"tid":5,"ts":1002.003,"dur":1000.007,"cat":"forward","name":"f"})");
  CHECK(trace_json(event, 3, 1'002'004).find("\"ts\":-0.001,") != std::string::npos);
}

TEST_CASE_METHOD(TimelineTest,
                 "Timeline: ranges on a device have a lane for each stream, and more where they overlap") {
  constexpr std::uint64_t kSecondDevice = std::uint64_t{1} << 56;
  recorder->span("inner", 20, 30, 7);
  recorder->span("outer", 10, 100, 7);
  recorder->span("next", 100, 120, 7);
  recorder->span("copy", 15, 25, 9);
  recorder->span("bucket 0", 90, 110, 7);  // over the end of outer
  recorder->span("elsewhere", 10, 20, kSecondDevice | 7);
  read();
  CHECK(only("inner").lane == only("outer").lane);
  CHECK(only("next").lane == only("outer").lane);
  CHECK(only("copy").lane != only("outer").lane);
  CHECK(only("bucket 0").lane != only("outer").lane);
  CHECK(only("elsewhere").lane != only("outer").lane);
  CHECK_FALSE(overlap(slices()));
  std::map<std::uint64_t, std::string> names;
  for (const TraceEvent& event : events) {
    if (event.form == TraceEvent::Form::kLaneName) names[event.lane] = event.name;
  }
  CHECK(names[only("outer").lane] == "device 0, stream 1");
  CHECK(names[only("copy").lane] == "device 0, stream 2");
  CHECK(names[only("bucket 0").lane] == "device 0, stream 1 (2)");
  CHECK(names[only("elsewhere").lane] == "device 1, stream 3");
  CHECK(only("outer").kind == EventKind::kDevice);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what is open when recording is switched off ends there, and only there") {
  const std::uint64_t open = recorder->begin(EventKind::kForward, "forward");
  const std::uint64_t under_way = recorder->begin(EventKind::kCollective, "all_reduce", 3);
  read();
  assembler.finish(timeline_clock());
  CHECK(only("forward").is_unfinished);
  CHECK(only("all_reduce").is_unfinished);
  recorder->end(open);
  recorder->end(under_way);
  recorder->end(recorder->begin(EventKind::kBackward, "backward"));
  read();
  read();
  assembler.finish(timeline_clock());
  CHECK(slices().size() == 3);
  CHECK_FALSE(only("backward").is_unfinished);
}

}  // namespace
}  // namespace ddp::detail
