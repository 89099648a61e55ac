#include <string>
#include <utility>
#include <vector>

#include "launcher/options/declare_options.h"
#include "launcher/options/generated_texts.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

void declare_generated_texts(OptionTable& table, Options& options) {
  const auto print = [&options](const std::string& kind) {
    return OptionTable::Choice(kind, [&options, kind] {
      options.mode = Options::Mode::kGenerate;
      options.generated = kind;
    });
  };
  std::vector<OptionTable::Choice> texts;
  for (const GeneratedText& text : generated_texts()) texts.push_back(print(text.kind));
  table.command({"--generate", "Print the manual page, the completion for a shell, or a table of these pages"},
                std::move(texts));
  const auto refuse = [] {
    throw UsageError("--print_completion tcsh: ddprun has completions for bash, zsh and fish only");
  };
  table.command(torchrun_option({"--print_completion",
                                 "Print the completion for a shell, as `--generate` does; tcsh is not supported"}),
                {print("bash"), print("zsh"), print("fish"), {"tcsh", refuse}});
}

}  // namespace

void declare_information(OptionTable& table, Options& options) {
  using Mode = Options::Mode;
  table.group("Information");
  const auto mode = [&options](Options::Mode value) { return [&options, value] { options.mode = value; }; };
  table.command({"--dry_run", "Print what would be started, and start nothing",
                 "Each rank's file, command, GPU and variables; what is decided only at the start is in `<>`."},
                mode(Mode::kDryRun));
  table.command({"--show_env", "Print each rank's variables and GPUs, and start nothing",
                 "Needs no program; also prints what the scheduler set and which of it is used."},
                mode(Mode::kShowEnvironment));
  table.command({"--check", "Check this ddprun and this machine; exit status 0 if a job can run here",
                 "Otherwise the exit status is 125. With `-H` it prints [what would fail on each "
                 "host](many-nodes.md#before-it-runs)."},
                mode(Mode::kCheck));
  const auto explain = [&options](const std::string& text) {
    options.mode = Mode::kExplain;
    options.explained = text;
  };
  table.command({"--explain TEXT", "Print what a message of ddprun or of the library means, and what to do",
                 "[Messages](messages.md)."},
                OptionTable::Parse(explain));
  declare_generated_texts(table, options);
  table.command({"--cmake_prefix_path", "Print where CMake finds this ddprun and its PyTorch, for -DCMAKE_PREFIX_PATH",
                 "`cmake -DCMAKE_PREFIX_PATH=\"$(ddprun --cmake-prefix-path)\"`."},
                mode(Mode::kCmakePrefixPath));
  table.command({"--version", "Print the version and the commit of the sources"}, mode(Mode::kVersion));
  table.command(torchrun_option({"-h,--help", "Print the options"}), mode(Mode::kHelp));
}

}  // namespace launcher
