// Reads a progress page that another process may be writing: values that were whole at one moment. The page is that
// process's memory, so nothing in it is believed that could lead out of it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/base/progress.h>

#include "base/progress/page.h"

namespace ddp::detail {

struct CollectiveRecord {
  std::uint64_t index = 0;   // among all of the rank's
  std::uint64_t number = 0;  // in its group, the same on all ranks
  std::uint32_t group = 0;   // index into `groups`
  std::string signature{};
  std::uint64_t hash = 0;   // of the whole signature where it was cut off
  std::uint64_t begin = 0;  // microseconds of page_clock()
  std::optional<std::uint64_t> end{};
  bool is_message = false;  // between two ranks: `number` counts this rank's messages in the group

  bool is_open() const { return !end.has_value(); }
  bool calls_the_same(const CollectiveRecord& other) const {
    return signature == other.signature && hash == other.hash;
  }
};

struct GroupRecord {
  std::string path{};  // below the job's group: "" or "subgroup1/"
  int rank = 0;        // in it
  int size = 0;
  int leader = 0;  // the rank in the job of its rank 0

  bool is_same(const GroupRecord& other) const { return path == other.path && leader == other.leader; }
};

struct ProgressSnapshot {
  int process = 0;
  std::uint64_t step = 0;
  progress::Phase phase = progress::Phase::kStart;
  std::string phase_name = "start";
  std::uint64_t phase_since = 0;                                   // microseconds of page_clock()
  std::uint64_t activity = 0;                                      // when anything changed last
  std::vector<std::pair<progress::Phase, std::uint64_t>> spent{};  // microseconds in each phase so far
  std::map<std::string, std::uint64_t> named{};                    // of the kind kUser: by name, of the first 24
  std::vector<std::pair<std::string, double>> values{};
  std::vector<GroupRecord> groups{};
  std::uint64_t collectives_begun = 0;
  std::vector<CollectiveRecord> collectives{};  // at most kRingEntries, oldest first
};

// Of a phase that the program has named; microseconds.
struct NamedTime {
  std::uint64_t spent = 0;
  std::uint64_t waited = 0;  // of that, for other ranks
};

// What a rank had done when a step ended, since it began; microseconds.
struct StepTotals {
  int process = 0;
  std::uint64_t steps = 0;
  std::uint64_t time = 0;                           // of page_clock()
  std::array<std::uint64_t, kPhaseKinds> spent{};   // by the number of the phase
  std::array<std::uint64_t, kPhaseKinds> waited{};  // of that, for other ranks
  std::map<std::string, NamedTime> named{};         // of the kind kUser: by name, of the first 24
};
// Nothing before the first step, and while it is being written again and again.
std::optional<StepTotals> read_step_totals(const Page& page);

// The cost depends on `most_collectives`, how many of the last collectives are read. Nothing when no program writes the
// page, or a program with another layout does.
std::optional<ProgressSnapshot> read_page(const Page& page, std::size_t most_collectives = kRingEntries);

// In the count of a stack's frames: the writer is in Python (python/ddprun/_page.py), and leaves no stacks.
inline constexpr std::uint64_t kIsPython = ~std::uint64_t{0};
// Below this path are the groups of Python's torch.distributed: their numbers are not those of the library's groups.
inline constexpr const char* kPythonGroups = "python/";
// A program in Python writes the page.
bool is_python(const Page& page);

// When anything changed in the page last, microseconds; 0 where no program writes it.
std::uint64_t last_activity(const Page& page);

// The stack that the handler of the stack signal has left when it was asked for the `answer`-th time or later, as
// addresses in that process, innermost first; nothing before.
std::optional<std::vector<std::uint64_t>> read_stack(const Page& page, std::uint64_t answer);
// How many stacks it has left.
std::uint64_t stack_answers(const Page& page);

}  // namespace ddp::detail
