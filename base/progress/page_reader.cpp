#include "base/progress/page_reader.h"

#include <algorithm>
#include <bit>

#include "base/memory_orders.h"
#include "base/progress/page_text.h"

namespace ddp::detail {
namespace {

// The number of attempts is limited, because a writer may have been stopped in the middle of an entry.
constexpr int kMaxReadAttempts = 3;

bool is_readable(const Page& page) {
  return page.greeting.load(kRelaxed) == kPageGreeting && page.version.load(kAcquire) == kPageVersion;
}

std::optional<CollectiveRecord> read_entry(const RingEntry& entry, std::uint64_t index) {
  const std::uint64_t wanted = 2 * index + 2;
  for (int tries = 0; tries < kMaxReadAttempts; ++tries) {
    if (entry.sequence.load(kAcquire) != wanted) continue;
    CollectiveRecord record{.index = index,
                            .number = entry.number.load(kAcquire),
                            .group = static_cast<std::uint32_t>(entry.group.load(kAcquire) % kGroupEntries),
                            .signature = load_text(entry.signature),
                            .hash = entry.hash.load(kAcquire),
                            .begin = entry.begin.load(kAcquire),
                            .is_message = (entry.group.load(kAcquire) & kMessageMark) != 0};
    const std::uint64_t end = entry.end.load(kAcquire);
    if (entry.sequence.load(kRelaxed) != wanted) return std::nullopt;  // a later collective has replaced it
    if (!is_open(end)) record.end = end;
    return record;
  }
  return std::nullopt;
}

int small_number(const Word& word) {
  return static_cast<int>(std::min<std::uint64_t>(word.load(kRelaxed), 1U << 30));
}

void read_phase(const Page& page, ProgressSnapshot& snapshot) {
  const std::uint64_t word = page.phase.load(kAcquire);
  const unsigned kind = std::min(kind_of(word), static_cast<unsigned>(progress::Phase::kUser));
  snapshot.phase = static_cast<progress::Phase>(kind);
  snapshot.phase_since = since_of(word);
  snapshot.phase_name = progress::name_of(snapshot.phase);
  if (snapshot.phase != progress::Phase::kUser) return;
  const unsigned name = name_of(word);
  if (name == 0 || name > kNameEntries || page.names[name - 1].used.load(kAcquire) == 0) return;
  snapshot.phase_name = load_text(page.names[name - 1].text);
}

}  // namespace

bool is_python(const Page& page) {
  return is_readable(page) && page.stack.count.load(kRelaxed) == kIsPython;
}

std::uint64_t last_activity(const Page& page) {
  return is_readable(page) ? page.activity.load(kRelaxed) : 0;
}

std::optional<ProgressSnapshot> read_page(const Page& page, std::size_t most_collectives) {
  if (!is_readable(page)) return std::nullopt;
  ProgressSnapshot snapshot{.process = small_number(page.process),
                            .step = page.step.load(kRelaxed),
                            .activity = page.activity.load(kRelaxed)};
  read_phase(page, snapshot);
  for (unsigned kind = 0; kind <= static_cast<unsigned>(progress::Phase::kUser); ++kind) {
    snapshot.spent.emplace_back(static_cast<progress::Phase>(kind), page.spent[kind].load(kRelaxed));
  }
  for (std::size_t name = 0; name < kNameEntries; ++name) {
    const std::uint64_t spent = page.named.spent[name].load(kRelaxed);
    if (spent > 0) snapshot.named[load_text(page.names[name].text)] += spent;
  }
  for (const ValueEntry& value : page.values) {
    if (value.used.load(kAcquire) == 0) continue;
    snapshot.values.emplace_back(load_text(value.name), std::bit_cast<double>(value.bits.load(kRelaxed)));
  }
  for (const GroupEntry& group : page.groups) {
    if (group.used.load(kAcquire) == 0) break;
    snapshot.groups.push_back({.path = load_text(group.path),
                               .rank = small_number(group.rank),
                               .size = small_number(group.size),
                               .leader = small_number(group.leader)});
  }
  const std::uint64_t begun = page.next_collective.load(kAcquire);
  const std::uint64_t kept = std::min<std::uint64_t>({begun, kRingEntries, most_collectives});
  snapshot.collectives_begun = begun;
  for (std::uint64_t index = begun - kept; index < begun; ++index) {
    auto record = read_entry(page.ring[index % kRingEntries], index);
    if (record && record->group < snapshot.groups.size()) snapshot.collectives.push_back(std::move(*record));
  }
  return snapshot;
}

std::optional<StepTotals> read_step_totals(const Page& page) {
  if (!is_readable(page)) return std::nullopt;
  const StepTotalsEntry& entry = page.step_totals;
  for (int tries = 0; tries < kMaxReadAttempts; ++tries) {
    const std::uint64_t sequence = entry.sequence.load(kAcquire);
    if (sequence == 0) return std::nullopt;
    if (sequence % 2 != 0) continue;
    StepTotals totals{
        .process = small_number(page.process), .steps = entry.steps.load(kAcquire), .time = entry.time.load(kAcquire)};
    for (std::size_t kind = 0; kind < kPhaseKinds; ++kind) {
      totals.spent[kind] = entry.spent[kind].load(kAcquire);
      totals.waited[kind] = entry.waited[kind].load(kAcquire);
    }
    for (std::size_t name = 0; name < kNameEntries; ++name) {
      const NamedTime time{.spent = page.named_totals.spent[name].load(kAcquire),
                           .waited = page.named_totals.waited[name].load(kAcquire)};
      if (time.spent == 0 && time.waited == 0) continue;
      NamedTime& sum = totals.named[load_text(page.names[name].text)];  // a name may occur twice
      sum = {.spent = sum.spent + time.spent, .waited = sum.waited + time.waited};
    }
    if (entry.sequence.load(kRelaxed) == sequence) return totals;
  }
  return std::nullopt;
}

std::uint64_t stack_answers(const Page& page) {
  return is_readable(page) ? page.stack.answers.load(kAcquire) / 2 : 0;
}

std::optional<std::vector<std::uint64_t>> read_stack(const Page& page, std::uint64_t answer) {
  if (!is_readable(page)) return std::nullopt;
  const std::uint64_t answers = page.stack.answers.load(kAcquire);
  if (answers % 2 != 0 || answers / 2 < answer) return std::nullopt;
  const std::uint64_t count = std::min<std::uint64_t>(page.stack.count.load(kAcquire), kStackFrames);
  std::vector<std::uint64_t> frames;
  for (std::uint64_t i = 0; i < count; ++i) frames.push_back(page.stack.frames[i].load(kAcquire));
  return page.stack.answers.load(kRelaxed) == answers ? std::optional(std::move(frames)) : std::nullopt;
}

}  // namespace ddp::detail
