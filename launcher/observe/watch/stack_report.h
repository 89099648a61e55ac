// The stacks of ranks as text. Equal stacks are shown once, the most informative ones first. Pure except for the names
// of functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/thread_stacks.h"
#include "launcher/os/system/elf_symbols.h"

namespace launcher {

// Returns the frames for addresses in a process.
using NameFrames = std::function<std::vector<StackFrame>(int pid, const std::vector<std::uint64_t>& addresses)>;

// Returns lines such as "    #3 read_sample(long) (train+0x4a31)": the innermost frame, and the frames from the first
// to the last one of the program or its libraries. Frames of the C and C++ libraries around them are left out.
std::string relevant_lines(const std::vector<StackFrame>& frames);

// Returns lines for Python functions: "    #0 load (train.py:12)".
std::string python_lines(const std::vector<PythonFrame>& frames);

// Returns "ranks 0-62, main thread, sleeping in ...:" and the frames, for each different stack: main threads, then
// threads that run the program, LibTorch, ddprun and system libraries. Last come the ranks that have ended.
std::string stacks_text(const std::vector<RankStacks>& ranks, const NameFrames& name_frames);

// Returns "ranks 1 and 2 have ended normally; rank 3 has ended (exited with status 3)", without the ranks that run.
std::string ended_ranks_text(const std::vector<RankStacks>& ranks);

// Makes `names` look up all frames of these stacks at once.
void resolve_frames(SymbolNames& names, const std::vector<RankStacks>& ranks);

// For the report on a hang: the main thread's stack, and the stacks of other threads that are in the program or its
// libraries, in the order of stacks_text(). If the main thread's is not known, one line without a line end.
std::string report_text(const RankStacks& rank, const NameFrames& name_frames);

// The answer of a job to `ddprun stack`.
nlohmann::ordered_json json_of(const std::vector<RankStacks>& ranks);
// Returns nothing when the text is not such an answer.
std::optional<std::vector<RankStacks>> stacks_from(const std::string& text);

}  // namespace launcher
