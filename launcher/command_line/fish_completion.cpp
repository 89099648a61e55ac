#include <string_view>

#include "launcher/command_line/completions.h"
#include "launcher/command_line/script_text.h"
#include "launcher/command_line/shown_options.h"

namespace launcher {
namespace {

constexpr std::string_view kScanner = R"fish(
# The program and its arguments before the cursor, as one types them, a line each. Status 0 when there is a program,
# 1 when an option or the program comes next, 2 when only the program may, 3 when it is the value of an option.
function __ddprun_program
    set -l words (commandline -opc)
    set -e words[1]
    set -l next 1
    while set -q words[1]
        set -l word $words[1]
        if string match -q -- '--*' $word
            set word (string replace -a -- _ - $word)
        end
        switch $word
            case --
                set -e words[1]
                set next 2
                break
            case '-?*'
                set -e words[1]
                if contains -- $word $__ddprun_valued
                    if not set -q words[1]
                        return 3
                    end
                    set -e words[1]
                end
            case '*'
                break
        end
    end
    if set -q words[1]
        string escape -- $words
        return 0
    end
    return $next
end

function __ddprun_own
    __ddprun_program >/dev/null
    contains $status 1 3
end

# The spelling with "-" is known, and offered to who uses it.
function __ddprun_hyphens
    __ddprun_own
    and string match -qr -- '^--[a-z]+-' (commandline -opc) (commandline -ct)
end

function __ddprun_at_program
    __ddprun_program >/dev/null
    contains $status 1 2
end

function __ddprun_in_program
    __ddprun_program >/dev/null
end

function __ddprun_complete_program
    complete -C (string join ' ' -- (__ddprun_program) (commandline -ct))
end

complete -c ddprun -f
complete -c ddprun -n __ddprun_at_program -F -a '(__fish_complete_command)'
complete -c ddprun -n __ddprun_in_program -a '(__ddprun_complete_program)'
)fish";

// "-x -a 'none core numa'"
std::string value_of(const ShownOption& option) {
  if (option.value.empty() || option.value_may_be_missing) return "";
  if (option.takes_file()) return " -r -F";
  if (option.takes_folder()) return " -x -a '(__fish_complete_directories)'";
  const auto words = option.words();
  return words.empty() ? " -x" : " -x -a " + single_quoted(joined(words, " "));
}

std::string quoted_meaning(const ShownOption& option) {
  std::string text;
  for (const char c : option.meaning) text.append(c == '\\' ? "\\\\" : std::string(1, c));
  return single_quoted(text);
}

// " -s n -l nproc_per_node"
std::string names_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return text;
}

std::string completions_of(const ShownOption& option) {
  const std::string rest = value_of(option) + " -d " + quoted_meaning(option) + "\n";
  std::vector<std::string> others;
  for (const std::string& name : option.names) {
    if (const std::string other = other_spelling(name); !other.empty()) others.push_back(other);
  }
  std::string lines = "complete -c ddprun -n __ddprun_own" + names_of(option.names) + rest;
  if (!others.empty()) lines += "complete -c ddprun -n __ddprun_hyphens" + names_of(others) + rest;
  return lines;
}

// Names of options whose value is the next word, with "-" for "_".
std::string valued_names(const ShownOption& option) {
  if (!option.takes_next_word()) return "";
  std::string text;
  for (const std::string& name : names_taken(option)) {
    const std::string other = other_spelling(name);
    text += " " + (other.empty() ? name : other);
  }
  return text;
}

}  // namespace

std::string fish_completion(const CLI::App& app) {
  const auto groups = shown_options(app);
  return "# Completion of ddprun for fish, printed by \"ddprun --generate fish\".\n\nset -g __ddprun_valued" +
         for_each_option(groups, valued_names) + "\n" + std::string(kScanner) + "\n" +
         for_each_option(groups, completions_of);
}

}  // namespace launcher
