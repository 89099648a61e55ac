// The options of other launchers (mpirun, MPICH's hydra, horovodrun, srun, deepspeed, accelerate), and what ddprun does
// with each. Messages about them and the tables in docs/coming-from.md are made from this list.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

struct ForeignOption {
  enum class Treatment : std::uint8_t {
    kSame,        // ddprun's own option of this name has the same meaning
    kAccepted,    // accepted without a message, as nothing has to be done
    kIgnored,     // accepted with one line that says what is ignored
    kTranslated,  // replaced by options of ddprun
    kRefused,     // refused with an error that names the equivalent
  };
  std::string_view launchers;  // the launchers that have it, separated by blanks
  std::string_view names;  // as in "-np,--n"; one and two dashes, underscores and dashes are alike when it is looked up
  // The words of its value, separated by blanks; empty: it takes no value. A word of capitals matches any text, N a
  // number, "ppr:N:node" a text with a number, "slot
  // core" one of these words, NAME=VALUE a text with =.
  std::string_view values;
  Treatment treatment;
  // For kTranslated: ddprun's words, separated by newlines. $1 and $2 are the values, $each makes one word for each
  // part of a comma-separated value. For other treatments: the text for message and page; for kRefused it says what to
  // do.
  std::string_view ddprun_text;
};

// Advice that several launchers' options share.
inline constexpr std::string_view kOnlyOneProgram =
    "ddprun starts only one program. To run different ones, let the shell choose by the variable RANK, for example: "
    "ddprun -n 3 sh -c 'if [ $RANK = 0 ]; then exec ./a; else exec ./b; fi'";
inline constexpr std::string_view kEnvironmentAdvice =
    "the ranks get all environment variables of ddprun; to pass only a few, start ddprun with these: env -i "
    "PATH=\"$PATH\" ddprun ...";
inline constexpr std::string_view kCpuList =
    "taskset -c LIST ddprun --bind_to core ... divides these CPUs among the ranks";
inline constexpr std::string_view kCpusOfRanks =
    "--bind_to core gives each rank its own share of the CPUs, -x OMP_NUM_THREADS=N sets the threads";
inline constexpr std::string_view kOneNode = "one node is the default";

// In the order in which they are tried. If several have the same name, the first one whose value matches is used.
std::vector<ForeignOption> foreign_options();
std::span<const ForeignOption> mpirun_options();
std::span<const ForeignOption> horovodrun_options();
std::span<const ForeignOption> scheduler_options();

// "mpirun and srun"
std::string launcher_names(const ForeignOption& option);

// The tables of docs/coming-from.md, in Markdown: one for each launcher, below a line with its name.
std::string foreign_options_page();

}  // namespace launcher
