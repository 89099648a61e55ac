// What a step is on the timeline: where it begins and ends, and which are recorded.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/timeline/collector.h"
#include "base/timeline/recorder.h"
#include "base/timeline/trace_event.h"
#include "tests/base/timeline_events.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

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

}  // namespace
}  // namespace ddp::detail
