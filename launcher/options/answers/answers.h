// What ddprun prints instead of starting a job.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"

namespace launcher {

// --dry_run, --show_env: one block per rank of this node: its place, its GPU and the variables that ddprun sets; with
// `program` also the file and the arguments. `gpus`: UUIDs in the driver's order; nothing without a driver. What is
// decided only at the start is in angle brackets, such as MASTER_PORT=<free port>. Nothing is started.
std::string preview(const Options& options, const std::optional<Program>& program,
                    const std::vector<std::string>& inherited, const std::optional<std::vector<std::string>>& gpus);

// --check: what this ddprun is and what this machine offers it.
struct Finding {
  enum class Kind { kGood, kNote, kProblem };
  Kind kind = Kind::kGood;
  std::string what;    // "process descriptors"
  std::string answer;  // "pidfd_open works", or what follows from its absence
};

// Looks at this machine: kernel features, limits, GPUs, Python and its torch, the store's port. Starts no rank. Takes
// up to some seconds, which Python needs.
std::vector<Finding> check_machine();

// One line per finding, which begins with "ok", "note" or "PROBLEM". Pure.
std::string finding_lines(const std::vector<Finding>& findings);
std::string to_text(const std::vector<Finding>& findings);

// No finding is a problem: a job could run. Pure.
bool can_run_jobs(const std::vector<Finding>& findings);

// --cmake_prefix_path: where CMake finds the ddprun that this launcher was installed with, and its LibTorch.
struct CmakePrefixes {
  std::filesystem::path package;  // the folder that ddprun was installed into; empty: its CMake package is not there
  std::filesystem::path torch;    // torch.utils.cmake_prefix_path of the same environment; empty: it has no PyTorch
};

// `program` is the launcher's own file, PREFIX/bin/ddprun. Where several Pythons have a PyTorch, the newest one's.
CmakePrefixes find_cmake_prefixes(const std::filesystem::path& program);

// As CMAKE_PREFIX_PATH takes it, on one line.
std::string to_text(const CmakePrefixes& prefixes);

// --explain: the sections of docs/messages.md.
struct Explanation {
  std::string_view title;
  std::string_view text;      // what the messages of this section mean, and what to do
  std::string_view messages;  // a line each; … stands for names and numbers
};

// Defined in a source that the build makes of docs/messages.md and of all sources.
std::span<const Explanation> known_explanations();

// The sections with the message that has most of `message`'s words; empty when none has enough of them. Pure.
std::string explain(std::string_view message, std::span<const Explanation> explanations);

}  // namespace launcher
