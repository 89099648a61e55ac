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

#include "base/timeline/assembler.h"
#include "base/timeline/collector.h"
#include "base/timeline/recorder.h"
#include "base/timeline/ring_reader.h"
#include "base/timeline/trace_event.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

// A rank's memory and what comes of it.
struct TimelineTest {
  TimelineTest() {
    ring->greeting = kTimelineGreeting;
    ring->mode = static_cast<std::uint64_t>(RecordingMode::kOn);
    recorder = std::make_unique<Recorder>(*ring);
    reader = std::make_unique<RingReader>(*ring);
  }
  void read() {
    reader->read([&](std::size_t lane, std::uint64_t position, auto words) { assembler.take(lane, position, words); });
    assembler.settle();
  }
  std::vector<TraceEvent> slices(const std::string& name = "") const {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : events) {
      if (event.form == TraceEvent::Form::kSlice && (name.empty() || event.name == name)) found.push_back(event);
    }
    return found;
  }
  TraceEvent only(const std::string& name) const {
    const auto found = slices(name);
    REQUIRE(found.size() == 1);
    return found.front();
  }
  std::unique_ptr<TimelineRing> ring = std::make_unique<TimelineRing>();
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<RingReader> reader;
  std::vector<TraceEvent> events;
  Assembler assembler{[this](TraceEvent event) { events.push_back(std::move(event)); }};
};

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
  std::array<std::uint64_t, kMostWords> words{};
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

