// Where a rank is, in memory that it shares with its launcher: the layout. Every word has one meaning and is written
// whole, so a reader needs no lock; what takes several words has a sequence number around it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::detail {

// Changing a field requires a new version; pages of another version are not read. Fields added after the last one
// are zero in pages of older programs.
inline constexpr std::uint32_t kPageVersion = 1;
// The launcher writes it before it starts the program, which then knows that the descriptor is still the one it was
// given.
inline constexpr std::uint64_t kPageGreeting = 0x6567615072706464;  // "ddprPage"

inline constexpr std::size_t kRingEntries = 1000;
inline constexpr std::size_t kSignatureWords = 14;
inline constexpr std::size_t kGroupEntries = 32;
inline constexpr std::size_t kGroupPathWords = 8;
inline constexpr std::size_t kNameEntries = 24;
inline constexpr std::size_t kNameWords = 4;
inline constexpr std::size_t kValueEntries = 8;
inline constexpr std::size_t kStackFrames = 64;
inline constexpr std::size_t kPhaseKinds = 16;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

template <std::size_t words>
using TextWords = std::array<Word, words>;

// One collective. `sequence` is 2 * index + 1 while its fields are written and 2 * index + 2 afterwards.
struct RingEntry {
  Word sequence;
  Word number;                           // the group's count
  Word begin;                            // microseconds of CLOCK_MONOTONIC
  Word end;                              // the same; while it runs, open_mark(index)
  Word group;                            // index into the page's groups, with kMessageMark
  Word hash;                             // of the whole signature
  Word length;                           // of the whole signature, in bytes
  TextWords<kSignatureWords> signature;  // what fits of it
};

constexpr std::uint64_t open_mark(std::uint64_t index) {
  return std::uint64_t{1} << 63 | index;
}
constexpr bool is_open(std::uint64_t end) {
  return (end >> 63) != 0;
}

// In a ring entry's group: between two ranks, and numbered among those, not a collective.
inline constexpr std::uint64_t kMessageMark = std::uint64_t{1} << 32;

// A process group that this rank is in. `used` is set last.
struct GroupEntry {
  Word used;
  Word size;
  Word rank;    // in it
  Word leader;  // the rank in the job of its rank 0: with the path, its name
  TextWords<kGroupPathWords> path;
};

struct NameEntry {
  Word used;
  TextWords<kNameWords> text;
};

struct ValueEntry {
  Word used;
  Word bits;  // of a double
  TextWords<kNameWords> name;
};

// Answers of the handler of the stack signal: frames of the thread that it interrupted, innermost first.
struct StackEntry {
  Word answers;  // odd while one is written
  Word thread;
  Word count;
  std::array<Word, kStackFrames> frames;
};

// What the rank had done when a step ended, for who compares ranks. `sequence` is odd while it is written.
struct StepTotalsEntry {
  Word sequence;
  Word steps;
  Word time;                             // microseconds
  std::array<Word, kPhaseKinds> spent;   // as in Page, with the phase that continues
  std::array<Word, kPhaseKinds> waited;  // as in Page
};

// Of the phases that the program has named; microseconds, as Page's `spent` and `waited`.
struct NamedTimes {
  std::array<Word, kNameEntries> spent;
  std::array<Word, kNameEntries> waited;
};

struct Page {
  Word greeting;
  Word version;                         // set last by the writer of the page; 0: none
  Word bytes;                           // of the writer's Page
  Word process;                         // its number
  Word step;                            // steps that have ended
  Word activity;                        // microseconds: when anything here changed last
  Word phase;                           // phase_word()
  std::array<Word, kPhaseKinds> spent;  // microseconds in each kind of phase, without the one that continues
  Word next_collective;                 // how many there were
  std::array<RingEntry, kRingEntries> ring;
  std::array<GroupEntry, kGroupEntries> groups;
  std::array<NameEntry, kNameEntries> names;  // of the user's own phases
  std::array<ValueEntry, kValueEntries> values;
  StackEntry stack;
  std::array<Word, kPhaseKinds> waited;  // of `spent`: microseconds in which the rank waited for collectives
  StepTotalsEntry step_totals;           // of the last step, or of one within the last tick of the clock
  NamedTimes named;
  NamedTimes named_totals;  // the same at that step, under the sequence number of step_totals
};

// Kind, name and begin of a phase change together: 8 bits, 8 bits (0: none, else an index + 1), 48 bits of
// microseconds.
constexpr std::uint64_t phase_word(unsigned kind, unsigned name, std::uint64_t since) {
  return std::uint64_t{kind} << 56 | std::uint64_t{name & 0xff} << 48 | (since & 0xffff'ffff'ffff);
}
constexpr unsigned kind_of(std::uint64_t phase) {
  return static_cast<unsigned>(phase >> 56);
}
constexpr unsigned name_of(std::uint64_t phase) {
  return static_cast<unsigned>(phase >> 48 & 0xff);
}
constexpr std::uint64_t since_of(std::uint64_t phase) {
  return phase & 0xffff'ffff'ffff;
}

// Microseconds of CLOCK_MONOTONIC, without a system call where the kernel offers that.
std::uint64_t page_clock() noexcept;
// The same as of the kernel's last tick, a few milliseconds ago at most, for a tenth of the price: for what happens
// often and is looked at in seconds.
std::uint64_t page_tick() noexcept;

}  // namespace ddp::detail
