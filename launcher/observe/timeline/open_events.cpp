#include "launcher/observe/timeline/open_events.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/progress/own_page.h"
#include "base/timeline/layout.h"
#include "base/timeline/records.h"
#include "launcher/observe/watch/collective_text.h"

namespace launcher {
namespace {

using ddp::detail::CollectiveRecord;
using ddp::detail::EventKind;
using ddp::detail::ProgressSnapshot;
using ddp::detail::Record;
using ddp::detail::RecordType;

std::optional<ProgressSnapshot> page_of(const WatchedRank& rank) {
  return rank.page != nullptr ? ddp::detail::read_page(*rank.page) : std::nullopt;
}

class Words {
 public:
  void add(const Record& record) {
    std::array<std::uint64_t, ddp::detail::kMaxRecordWords> words;
    const std::size_t count = encode(record, words);
    words_.insert(words_.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
  }
  void begin(EventKind kind, std::uint64_t time, const std::string& name, std::uint64_t number = 0) {
    add({.type = RecordType::kBegin, .kind = kind, .time = time, .number = number, .text = name});
  }
  std::vector<std::uint64_t> take() { return std::move(words_); }

 private:
  std::vector<std::uint64_t> words_;
};

bool is_still_open(const CollectiveRecord& call, const ProgressSnapshot& now) {
  return call.is_open() && std::any_of(now.collectives.begin(), now.collectives.end(),
                                       [&](const auto& each) { return each.index == call.index && each.is_open(); });
}

std::vector<std::uint64_t> records(const ProgressSnapshot& before, const ProgressSnapshot& now, std::uint64_t begin) {
  if (before.process != now.process) return {};
  Words words;
  const bool has_phase = before.phase > ddp::progress::Phase::kOther;
  const bool is_same_phase = has_phase && before.phase_since == now.phase_since && before.phase == now.phase;
  std::vector<const CollectiveRecord*> calls;
  for (const CollectiveRecord& call : before.collectives) {
    if (is_still_open(call, now)) calls.push_back(&call);
  }
  if (!is_same_phase && calls.empty()) return {};
  const auto process = static_cast<std::uint64_t>(before.process);
  words.add({.type = RecordType::kThread, .time = begin, .number = process, .value = process, .text = "main"});
  if (is_same_phase) words.begin(ddp::detail::event_kind(before.phase), begin, before.phase_name);
  // A rank whose activity has not changed only waits for its collectives, within its phase.
  if (!calls.empty() && before.activity == now.activity) {
    words.begin(EventKind::kWait, begin + 1, "wait for " + parse_signature(calls.front()->signature).name);
  }
  for (const CollectiveRecord* call : calls) {
    words.begin(EventKind::kCollective, begin, call->signature, call->number);
  }
  return words.take();
}

}  // namespace

void OpenEvents::note(const std::vector<WatchedRank>& ranks) {
  begin_ = ddp::detail::timeline_clock();
  snapshots_.clear();
  for (const WatchedRank& rank : ranks) {
    if (auto page = page_of(rank)) snapshots_.emplace(rank.rank, std::move(*page));
  }
}

std::vector<OpenEvents::RankRecords> OpenEvents::take(const std::vector<WatchedRank>& ranks) {
  std::vector<RankRecords> all;
  const auto noted = std::exchange(snapshots_, {});
  for (const WatchedRank& rank : ranks) {
    const auto before = noted.find(rank.rank);
    const auto now = before != noted.end() ? page_of(rank) : std::nullopt;
    if (!now) continue;
    auto words = records(before->second, *now, begin_);
    if (!words.empty()) all.push_back({.rank = rank.rank, .words = std::move(words)});
  }
  return all;
}

}  // namespace launcher
