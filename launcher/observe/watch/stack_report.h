// The stacks of ranks as text: equal ones once, and those first that say most. Pure but for the names of functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/thread_stacks.h"
#include "launcher/os/system/elf_symbols.h"

namespace launcher {

// The frames of addresses in a process.
using NameFrames = std::function<std::vector<StackFrame>(int pid, const std::vector<std::uint64_t>& addresses)>;

// Lines "    #3 read_sample(long) (train+0x4a31)": the innermost frame, and those from the first one of the program or
// its libraries to the last one; those of the C and C++ libraries around them say nothing.
std::string relevant_lines(const std::vector<StackFrame>& frames);

// The same of Python's functions, "    #0 load (train.py:12)".
std::string python_lines(const std::vector<PythonFrame>& frames);

// "ranks 0-62, main thread, sleeping in ...:" and its frames, for each stack that differs.
std::string stacks_text(const std::vector<RankStacks>& ranks, const NameFrames& name_frames);

// Has `names` look up all frames of these at once.
void learn_frames(SymbolNames& names, const std::vector<RankStacks>& ranks);

// For the report on a hang: the main thread's stack, and those of other threads that are in the program or its
// libraries; one line without a line's end where the main thread's is not known.
std::string report_text(const RankStacks& rank, const NameFrames& name_frames);

// What `ddprun stack` asks a job for.
nlohmann::ordered_json json_of(const std::vector<RankStacks>& ranks);
// Nothing when it is no such text.
std::optional<std::vector<RankStacks>> stacks_from(const std::string& text);

}  // namespace launcher
