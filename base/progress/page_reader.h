// Reads a progress page that another process may be writing at the same time; the returned values are consistent. The
// page is untrusted, because that process can write anything to it: all indexes and lengths are checked.
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
  std::uint64_t index = 0;   // among all collectives of the rank
  std::uint64_t number = 0;  // within its group; the same on all ranks
  std::uint32_t group = 0;   // index into `groups`
  std::string signature{};
  std::uint64_t hash = 0;   // of the whole signature if it was truncated
  std::uint64_t begin = 0;  // microseconds of page_clock()
  std::optional<std::uint64_t> end{};
  bool is_message = false;  // a message between two ranks; `number` then counts this rank's messages in the group

  bool is_open() const { return !end.has_value(); }
  bool is_same_call_as(const CollectiveRecord& other) const {
    return signature == other.signature && hash == other.hash;
  }
};

struct GroupRecord {
  std::string path{};  // relative to the group of the job: "" or "subgroup1/"
  int rank = 0;        // within the group
  int size = 0;
  int leader = 0;  // the global rank of the group's rank 0

  bool is_same(const GroupRecord& other) const { return path == other.path && leader == other.leader; }
};

struct ProgressSnapshot {
  int process = 0;
  std::uint64_t step = 0;
  progress::Phase phase = progress::Phase::kStart;
  std::string phase_name = "start";
  std::uint64_t phase_since = 0;                                   // microseconds of page_clock()
  std::uint64_t activity = 0;                                      // the time of the last change
  std::vector<std::pair<progress::Phase, std::uint64_t>> spent{};  // microseconds in each phase so far
  std::map<std::string, std::uint64_t> named{};  // the same for user-defined phases, by name; only the first 24 names
  std::vector<std::pair<std::string, double>> values{};
  std::vector<GroupRecord> groups{};
  std::uint64_t collectives_begun = 0;
  std::vector<CollectiveRecord> collectives{};  // at most kRingEntries, oldest first
};

// The time of a user-defined phase, in microseconds.
struct NamedTime {
  std::uint64_t spent = 0;
  std::uint64_t waited = 0;  // the part of it spent waiting for other ranks
};

// The totals of a rank from its start to the end of a step, in microseconds.
struct StepTotals {
  int process = 0;
  std::uint64_t steps = 0;
  std::uint64_t time = 0;                           // of page_clock()
  std::array<std::uint64_t, kPhaseKinds> spent{};   // by the number of the phase
  std::array<std::uint64_t, kPhaseKinds> waited{};  // the part of it spent waiting for other ranks
  std::map<std::string, NamedTime> named{};         // for user-defined phases, by name; only the first 24 names
};
// Returns nullopt before the first step, or if the totals were being written during every attempt.
std::optional<StepTotals> read_step_totals(const Page& page);

// Reads the last `most_collectives` collectives; the cost grows with their number. Returns nullopt if no program writes
// the page, or if the program uses another layout.
std::optional<ProgressSnapshot> read_page(const Page& page, std::size_t most_collectives = kRingEntries);

// In the frame count of a stack: the page is written by Python (python/ddprun/_page.py), which stores no stacks.
inline constexpr std::uint64_t kIsPython = ~std::uint64_t{0};
// The path prefix of groups created by Python's torch.distributed. Their numbers are unrelated to those of the
// library's groups.
inline constexpr const char* kPythonGroups = "python/";
// Returns true if a Python program writes the page.
bool is_python(const Page& page);

// The time of the last change on the page, in microseconds; 0 if no program writes it.
std::uint64_t last_activity(const Page& page);

// The stack that the handler stored for request number `answer` or a later one: addresses in that process, innermost
// frame first. Returns nullopt if that request has not been answered yet.
std::optional<std::vector<std::uint64_t>> read_stack(const Page& page, std::uint64_t answer);
// The number of stacks that the handler has stored so far.
std::uint64_t stack_answers(const Page& page);

}  // namespace ddp::detail
