#include "comm/core/call_log.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/progress/own_page.h"
#include "base/timeline/own_timeline.h"

namespace ddp::detail {

void CallLog::begin(uint64_t number, std::string_view signature, bool in_background) {
  const std::lock_guard lock(mutex_);
  add(number, signature, in_background);
}

uint64_t CallLog::begin_next(std::string_view signature, bool in_background) {
  const std::lock_guard lock(mutex_);
  add(next_number_, signature, in_background);
  return next_number_++;
}

void CallLog::add(uint64_t number, std::string_view signature, bool in_background) {
  Entry& entry = add(number, in_background);
  entry.call.signature.assign(signature);
  entry.text = 0;
  show(entry, Clock::now());
}

CallLog::Entry& CallLog::add(uint64_t number, bool in_background) {
  if (calls_.size() < kHistorySize) calls_.emplace_back();
  Entry& entry = calls_[begun_++ % kHistorySize];
  if (begun_ > kHistorySize && !entry.call.ended) {
    open_.insert_or_assign(entry.call.number, std::move(entry));
    if (open_.size() > kMaxOpenCalls) open_.erase(open_.begin());
    entry.text = 0;
  }
  entry.call.number = number;
  entry.call.ended = false;
  entry.in_background = in_background;
  entry.in_page = 0;
  entry.event = 0;
  return entry;
}

void CallLog::show(Entry& entry, Clock::time_point now) {
  last_ = now;
  if (!group_) return;
  const CallRecord& call = entry.call;
  const uint64_t time = microseconds_of(now);
  if (entry.in_background) own_page().begin_background(time);
  entry.in_page = own_page().begin_collective(*group_, call.number, call.signature, time, {.has_ended = call.ended});
  entry.event = begin_event(EventKind::kCollective, call.signature, call.number);
}

// The caller must hold the lock. It is usually the last entry; null if the entry is no longer kept.
CallLog::Entry* CallLog::find(uint64_t number) {
  for (uint64_t back = 1; back <= calls_.size(); ++back) {
    Entry& entry = calls_[(begun_ - back) % kHistorySize];
    if (entry.call.number == number) return &entry;
  }
  return nullptr;
}

void CallLog::end(uint64_t number, std::optional<uint64_t> waits_since) {
  const std::lock_guard lock(mutex_);
  last_ = Clock::now();
  const uint64_t now = microseconds_of(last_);
  if (group_ && waits_since) own_page().add_wait(now - std::min(*waits_since, now));
  const auto older = open_.empty() ? decltype(open_)::node_type() : open_.extract(number);
  Entry* const entry = older ? &older.mapped() : find(number);
  if (entry == nullptr) return;
  const bool was_open = !std::exchange(entry->call.ended, true);  // a call may be waited for after its end
  if (group_ && entry->in_background && was_open) own_page().end_background(now);
  if (group_) own_page().finish_collective(entry->in_page, now);
  end_event(std::exchange(entry->event, 0));
}

void CallLog::reopen(StartedCall& call, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  last_ = now;
  call.time = microseconds_of(now);
  if (Entry* const entry = find(call.number)) entry->call.ended = false;
  if (group_) own_page().reopen_collective(call.in_page, call.time);
}

uint64_t CallLog::begin_message(std::string_view signature) {
  if (!group_) return 0;
  const std::lock_guard lock(mutex_);
  return own_page().begin_collective(*group_, messages_++, signature, page_clock(), {.is_message = true});
}

void CallLog::end_message(uint64_t index, uint64_t waits_since) {
  if (!group_) return;
  const uint64_t now = page_clock();
  own_page().finish_collective(index, now);
  own_page().add_wait(now - std::min(waits_since, now));
}

void CallLog::set_compares(bool compares) {
  const std::lock_guard lock(mutex_);
  compares_ = compares;
}

RankReport CallLog::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<CallRecord> calls;
  calls.reserve(calls_.size());
  for (uint64_t back = calls_.size(); back > 0; --back) calls.push_back(calls_[(begun_ - back) % kHistorySize].call);
  return {.calls = std::move(calls),
          .since_last = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_),
          .compares = compares_};
}

std::string to_text(const RankReport& report) {
  std::ostringstream text;
  text << report.since_last.count() << (report.compares ? " compares" : "") << "\n";
  for (const CallRecord& call : report.calls) {
    text << call.number << (call.ended ? " ended " : " open ") << call.signature << "\n";
  }
  return text.str();
}

RankReport report_from(const std::string& text) {
  std::istringstream lines(text);
  int64_t milliseconds = 0;
  RankReport report;
  if (!(lines >> milliseconds))
    throw std::invalid_argument("expected a rank's report, got '" + text.substr(0, 80) + "'");
  report.since_last = std::chrono::milliseconds(milliseconds);
  std::string rest;
  std::getline(lines, rest);
  report.compares = rest == " compares";
  CallRecord call;
  for (std::string state; lines >> call.number >> state && lines.get() == ' ';) {
    call.ended = state == "ended";
    std::getline(lines, call.signature);
    report.calls.push_back(call);
  }
  return report;
}

}  // namespace ddp::detail
