#include <string_view>

#include "launcher/options/generated_texts.h"

namespace launcher {
namespace {

constexpr std::string_view kScanner = R"fish(
# The program and its arguments before the cursor, as one types them, a line each. Status 0 when there is a program,
# 1 when an option or the program comes next, 2 when only the program may, 3 when it is the value of an option,
# 4 after a subcommand of ddprun.
function __ddprun_program
    set -l words (commandline -opc)
    set -e words[1]
    set -l next 1
    if contains -- "$words[1]" $__ddprun_subcommands
        return 4
    end
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

# Nothing but the command's name stands before the cursor.
function __ddprun_at_first
    test (count (commandline -opc)) = 1
end

# $argv are the first words after ddprun.
function __ddprun_in
    set -l words (commandline -opc)
    set -e words[1]
    for word in $argv
        test "$words[1]" = $word
        or return 1
        set -e words[1]
    end
end

# After a subcommand of ddprun that needs another word.
function __ddprun_at_verb
    __ddprun_in $argv
    and test (count (commandline -opc)) = 2
end

function __ddprun_complete_program
    complete -C (string join ' ' -- (__ddprun_program) (commandline -ct))
end

complete -c ddprun -f
complete -c ddprun -n __ddprun_at_program -F -a '(__fish_complete_command)'
complete -c ddprun -n __ddprun_in_program -a '(__ddprun_complete_program)'
)fish";

// "-x -a 'none core numa'"
std::string fish_value(const ShownOption& option) {
  if (option.value.empty() || option.value_may_be_missing) return "";
  if (option.takes_file()) return " -r -F";
  if (option.takes_folder()) return " -x -a '(__fish_complete_directories)'";
  const auto words = option.words();
  return words.empty() ? " -x" : " -x -a " + single_quoted(joined(words, " "));
}

std::string with_doubled_backslashes(std::string_view original) {
  std::string text;
  for (const char c : original) text.append(c == '\\' ? "\\\\" : std::string(1, c));
  return text;
}

std::string quoted(const std::string& meaning) {
  return single_quoted(with_doubled_backslashes(meaning));
}

// " -s n -l nproc_per_node"
std::string names_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return text;
}

// "complete -c ddprun -n CONDITION NAMES"
std::string complete(const std::string& condition, const std::string& rest) {
  return "complete -c ddprun -n " + (condition.find(' ') == std::string::npos ? condition : single_quoted(condition)) +
         rest;
}

std::string completions_of(const ShownOption& option, const std::string& words) {
  const std::string rest = fish_value(option) + " -d " + quoted(option.summary()) + "\n";
  if (!words.empty()) return complete("__ddprun_in " + words, names_of(option.names) + rest);
  std::vector<std::string> others;
  for (const std::string& name : option.names) {
    if (const std::string other = other_spelling(name); !other.empty()) others.push_back(other);
  }
  std::string lines = complete("__ddprun_own", names_of(option.names) + rest);
  if (!others.empty()) lines += complete("__ddprun_hyphens", names_of(others) + rest);
  return lines;
}

// Names of options whose value is the next word, with "-" for "_".
std::string valued_names(const ShownOption& option) {
  if (!option.takes_next_word()) return "";
  std::string text;
  std::vector<std::string> names = option.names;
  for (const std::string& name : unlisted_names(option)) names.push_back(name);
  for (const std::string& name : names) {
    const std::string other = other_spelling(name);
    text += " " + (other.empty() ? name : other);
  }
  return text;
}

std::string form_completions(const Subcommand& subcommand, const SubcommandForm& form, const std::string& options) {
  const std::string verb =
      form.verb.empty() ? "" : complete("__ddprun_at_verb " + subcommand.word, " -a " + form.verb + "\n");
  return verb + complete("__ddprun_in " + form.words(subcommand.word), " -a '(__ddprun_jobs)' -d 'job'\n") + options;
}

std::string subcommand_completions(const Subcommand& subcommand, const std::string& forms) {
  return complete("__ddprun_at_first", " -a " + subcommand.word + " -d " + quoted(subcommand.meaning) + "\n") +
         complete("__ddprun_in " + subcommand.word, " -s h -l help -d " + quoted(std::string(kHelpMeaning)) + "\n") +
         forms;
}

}  // namespace

std::string fish_completion(const OptionTable& table) {
  std::string valued;
  const auto option = [&](const ShownOption& shown, const std::string& words) {
    if (words.empty()) valued += valued_names(shown);
    return completions_of(shown, words);
  };
  const TextBody body =
      text_body(table, {.option = option, .form = form_completions, .subcommand = subcommand_completions});
  return "# Completion of ddprun for fish, printed by \"ddprun --generate fish\".\n\nset -g __ddprun_valued" + valued +
         "\nset -g __ddprun_subcommands " + subcommand_words() + "\n" + std::string(kScanner) + "\n" + body.options +
         "\nfunction __ddprun_jobs\n    " + with_doubled_backslashes(kRunningJobs) + "\nend\n\n" + body.subcommands;
}

}  // namespace launcher
