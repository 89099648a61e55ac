#include "launcher/command_line/help_of_words.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace launcher {
namespace {

struct WordHelp {
  std::string_view word;
  std::string_view text;
};

constexpr std::array kTexts = {
    WordHelp{"status",
             R"(Shows what your jobs on this machine are doing: a line and a table of its ranks
for each.

Usage: ddprun status [JOB] [--json]

  JOB     its --rdzv_id, or ddprun's process number; all jobs unless given
  --json  one JSON document a job, each on a line of its own

Exit status: 0; 1 when there is no such job, or one does not answer.
A program of this name is started by its path: ddprun ./status
)"},
    WordHelp{"top",
             R"(Shows what your jobs on this machine are doing, once a second, until they have
ended or you press Ctrl-C. Where standard output is no terminal: once.

Usage: ddprun top [JOB]

  JOB  its --rdzv_id, or ddprun's process number; all jobs unless given

Exit status: 0; 1 when there is no such job, or one does not answer.
A program of this name is started by its path: ddprun ./top
)"},
    WordHelp{"timeline",
             R"(Records what each rank of a running job does and when, for Perfetto and
ddprun-timeline. To record a job from its start on: ddprun --timeline FILE

Usage: ddprun timeline start [JOB] [-o FILE]
       ddprun timeline stop [JOB]

  JOB                its --rdzv_id, or ddprun's process number; may be left out
                     where only one job runs
  -o, --output FILE  the file to write; the job's own unless given

Exit status: 0; 1 when there is no such job, or it refuses.
A program of this name is started by its path: ddprun ./timeline
)"}};

}  // namespace

std::optional<std::string> help_of_words(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const auto* const found =
      std::find_if(kTexts.begin(), kTexts.end(), [&](const WordHelp& each) { return each.word == arguments.front(); });
  const bool is_asked = std::any_of(arguments.begin() + 1, arguments.end(),
                                    [](const std::string& word) { return word == "--help" || word == "-h"; });
  return found != kTexts.end() && is_asked ? std::optional(std::string(found->text)) : std::nullopt;
}

}  // namespace launcher
