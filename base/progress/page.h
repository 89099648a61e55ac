// The layout of the progress page: the state of a rank, in memory that it shares with its launcher. Each word is an
// independent value that is written atomically, so a reader needs no lock. Data of several words is protected by a
// sequence number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::detail {

// Increase the version when a field changes; readers ignore pages of another version. New fields may be appended
// without a new version: they are zero in pages of older programs.
inline constexpr std::uint32_t kPageVersion = 1;
// The launcher writes it before it starts the program. With it, the program checks that the descriptor still refers to
// the page.
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

// One collective. `sequence` is 2 * index + 1 while the fields are being written, and 2 * index + 2 afterwards.
struct RingEntry {
  Word sequence;
  Word number;                           // the count within the group
  Word begin;                            // microseconds of CLOCK_MONOTONIC
  Word end;                              // likewise; open_mark(index) while the collective runs
  Word group;                            // index into the groups of the page; may include kMessageMark
  Word hash;                             // of the whole signature
  Word length;                           // of the whole signature, in bytes
  TextWords<kSignatureWords> signature;  // truncated if it does not fit
};

constexpr std::uint64_t open_mark(std::uint64_t index) {
  return std::uint64_t{1} << 63 | index;
}
constexpr bool is_open(std::uint64_t end) {
  return (end >> 63) != 0;
}

// This bit in RingEntry::group marks a message between two ranks, not a collective. Messages are numbered separately.
inline constexpr std::uint64_t kMessageMark = std::uint64_t{1} << 32;

// A process group that this rank belongs to. `used` is set last.
struct GroupEntry {
  Word used;
  Word size;
  Word rank;    // within the group
  Word leader;  // the global rank of the group's rank 0; together with the path it identifies the group
  TextWords<kGroupPathWords> path;
};

struct NameEntry {
  Word used;
  TextWords<kNameWords> text;
};

struct ValueEntry {
  Word used;
  Word bits;  // the bit pattern of a double
  TextWords<kNameWords> name;
};

// The latest stack stored by the stack signal handler: frames of the interrupted thread, innermost first.
struct StackEntry {
  Word answers;  // the count of stored stacks, times two; odd while one is being written
  Word thread;
  Word count;
  std::array<Word, kStackFrames> frames;
};

// The totals of the rank at the end of a step, for comparing ranks. `sequence` is odd while they are being written.
struct StepTotalsEntry {
  Word sequence;
  Word steps;
  Word time;                             // microseconds of CLOCK_MONOTONIC
  std::array<Word, kPhaseKinds> spent;   // as in Page, plus the time in the current phase
  std::array<Word, kPhaseKinds> waited;  // as in Page
};

// The times of the phases that the program has named, in microseconds, like `spent` and `waited` of Page.
struct NamedTimes {
  std::array<Word, kNameEntries> spent;
  std::array<Word, kNameEntries> waited;
};

struct Page {
  Word greeting;
  Word version;                         // set last when the page is initialized; 0: not initialized
  Word bytes;                           // sizeof(Page) in the program that writes it
  Word process;                         // the process ID of that program
  Word step;                            // the number of finished steps
  Word activity;                        // the time of the last change on this page, in microseconds
  Word phase;                           // phase_word()
  std::array<Word, kPhaseKinds> spent;  // microseconds in each kind of phase, without the current phase
  Word next_collective;                 // the number of collectives so far
  std::array<RingEntry, kRingEntries> ring;
  std::array<GroupEntry, kGroupEntries> groups;
  std::array<NameEntry, kNameEntries> names;  // the names of user-defined phases
  std::array<ValueEntry, kValueEntries> values;
  StackEntry stack;
  std::array<Word, kPhaseKinds> waited;  // microseconds of `spent` in which the rank waited for collectives
  StepTotalsEntry step_totals;           // of the last step, or of an earlier step within the same clock tick
  NamedTimes named;
  NamedTimes named_totals;  // named times for the same step; protected by the sequence number of step_totals
};

// Packs the kind, name and start of a phase into one word, so that they change together: 8 bits of kind, 8 bits of name
// (0: none, otherwise index + 1), 48 bits of microseconds.
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

// Microseconds of CLOCK_MONOTONIC, without a system call if the kernel supports that.
std::uint64_t page_clock() noexcept;
// The same clock at the last kernel tick, at most a few milliseconds ago. It costs a tenth of page_clock(). For
// frequent events that need no fine resolution.
std::uint64_t page_tick() noexcept;

}  // namespace ddp::detail
