#include "base/timeline/collector.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <utility>

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;

// The time between two passes: short enough that a busy lane does not fill up, long enough that the cost is not
// measurable.
constexpr std::chrono::milliseconds kMinPause = 1ms;
constexpr std::chrono::milliseconds kMaxPause = 50ms;
constexpr double kHighFill = 0.25;
constexpr double kLowFill = 0.05;

}  // namespace

RingReader::RingReader(TimelineRing& ring) : ring_(ring) {
  for (std::size_t i = 0; i < kLanes; ++i) tails_[i] = ring.lanes[i].tail.load(std::memory_order_relaxed);
}

double RingReader::read(const Take& take) {
  if (ring_.version.load(std::memory_order_acquire) != kTimelineVersion) return 0;
  double most = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) most = std::max(most, read_lane(lane, take));
  return most;
}

double RingReader::read_lane(std::size_t index, const Take& take) {
  Lane& lane = ring_.lanes[index];
  // Read the state before the head: if the thread has ended, `head` then includes everything that it wrote.
  std::uint64_t state = lane.state.load(std::memory_order_acquire);
  const std::uint64_t head = lane.head.load(std::memory_order_acquire);
  std::uint64_t& tail = tails_[index];
  const std::uint64_t count = head - tail;
  if (count > kLaneWords) {
    tail = head;  // not written by a Recorder
  } else if (count > 0) {
    std::vector<std::uint64_t> words(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      words[i] = ring_.words[index][(tail + i) % kLaneWords].load(std::memory_order_relaxed);
    }
    take(index, tail, words);
    tail = head;
  }
  lane.tail.store(tail, std::memory_order_release);
  if (state == static_cast<std::uint64_t>(LaneState::kLeft)) {
    lane.state.compare_exchange_strong(state, static_cast<std::uint64_t>(LaneState::kFree));
  }
  return static_cast<double>(std::min<std::uint64_t>(count, kLaneWords)) / static_cast<double>(kLaneWords);
}

std::uint64_t RingReader::lost() const {
  std::uint64_t lost = ring_.events_without_lane.load(std::memory_order_relaxed);
  for (const Lane& lane : ring_.lanes) lost += lane.lost.load(std::memory_order_relaxed);
  return lost;
}

void set_plan(TimelineRing& ring, const RecordingPlan& plan, bool is_running) {
  const auto mode = static_cast<std::uint64_t>(plan.mode);
  const bool is_same = ring.mode.load(std::memory_order_relaxed) == mode &&
                       ring.first.load(std::memory_order_relaxed) == plan.first &&
                       ring.last.load(std::memory_order_relaxed) == plan.last;
  if (is_same && is_running) return;
  ring.first.store(plan.first, std::memory_order_relaxed);
  ring.last.store(plan.last, std::memory_order_relaxed);
  ring.mode.store(mode, std::memory_order_release);
  if (!is_running) return;  // the program checks the mode when it starts to write
  const std::uint64_t step = ring.step.load(std::memory_order_relaxed);
  const bool is_on = is_wanted(plan.mode, step, plan.first, plan.last);
  const bool was_on = ring.recording.load(std::memory_order_relaxed) != 0;
  if (is_on && !was_on) ring.starts.fetch_add(1, std::memory_order_relaxed);
  ring.recording.store(is_on ? 1 : 0, std::memory_order_release);
}

Collector::Collector(RecordSink& sink, std::function<void()> after_pass)
    : sink_(sink), after_pass_(std::move(after_pass)) {
  // The threads of the program, not this one, must handle signals.
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "ddprun-timeline");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Collector::~Collector() {
  end_all();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Collector::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Collector::add(int rank, std::string name, std::shared_ptr<TimelineRing> ring) {
  post([this, rank, name = std::move(name), ring = std::move(ring)]() mutable {
    auto reader = std::make_unique<RingReader>(*ring);
    sink_.begin_rank(rank, name);
    name_threads(rank, *ring);
    sources_.push_back({.rank = rank, .ring = std::move(ring), .reader = std::move(reader)});
  });
}

// Reports the names of threads that were registered with an earlier reader of the ring.
void Collector::name_threads(int rank, const TimelineRing& ring) {
  const std::uint64_t process = ring.process.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kLanes; ++i) {
    const Lane& lane = ring.lanes[i];
    const auto owned = static_cast<std::uint64_t>(LaneState::kOwned);
    if (lane.state.load(std::memory_order_relaxed) != owned || lane.head.load(std::memory_order_relaxed) == 0) continue;
    const std::uint64_t thread = lane.thread.load(std::memory_order_relaxed);
    std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/comm");
    std::string name;
    std::getline(file, name);
    std::array<std::uint64_t, kMaxRecordWords> words;
    const std::size_t count =
        encode({.type = RecordType::kThread, .time = 0, .number = thread, .value = process, .text = name}, words);
    sink_.take(rank, i, 0, std::span(words).first(count));
  }
}

void Collector::add_records(int rank, std::vector<std::uint64_t> words) {
  post([this, rank, words = std::move(words)] {
    constexpr std::size_t kLane = kLanes - 1;
    const auto is_meant = [&](const Source& source) { return source.rank == rank; };
    const auto source = std::find_if(sources_.begin(), sources_.end(), is_meant);
    const auto free = static_cast<std::uint64_t>(LaneState::kFree);
    if (source == sources_.end() || source->ring->lanes[kLane].state.load(std::memory_order_relaxed) != free) return;
    sink_.take(rank, kLane, 0, words);
  });
}

void Collector::pause_all(std::function<void()> then) {
  post([this, then = std::move(then)] {
    read_all();
    for (const Source& source : sources_) sink_.pause_rank(source.rank, timeline_clock());
    then();
  });
}

void Collector::end_all() {
  run_now([&] {
    read_all();
    for (const Source& source : sources_) sink_.end_rank(source.rank, timeline_clock());
    sources_.clear();
    after_pass_();
  });
}

void Collector::run_now(const std::function<void()>& task) {
  std::promise<void> done;
  post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

double Collector::read_all() {
  double most = 0;
  for (Source& source : sources_) {
    most = std::max(most, source.reader->read([&](std::size_t lane, std::uint64_t position, auto words) {
      sink_.take(source.rank, lane, position, words);
    }));
    sink_.on_pass_end(source.rank, source.reader->lost());
  }
  return most;
}

void Collector::run() {
  std::chrono::milliseconds pause = kMinPause;
  std::unique_lock lock(mutex_);
  while (!is_ending_ || !tasks_.empty()) {
    for (auto& task : std::exchange(tasks_, {})) {
      lock.unlock();
      task();
      lock.lock();
    }
    lock.unlock();
    const double used = read_all();
    after_pass_();
    lock.lock();
    if (used > kHighFill) pause = kMinPause;
    if (used < kLowFill) pause = std::min(2 * pause, kMaxPause);
    const auto is_called = [&] { return is_ending_ || !tasks_.empty(); };
    if (sources_.empty()) {
      wake_.wait(lock, is_called);
    } else {
      wake_.wait_for(lock, pause, is_called);
    }
  }
}

}  // namespace ddp::detail
