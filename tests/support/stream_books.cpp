#include "tests/support/stream_books.h"

#include <algorithm>
#include <utility>

namespace ddp::test {

std::string StreamBooks::name(Key stream) {
  return "stream " + std::to_string(stream.second) + " of device " + std::to_string(stream.first);
}

void StreamBooks::join(Clock& clock, const Clock& other) {
  for (const auto& [stream, time] : other) clock[stream] = std::max(clock[stream], time);
}

// Whatever is queued comes after what the host has waited for.
StreamBooks::Clock& StreamBooks::clock_of(Key stream) {
  Clock& clock = clocks_[stream];
  join(clock, host_);
  return clock;
}

void StreamBooks::record(void* event, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  events_[event] = clock_of(key(stream));
}

void StreamBooks::block(void* event, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  if (event != nullptr) join(clock_of(key(stream)), events_[event]);
}

void StreamBooks::forget(void* event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

void StreamBooks::host_waits_for(void* event) {
  const std::lock_guard lock(mutex_);
  if (event != nullptr) join(host_, events_[event]);
}

void StreamBooks::host_waits_for(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  join(host_, clock_of(key(stream)));
}

void StreamBooks::host_waits() {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, clock] : clocks_) join(host_, clock);
}

uint64_t StreamBooks::time_of(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  return clock_of(key(stream))[key(stream)];
}

bool StreamBooks::host_knows(c10::Stream stream, uint64_t time) {
  const std::lock_guard lock(mutex_);
  return host_[key(stream)] >= time;
}

void StreamBooks::start_over() {
  const std::lock_guard lock(mutex_);
  clocks_.clear();
  host_.clear();
  events_.clear();
  for (auto& [address, block] : blocks_) block.uses.clear();
}

void StreamBooks::follow(c10::Stream stream, c10::Stream earlier) {
  const std::lock_guard lock(mutex_);
  const Clock before = clock_of(key(earlier));
  join(clock_of(key(stream)), before);
}

void StreamBooks::allocated(void* block, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  blocks_[block] = {.stream = key(stream)};
}

void StreamBooks::keep_for(void* block, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(block); found != blocks_.end()) found->second.kept_for.insert(key(stream));
}

void StreamBooks::fault(std::string text, const void* block) {
  if (describe_) text += ": " + describe_(block);
  faults_.push_back(std::move(text));
}

void StreamBooks::freed(void* block) {
  const std::lock_guard lock(mutex_);
  const Block gone = std::move(blocks_.extract(block).mapped());
  Clock& clock = clock_of(gone.stream);
  const auto is_kept = [&](Key stream, uint64_t time) {
    if (gone.kept_for.contains(stream)) return true;
    // Or until another stream is done that waits for that use.
    return std::ranges::any_of(gone.kept_for, [&](Key kept) { return clock_of(kept)[stream] >= time; });
  };
  for (const auto& [stream, uses] : gone.uses) {
    const uint64_t time = uses.last().time;
    if (stream == gone.stream || clock[stream] >= time || is_kept(stream, time)) continue;
    fault("memory of " + name(gone.stream) + " was freed while " + uses.last().what + " on " + name(stream) +
              " still used it, no record_stream",
          block);
  }
}

void StreamBooks::used(void* block, bool writes, c10::Stream stream, const std::string& what) {
  const std::lock_guard lock(mutex_);
  const Key own = key(stream);
  Clock& clock = clock_of(own);
  const uint64_t now = ++clock[own];
  Block& used = blocks_[block];
  if (own != used.stream && used.uses.empty() && used.stream.first == own.first) {
    // New memory may still be in use by what its own stream had queued before.
    used.uses[used.stream].write = {.time = clocks_[used.stream][used.stream], .what = "its last user"};
  }
  for (const auto& [other, uses] : used.uses) {
    if (other == own) continue;
    for (const Use* use : {&uses.write, writes ? &uses.read : &uses.write}) {
      if (clock[other] >= use->time) continue;
      fault(what + " on " + name(own) + " does not wait for " + use->what + " on " + name(other), block);
      break;
    }
  }
  (writes ? used.uses[own].write : used.uses[own].read) = {.time = now, .what = what};
}

std::vector<std::string> StreamBooks::faults() {
  const std::lock_guard lock(mutex_);
  return std::exchange(faults_, {});
}

}  // namespace ddp::test