TEST_CASE_METHOD(TimelineTest, "Timeline: a step of DistributedDataParallel lasts until the next one's first phase") {
  for (int step = 0; step < 2; ++step) {
    recorder->end(recorder->begin(EventKind::kForward, "forward"));
    recorder->end(recorder->begin(EventKind::kBackward, "backward"));
    recorder->step(static_cast<std::uint64_t>(step), /*is_told=*/false);
    recorder->end(recorder->begin(EventKind::kOptimizer, "optimizer"));
  }
  read();
  CHECK(only("step 0").begin == slices("forward")[0].begin);
  CHECK(only("step 0").end == slices("forward")[1].begin);
  CHECK(slices("step 1").empty());
  recorder->end(recorder->begin(EventKind::kForward, "forward"));
  read();
  CHECK(only("step 1").begin == only("step 0").end);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a step that the program counts ends where it says so") {
  recorder->end(recorder->begin(EventKind::kForward, "forward"));
  recorder->step(4, /*is_told=*/true);
  read();
  CHECK(only("step 4").end >= only("forward").end);
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

TEST_CASE_METHOD(TimelineTest, "Timeline: steps switch recording on and off") {
  ring->mode = static_cast<std::uint64_t>(RecordingMode::kSteps);
  ring->first = 2;
  ring->last = 4;
  recorder = std::make_unique<Recorder>(*ring);
  std::string seen;
  for (std::uint64_t step = 0; step < 6; ++step) {
    seen += recorder->is_on() ? '1' : '0';
    recorder->step(step, true);
  }
  CHECK(seen == "001100");
}

// What a program with DistributedDataParallel does in a step; `parts` of forward, backward and optimizer.
void run_step(Recorder& recorder, std::uint64_t number, const std::string& parts = "fbso") {
  for (const char part : parts) {
    const EventKind kind = part == 'f'   ? EventKind::kForward
                           : part == 'b' ? EventKind::kBackward
                                         : EventKind::kOptimizer;
    if (part == 's') {
      recorder.step(number, /*is_told=*/false);
    } else if (recorder.is_on()) {
      recorder.end(recorder.begin(kind, category_of(kind)));
    }
  }
}

void plan(TimelineRing& ring, RecordingMode mode, std::uint64_t first = 0, std::uint64_t last = 0) {
  set_plan(ring, {.mode = mode, .first = first, .last = last}, /*is_running=*/true);
}

// "0 2": the numbers of the steps among them.
std::string steps_of(const std::vector<TraceEvent>& slices) {
  std::string numbers;
  for (const TraceEvent& slice : slices) {
    if (slice.is_step) numbers += (numbers.empty() ? "" : " ") + std::to_string(slice.number.value_or(0));
  }
  return numbers;
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a step that had begun before it was recorded is none, wherever that was") {
  const std::size_t begin = GENERATE(0U, 1U, 2U, 3U, 4U);  // before this part of step 1
  const std::string parts = "fbso";
  plan(*ring, RecordingMode::kOff);
  run_step(*recorder, 0);
  run_step(*recorder, 1, parts.substr(0, begin));
  plan(*ring, RecordingMode::kOn);
  run_step(*recorder, 1, parts.substr(begin));
  for (std::uint64_t step = 2; step < 6; ++step) run_step(*recorder, step);
  read();
  assembler.finish(timeline_clock());
  const bool is_seen = begin < 3;  // else step 1 had ended, and where is not known
  CHECK(steps_of(slices()) == (is_seen ? "2 3 4" : "3 4"));
  const TraceEvent first = slices(is_seen ? "step 2" : "step 3").front();
  int forwards = 0;
  for (const TraceEvent& forward : slices("forward")) forwards += forward.begin == first.begin ? 1 : 0;
  CHECK(forwards == 1);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a step that is switched off and on again is none") {
  run_step(*recorder, 0);
  run_step(*recorder, 1, "f");
  plan(*ring, RecordingMode::kOff);
  read();
  assembler.finish(timeline_clock());
  plan(*ring, RecordingMode::kOn);
  run_step(*recorder, 1, "bso");
  run_step(*recorder, 2);
  run_step(*recorder, 3);
  read();
  CHECK(steps_of(slices()) == "0 2");
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a step whose end is not known is none") {
  const std::size_t end = GENERATE(1U, 2U, 3U, 4U);  // before this part of step 2
  run_step(*recorder, 0);
  run_step(*recorder, 1);
  run_step(*recorder, 2, std::string("fbso").substr(0, end));
  read();
  assembler.finish(timeline_clock());
  CHECK(steps_of(slices()) == "0 1");
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what comes before the first step belongs to none") {
  recorder->end(recorder->begin(EventKind::kCollective, "comparison of parameters"));
  recorder->end(recorder->begin(EventKind::kUser, "preparation"));
  run_step(*recorder, 0);
  run_step(*recorder, 1);
  read();
  CHECK(only("step 0").begin == slices("forward").front().begin);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: the end of a step that had one already is exact then") {
  run_step(*recorder, 0, "fbs");
  recorder->begin(EventKind::kOptimizer, "optimizer");
  recorder->confirm_step();
  for (std::uint64_t step = 1; step < 3; ++step) {
    recorder->end(recorder->begin(EventKind::kForward, "forward"));
    recorder->step(step, /*is_told=*/true);
  }
  read();
  CHECK(steps_of(slices()) == "0 1 2");
  CHECK(only("step 0").end <= only("step 1").begin);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: the lane of steps has a name where the first one began before") {
  plan(*ring, RecordingMode::kOff);
  recorder->step(0, /*is_told=*/true);
  plan(*ring, RecordingMode::kOn);
  recorder->step(1, /*is_told=*/true);
  recorder->step(2, /*is_told=*/true);
  read();
  REQUIRE(steps_of(slices()) == "2");
  int names = 0;
  for (const TraceEvent& event : events) {
    names += event.form == TraceEvent::Form::kLaneName && event.lane == only("step 2").lane ? 1 : 0;
  }
  CHECK(names == 1);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what a lane is called is told once") {
  for (std::uint64_t step = 0; step < 5; ++step) {
    run_step(*recorder, step);
    read();
    assembler.finish(timeline_clock());
  }
  std::map<std::uint64_t, int> names;
  for (const TraceEvent& event : events) names[event.lane] += event.form == TraceEvent::Form::kLaneName ? 1 : 0;
  CHECK(names[kStepsLane] == 1);
  for (const auto& [lane, count] : names) CHECK(count <= 1);
}

TEST_CASE_METHOD(TimelineTest, "Timeline: chosen steps last from first phase to first phase, the last one too") {
  ring->mode = static_cast<std::uint64_t>(RecordingMode::kSteps);
  ring->first = 2;
  ring->last = 4;
  recorder = std::make_unique<Recorder>(*ring);
  for (std::uint64_t step = 0; step < 6; ++step) {
    run_step(*recorder, step);
    if (step == 4) read();
  }
  CHECK_FALSE(recorder->is_on());
  CHECK(steps_of(slices()) == "2 3");
  CHECK(only("step 2").begin == slices("forward").front().begin);
  CHECK(only("step 2").end == slices("forward").back().begin);
  CHECK(only("step 3").end > slices("optimizer").back().end);
  CHECK(slices("forward").size() == 2);
  CHECK(slices("optimizer").size() == 3);  // that of step 1 as well, which is in no step
  CHECK(slices("optimizer")[0].end < only("step 2").begin);
  read();
  assembler.finish(timeline_clock());
  CHECK(steps_of(slices()) == "2 3");
}

TEST_CASE_METHOD(TimelineTest, "Timeline: what follows the last chosen step may be evaluation, or another plan") {
  ring->mode = static_cast<std::uint64_t>(RecordingMode::kSteps);
  ring->last = 2;
  recorder = std::make_unique<Recorder>(*ring);
  run_step(*recorder, 0);
  run_step(*recorder, 1);
  SECTION("evaluation") {
    CHECK(recorder->begin(EventKind::kEvaluation, "evaluation") == 0);
    CHECK_FALSE(recorder->is_on());
    read();
    CHECK(steps_of(slices()) == "0");
  }
  SECTION("everything") {
    plan(*ring, RecordingMode::kOn);
    run_step(*recorder, 2);
    run_step(*recorder, 3);
    run_step(*recorder, 4);
    read();
    CHECK(steps_of(slices()) == "0 1 3");  // step 2 was not asked for when it began
  }
}

TEST_CASE_METHOD(TimelineTest, "Timeline: a program that begins to record says where a step begins") {
  plan(*ring, RecordingMode::kOff);
  run_step(*recorder, 0);
  for (std::uint64_t step = 1; step < 7; step += 3) {
    plan(*ring, RecordingMode::kOn);
    recorder->begin_step();
    run_step(*recorder, step);
    run_step(*recorder, step + 1);
    plan(*ring, RecordingMode::kOff);
    run_step(*recorder, step + 2);
  }
  read();
  assembler.finish(timeline_clock());
  CHECK(steps_of(slices()) == "1 4");
  CHECK(only("step 1").end < only("step 4").begin);
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
