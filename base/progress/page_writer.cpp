#include "base/progress/page_writer.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/memory_orders.h"
#include "base/progress/page_text.h"

namespace ddp::detail {
namespace {

// Finds the entry with this name or adds one; returns null if there is no room. If two threads add the same name at the
// same time, each may get its own entry; readers use the first one.
template <typename Entry, std::size_t count, typename Name>
Entry* find_or_add(std::array<Entry, count>& entries, std::atomic<std::uint32_t>& used, std::string_view name,
                   const Name& name_in) noexcept {
  for (Entry& entry : entries) {
    if (entry.used.load(std::memory_order_acquire) == 0) break;
    if (equals(name_in(entry), name)) return &entry;
  }
  const std::uint32_t index = used.fetch_add(1, kRelaxed);
  if (index >= count) return nullptr;
  store_text(name_in(entries[index]), name);
  return &entries[index];
}

// The counter of a user-defined phase; null for other phases and for user-defined phases without a name.
Word* time_of(std::array<Word, kNameEntries>& times, std::uint64_t phase) noexcept {
  const bool is_own = kind_of(phase) == static_cast<unsigned>(progress::Phase::kUser);
  const unsigned name = name_of(phase);
  return is_own && name > 0 && name <= kNameEntries ? &times[name - 1] : nullptr;
}

std::uint64_t microseconds_of(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace

std::uint64_t page_clock() noexcept {
  return microseconds_of(CLOCK_MONOTONIC);
}
std::uint64_t page_tick() noexcept {
  return microseconds_of(CLOCK_MONOTONIC_COARSE);
}

PageWriter::PageWriter(Page& page) noexcept : page_(page) {
  const std::uint64_t now = page_tick();
  page_.bytes.store(sizeof(Page), kRelaxed);
  page_.process.store(static_cast<std::uint64_t>(::getpid()), kRelaxed);
  page_.activity.store(now, kRelaxed);
  page_.phase.store(phase_word(0, 0, now), kRelaxed);
  page_.version.store(kPageVersion, std::memory_order_release);
}

unsigned PageWriter::change_phase(unsigned kind, unsigned name) noexcept {
  const std::uint64_t now = page_tick();
  // A plain load and store is enough: if two threads change the phase at the same time, only one of them is counted.
  const std::uint64_t before = page_.phase.load(kRelaxed);
  page_.phase.store(phase_word(kind, name, now), kRelease);
  Word& spent = page_.spent[kind_of(before) % kPhaseKinds];
  const std::uint64_t took = now - std::min(since_of(before), now);
  spent.store(spent.load(kRelaxed) + took, kRelaxed);
  if (Word* named = time_of(page_.named.spent, before)) named->store(named->load(kRelaxed) + took, kRelaxed);
  page_.activity.store(now, kRelaxed);
  return kind_of(before) << 8 | name_of(before);
}

unsigned PageWriter::enter_phase(progress::Phase phase) noexcept {
  return change_phase(static_cast<unsigned>(phase), 0);
}

unsigned PageWriter::enter_phase(std::string_view name) noexcept {
  constexpr auto kUser = static_cast<unsigned>(progress::Phase::kUser);
  NameEntry* const entry = find_or_add(
      page_.names, names_, name, [](NameEntry & each) -> auto& { return each.text; });
  if (entry == nullptr) return change_phase(kUser, 0);
  entry->used.store(1, std::memory_order_release);
  return change_phase(kUser, static_cast<unsigned>(entry - page_.names.data()) + 1);
}

// Writes the totals at most once per clock tick, which is cheaper. Steps that end within the same tick have the same
// time anyway.
void PageWriter::finish_step() noexcept {
  const std::uint64_t now = page_tick();
  const std::uint64_t steps = page_.step.load(kRelaxed) + 1;
  page_.step.store(steps, kRelaxed);
  page_.activity.store(now, kRelaxed);
  if (totals_time_.exchange(now, kRelaxed) != now) write_step_totals(steps, now);
}

void PageWriter::write_step_totals(std::uint64_t steps, std::uint64_t now) noexcept {
  StepTotalsEntry& totals = page_.step_totals;
  const std::uint64_t sequence = totals.sequence.load(kRelaxed) | 1;
  totals.sequence.store(sequence, kRelaxed);  // the release stores below keep it before them
  totals.steps.store(steps, kRelease);
  totals.time.store(now, kRelease);
  const std::uint64_t phase = page_.phase.load(kRelaxed);
  for (std::size_t kind = 0; kind <= static_cast<std::size_t>(progress::Phase::kUser); ++kind) {
    const std::uint64_t current_time = kind_of(phase) == kind ? now - std::min(since_of(phase), now) : 0;
    totals.spent[kind].store(page_.spent[kind].load(kRelaxed) + current_time, kRelease);
    totals.waited[kind].store(page_.waited[kind].load(kRelaxed), kRelease);
  }
  const std::size_t names = std::min<std::size_t>(names_.load(kRelaxed), kNameEntries);
  for (std::size_t name = 0; name < names; ++name) {
    const bool continues = time_of(page_.named.spent, phase) == &page_.named.spent[name];
    const std::uint64_t current_time = continues ? now - std::min(since_of(phase), now) : 0;
    page_.named_totals.spent[name].store(page_.named.spent[name].load(kRelaxed) + current_time, kRelease);
    page_.named_totals.waited[name].store(page_.named.waited[name].load(kRelaxed), kRelease);
  }
  totals.sequence.store(sequence + 1, kRelease);
}

void PageWriter::add_wait(std::uint64_t microseconds) noexcept {
  const std::uint64_t phase = page_.phase.load(kRelaxed);
  Word& waited = page_.waited[kind_of(phase) % kPhaseKinds];
  waited.store(waited.load(kRelaxed) + microseconds, kRelaxed);
  if (Word* named = time_of(page_.named.waited, phase)) named->store(named->load(kRelaxed) + microseconds, kRelaxed);
}

void PageWriter::settle_background() noexcept {
  const std::uint64_t begin = background_begin_.load(kRelaxed);
  const std::uint64_t end = background_end_.load(kRelaxed);
  if (end > begin && begin != 0) add_wait(end - begin);
  background_begin_.store(0, kRelaxed);
}

void PageWriter::set_value(std::string_view name, double number) noexcept {
  ValueEntry* const entry = find_or_add(
      page_.values, values_, name, [](ValueEntry & each) -> auto& { return each.name; });
  if (entry == nullptr) return;
  entry->bits.store(std::bit_cast<std::uint64_t>(number), kRelaxed);
  entry->used.store(1, std::memory_order_release);
}

PageGroup PageWriter::add_group(std::string_view path, int rank, int size, int leader) noexcept {
  const std::uint32_t index = groups_.fetch_add(1, kRelaxed);
  if (index >= kGroupEntries) return kGroupEntries - 1;
  GroupEntry& entry = page_.groups[index];
  store_text(entry.path, path);
  entry.size.store(static_cast<std::uint64_t>(size), kRelaxed);
  entry.rank.store(static_cast<std::uint64_t>(rank), kRelaxed);
  entry.leader.store(static_cast<std::uint64_t>(leader), kRelaxed);
  entry.used.store(1, std::memory_order_release);
  return index;
}

std::uint64_t PageWriter::begin_collective(PageGroup group, std::uint64_t number, std::string_view signature,
                                           std::uint64_t now, CollectiveFlags kind) noexcept {
  const std::uint64_t index = page_.next_collective.fetch_add(1, kRelaxed);
  RingEntry& entry = page_.ring[index % kRingEntries];
  entry.sequence.store(2 * index + 1, kRelaxed);  // the release stores below keep it before them
  entry.number.store(number, kRelease);
  entry.begin.store(now, kRelease);
  entry.end.store(kind.has_ended ? now : open_mark(index), kRelease);
  entry.group.store(kind.is_message ? group | kMessageMark : group, kRelease);
  entry.length.store(signature.size(), kRelease);
  entry.hash.store(signature.size() > capacity_of(entry.signature) ? hash_of(signature) : 0, kRelease);
  store_text(entry.signature, signature);
  entry.sequence.store(2 * index + 2, kRelease);
  page_.activity.store(now, kRelaxed);
  // The next fetch_add() waits for all pending stores. Prefetching their cache lines makes these stores fast.
  const RingEntry& next = page_.ring[(index + 1) % kRingEntries];
  __builtin_prefetch(&next, 1);
  __builtin_prefetch(&next.signature, 1);
  return index;
}

void PageWriter::reopen_collective(std::uint64_t index, std::uint64_t time) noexcept {
  RingEntry& entry = page_.ring[index % kRingEntries];
  if (entry.sequence.load(kRelaxed) != 2 * index + 2) return;
  entry.begin.store(time, kRelease);
  entry.end.store(open_mark(index), kRelease);
}

void PageWriter::finish_collective(std::uint64_t index, std::uint64_t now) noexcept {
  std::uint64_t open = open_mark(index);
  page_.ring[index % kRingEntries].end.compare_exchange_strong(open, now, kRelease, kRelaxed);
  page_.activity.store(now, kRelaxed);
}

}  // namespace ddp::detail
