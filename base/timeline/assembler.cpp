#include "base/timeline/assembler.h"

#include <algorithm>
#include <bit>

namespace ddp::detail {
namespace {

// Limits of memory use. No real program nests more deeply or has more operations open, so whatever exceeds them is an
// error.
constexpr std::size_t kMaxDepth = 1000;
constexpr std::size_t kMaxOpenEvents = 1 << 16;
constexpr std::size_t kRecentPhases = 16;
constexpr std::size_t kRecentSpans = 256;
constexpr std::uint64_t kLanesOfKind = 1000;

std::string_view name_of_lanes(EventKind kind) {
  if (kind == EventKind::kCollective) return "collectives";
  return kind == EventKind::kBucket ? "gradient buckets" : category_of(kind);
}

}  // namespace

Assembler::Assembler(Sink sink) : sink_(std::move(sink)) {}

void Assembler::set_ahead(std::int64_t ahead) {
  if (std::exchange(ahead_, ahead) == ahead) return;
  for (ThreadState& thread : threads_) thread.least = thread.newest;
}

std::uint64_t Assembler::corrected_time(std::uint64_t time, std::uint64_t least) const {
  const auto wanted = static_cast<std::int64_t>(time - static_cast<std::uint64_t>(ahead_));
  return std::max(least, static_cast<std::uint64_t>(std::max<std::int64_t>(wanted, 0)));
}

void Assembler::take(std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) {
  if (lane >= kLanes) return;
  while (!words.empty()) {
    auto decoded = decode(words);
    if (!decoded) {
      ++damaged_;
      return;
    }
    ThreadState& thread = threads_[lane];
    Record& record = decoded->record;
    record.time = corrected_time(record.time, thread.least);
    if (record.type == RecordType::kSpan) record.number = corrected_time(record.number, thread.least);
    thread.newest = std::max(thread.newest, record.time);
    newest_ = std::max(newest_, record.time);
    take_record(lane, position, record);
    position += decoded->words;
    words = words.subspan(decoded->words);
  }
}

void Assembler::take_record(std::size_t lane, std::uint64_t position, const Record& record) {
  switch (record.type) {
    case RecordType::kBegin:
      return begin(lane, event_id(lane, position), record);
    case RecordType::kEnd:
      return end(lane, record.number, record.time);
    case RecordType::kMark:
      return mark(record.number, record.time);
    case RecordType::kStep:
      return end_step(record);
    case RecordType::kThread:
      return name_thread(lane, record);
    case RecordType::kValue:
      return sink_({.form = TraceEvent::Form::kCounter,
                    .begin = record.time,
                    .name = std::string(record.text),
                    .value = std::bit_cast<double>(record.value)});
    case RecordType::kSpan:
      return emit({.kind = EventKind::kDevice,
                   .lane = device_lane(record.value, record.time, std::max(record.time, record.number)),
                   .begin = record.time,
                   .name = std::string(record.text)},
                  record.number);
  }
}

void Assembler::begin(std::size_t lane, std::uint64_t id, const Record& record) {
  note_begin(record.kind, record.time);
  TraceEvent event{.kind = record.kind, .begin = record.time, .name = std::string(record.text)};
  if (is_within_thread(record.kind)) {
    ThreadState& thread = threads_[lane];
    event.lane = thread.number;
    if (thread.stack.size() >= kMaxDepth) {
      ++damaged_;
      return;
    }
    thread.stack.push_back({id, std::move(event)});
    return;
  }
  event.number = record.number;
  if (record.value > 0) event.bytes = record.value;
  if (operations_.size() >= kMaxOpenEvents) {
    ++damaged_;
    return;
  }
  operations_.insert_or_assign(id, std::move(event));
}

// Events nested inside this one end with it: their own ends were lost or arrive too late.
void Assembler::end(std::size_t lane, std::uint64_t id, std::uint64_t time) {
  auto& stack = threads_[lane].stack;
  const auto found = std::find_if(stack.rbegin(), stack.rend(), [&](const Open& open) { return open.id == id; });
  if (found == stack.rend()) {
    if (endings_.size() < kMaxOpenEvents) endings_.push_back({.id = id, .time = time, .pass = pass_});
    return;
  }
  for (bool is_it = false; !is_it;) {
    is_it = stack.back().id == id;
    emit(std::move(stack.back().event), time);
    stack.pop_back();
  }
}

void Assembler::mark(std::uint64_t id, std::uint64_t time) {
  if (const auto found = operations_.find(id); found != operations_.end()) {
    found->second.started = time;
  } else if (endings_.size() < kMaxOpenEvents) {
    endings_.push_back({.id = id, .time = time, .is_mark = true, .pass = pass_});
  }
}

void Assembler::resolve(const Ending& ending) {
  if (ending.is_mark) {
    if (const auto found = operations_.find(ending.id); found != operations_.end()) found->second.started = ending.time;
    return;
  }
  if (const auto found = operations_.find(ending.id); found != operations_.end()) {
    TraceEvent event = std::move(found->second);
    operations_.erase(found);
    const std::uint64_t end = std::max(event.begin, ending.time);
    event.lane = free_lane(event.kind, event.begin, end);
    emit(std::move(event), end);
    return;
  }
  if (lane_of(ending.id) >= kLanes) return;
  // The event began in another thread. It gets a separate lane, because in that thread's lane its nested events might
  // not lie within it.
  auto& stack = threads_[lane_of(ending.id)].stack;
  const auto found = std::find_if(stack.begin(), stack.end(), [&](const Open& open) { return open.id == ending.id; });
  if (found == stack.end()) return;
  TraceEvent event = std::move(found->event);
  stack.erase(found);
  const std::uint64_t end = std::max(event.begin, ending.time);
  event.lane = free_lane(event.kind, event.begin, end);
  emit(std::move(event), end);
}

// An end may be read before its start if the lane of the start was read earlier in the same pass. The start has been
// read after one more pass.
void Assembler::on_pass_end() {
  std::stable_sort(endings_.begin(), endings_.end(),
                   [](const Ending& one, const Ending& other) { return one.time < other.time; });
  for (const bool marks : {true, false}) {
    for (const Ending& ending : endings_) {
      if (ending.pass < pass_ && ending.is_mark == marks) resolve(ending);
    }
  }
  std::erase_if(endings_, [&](const Ending& ending) { return ending.pass < pass_; });
  ++pass_;
}

void Assembler::finish(std::uint64_t now) {
  on_pass_end();
  on_pass_end();
  now = corrected_time(now, newest_);
  for (ThreadState& thread : threads_) close(thread, now);
  for (auto& [id, event] : operations_) {
    event.is_unfinished = true;
    event.lane = free_lane(event.kind, event.begin, now);
    emit(std::move(event), now);
  }
  operations_.clear();
  // No further phase will determine the end of the last step.
  ended_step_.reset();
  step_begin_.reset();
}

void Assembler::close(ThreadState& thread, std::uint64_t time) {
  while (!thread.stack.empty()) {
    thread.stack.back().event.is_unfinished = true;
    emit(std::move(thread.stack.back().event), time);
    thread.stack.pop_back();
  }
}

void Assembler::name_thread(std::size_t lane, const Record& record) {
  ThreadState& thread = threads_[lane];
  close(thread, record.time);
  thread.number = record.number;
  const bool is_main = record.number == record.value;
  const std::string name = is_main ? "main thread" : "thread " + std::string(record.text);
  name_lane(record.number, name, is_main ? 1 : 2 + std::min<std::uint64_t>(named_threads_++, kLanesOfKind));
}

void Assembler::name_lane(std::uint64_t lane, const std::string& name, std::uint64_t place) {
  const auto [known, is_new] = lane_names_.try_emplace(lane, name);
  if (!is_new && std::exchange(known->second, name) == name) return;
  sink_({.form = TraceEvent::Form::kLaneName, .lane = lane, .name = name, .number = place});
}

void Assembler::emit(TraceEvent event, std::uint64_t end) {
  event.end = std::max(event.begin, end);
  sink_(std::move(event));
}

std::uint64_t Assembler::free_lane(EventKind kind, std::uint64_t begin, std::uint64_t end) {
  auto& ends = last_ends_[kind];
  auto found = std::find_if(ends.begin(), ends.end(), [&](std::uint64_t last) { return last <= begin; });
  const std::uint64_t first = kStepsLane + kLanesOfKind * (1 + static_cast<std::uint64_t>(kind));
  if (found == ends.end()) {
    const std::uint64_t lane = first + ends.size();
    const std::string name(name_of_lanes(kind));
    name_lane(lane, ends.empty() ? name : name + " " + std::to_string(ends.size() + 1), lane - kStepsLane);
    ends.push_back(end);
    return lane;
  }
  *found = end;
  return first + static_cast<std::uint64_t>(found - ends.begin());
}

// The upper bits of the stream number contain the device. Spans that overlap get another lane of the same stream, for
// example if a bucket becomes ready while the previous one is still in progress.
std::uint64_t Assembler::device_lane(std::uint64_t stream, std::uint64_t begin, std::uint64_t end) {
  constexpr int kDeviceShift = 56;
  const auto fits = [&](const DeviceLane& lane) {
    return lane.stream == stream && std::all_of(lane.spans.begin(), lane.spans.end(), [&](const auto& span) {
             const bool is_apart = span.second <= begin || end <= span.first;
             const bool is_within = span.first <= begin && end <= span.second;
             return is_apart || is_within || (begin <= span.first && span.second <= end);
           });
  };
  auto found = std::find_if(device_lanes_.begin(), device_lanes_.end(), fits);
  const std::uint64_t first = kStepsLane + kLanesOfKind * (1 + static_cast<std::uint64_t>(EventKind::kDevice));
  if (found == device_lanes_.end()) {
    if (device_lanes_.size() == kLanesOfKind) device_lanes_.pop_back();
    const auto same = std::count_if(device_lanes_.begin(), device_lanes_.end(),
                                    [&](const DeviceLane& lane) { return lane.stream == stream; });
    found = device_lanes_.insert(device_lanes_.end(), DeviceLane{.stream = stream});
    stream_numbers_.try_emplace(stream, stream_numbers_.size() + 1);
    name_lane(first + device_lanes_.size() - 1,
              "device " + std::to_string(stream >> kDeviceShift) + ", stream " +
                  std::to_string(stream_numbers_.at(stream)) + (same > 0 ? " (" + std::to_string(same + 1) + ")" : ""),
              first + device_lanes_.size() - 1 - kStepsLane);
  }
  std::erase_if(found->spans, [&](const auto& span) { return begin <= span.first && span.second <= end; });
  found->spans.emplace_back(begin, end);
  if (found->spans.size() > kRecentSpans) found->spans.pop_front();
  return first + static_cast<std::uint64_t>(found - device_lanes_.begin());
}

void Assembler::note_begin(EventKind kind, std::uint64_t time) {
  if (!step_begin_) {
    step_begin_ = time;
    has_begun_ = false;
    name_lane(kStepsLane, "steps", 0);
  }
  if (kind != EventKind::kData && kind != EventKind::kForward) return;
  // Events before the first phase of the first step belong to no step.
  if (!std::exchange(has_begun_, true)) step_begin_ = time;
  if (ended_step_ && time >= ended_step_->time) emit_step(time);
  phase_begins_.push_back(time);
  if (phase_begins_.size() > kRecentPhases) phase_begins_.pop_front();
}

// DistributedDataParallel reports the end of backward. The optimizer and everything else before the first phase of the
// next step still belong to the step. A program that counts steps itself reports the exact end.
void Assembler::end_step(const Record& record) {
  const bool is_exact = (record.value & kExactEnd) != 0;
  const bool is_cut = (record.value & kCutBegin) != 0;
  if (is_exact && is_cut) ended_step_.reset();  // recording was switched off in between
  if (ended_step_ && ended_step_->number != record.number) emit_step(ended_step_->time);
  ended_step_ = {.number = record.number, .time = record.time, .is_cut = is_cut};
  if (is_exact) return emit_step(record.time);
  const auto next = std::find_if(phase_begins_.begin(), phase_begins_.end(),
                                 [&](std::uint64_t begin) { return begin >= record.time; });
  if (next != phase_begins_.end()) emit_step(*next);
}

void Assembler::emit_step(std::uint64_t end) {
  const auto [number, time, is_cut] = *std::exchange(ended_step_, std::nullopt);
  const std::uint64_t begin = step_begin_.value_or(end);
  step_begin_ = std::max(begin, end);
  has_begun_ = true;
  if (is_cut || end <= begin) return;
  name_lane(kStepsLane, "steps", 0);
  emit(
      {.lane = kStepsLane, .begin = begin, .name = "step " + std::to_string(number), .number = number, .is_step = true},
      end);
}

}  // namespace ddp::detail
