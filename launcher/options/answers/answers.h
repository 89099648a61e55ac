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

// The text of --dry_run and --show_env: one block for each rank of this node, with its place, its GPU and the variables
// that ddprun sets; with `program` also the file and the arguments. `gpus` are UUIDs in the driver's order; nothing
// without a driver. Values that are decided only at the start are in angle brackets, such as MASTER_PORT=<free port>.
// Starts nothing.
std::string preview(const Options& options, const std::optional<Program>& program,
                    const std::vector<std::string>& inherited, const std::optional<std::vector<std::string>>& gpus);

// A result of --check: a property of this ddprun or of this machine.
struct Finding {
  enum class Kind { kGood, kNote, kProblem };
  Kind kind = Kind::kGood;
  std::string what;    // "process descriptors"
  std::string answer;  // "pidfd_open works", or what follows from its absence
};

// Checks this machine: kernel features, limits, GPUs, Python and its torch, the store's port. Starts no rank. Takes up
// to some seconds because of Python.
std::vector<Finding> check_machine();

// One line per finding, which begins with "ok", "note" or "PROBLEM". Pure.
std::string finding_lines(const std::vector<Finding>& findings);
std::string to_text(const std::vector<Finding>& findings);

// Whether a job could run: no finding is a problem. Pure.
bool can_run_jobs(const std::vector<Finding>& findings);

// The result of --cmake_prefix_path: where CMake finds the ddprun that was installed with this launcher, and its
// LibTorch.
struct CmakePrefixes {
  std::filesystem::path package;  // the folder into which ddprun was installed; empty: its CMake package is not there
  std::filesystem::path torch;    // torch.utils.cmake_prefix_path of the same environment; empty: it has no PyTorch
};

// `program` is the launcher's own file, PREFIX/bin/ddprun. If several Pythons have a PyTorch, the newest Python is
// used.
CmakePrefixes find_cmake_prefixes(const std::filesystem::path& program);

// Returns the prefixes on one line in the form of CMAKE_PREFIX_PATH.
std::string to_text(const CmakePrefixes& prefixes);

// --explain: the sections of docs/messages.md.
struct Explanation {
  std::string_view title;
  std::string_view text;      // explains the messages of this section, and what to do
  std::string_view messages;  // one message per line; … stands for names and numbers
};

// Defined in a source that the build generates from docs/messages.md and all sources.
std::span<const Explanation> known_explanations();

// Returns the sections of the message that has the most words in common with `message`; empty when none has enough of
// them. Pure.
std::string explain(std::string_view message, std::span<const Explanation> explanations);

}  // namespace launcher
