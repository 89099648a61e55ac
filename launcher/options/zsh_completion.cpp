#include <initializer_list>
#include <string_view>

#include "launcher/options/generated_texts.h"

namespace launcher {
namespace {

constexpr std::string_view kZshBegin = R"zsh(#compdef ddprun
# Completion of ddprun for zsh, printed by "ddprun --generate zsh".

_ddprun_program() {
  if (( ${words[(I)-m]} || ${words[(I)--module]} )); then
    _message 'Python module'
  else
    local -a own
    if (( CURRENT == 2 )); then own=('own:command of ddprun:_ddprun_subcommands'); fi
    _alternative $own 'commands:command:_command_names -e' 'files:file:_files'
  fi
}
)zsh";

constexpr std::string_view kMain = R"zsh(
# A specification that begins with "!" is known but not offered.
_ddprun() {
  if (( CURRENT > 2 )) && _ddprun_subcommand "$words[2]"; then
    return
  fi
  _arguments -S -M 'm:-=_ r:|[_-]=* r:|=*' : \
)zsh";

constexpr std::string_view kZshEnd = R"zsh(    '(-)1:program:_ddprun_program' \
    '*::argument:_normal'
}

# As a file of $fpath, or as what "source" reads.
if [[ $funcstack[1] == _ddprun ]]; then
  _ddprun "$@"
else
  compdef _ddprun ddprun
fi
)zsh";

std::string escaped(const std::string& text, std::string_view special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// ":MESSAGE:ACTION"
std::string argument_of(const ShownOption& option) {
  if (option.value.empty()) return "";
  std::string action = " ";  // shows a message, but offers no choice
  if (option.takes_file()) action = "_files";
  if (option.takes_folder()) action = "_files -/";
  if (const auto words = option.words(); !words.empty())
    action = std::string("(").append(joined(words, " ")).append(")");
  return (option.value_may_be_missing ? "::" : ":") + escaped(option.value, "\\:") + ":" + action;
}

// Returns how `name` takes its value: "-n4" and "-n 4"; "--nproc_per_node=4" and "--nproc_per_node 4"; "--prefix=TEXT"
// only.
std::string with_form(const ShownOption& option, const std::string& name) {
  if (option.value.empty()) return name;
  if (option.value_may_be_missing) return name + "=-";
  return name + (name.starts_with("--") ? "=" : "+");
}

std::string specification(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return std::string("    ").append(single_quoted(text)).append(" \\\n");
}

std::string specifications(const ShownOption& option) {
  std::string lines;
  const std::string argument = argument_of(option);
  const std::string meaning = escaped(option.summary(), "\\[]:");
  const std::string names = joined(option.names, " ");
  for (const std::string& name : option.names) {
    const std::string form = with_form(option, name);
    // An option that was already given, under any of its names, is not offered again.
    lines += option.may_be_repeated ? specification({"*", form, "[", meaning, "]", argument})
                                    : specification({"(", names, ")", form, "[", meaning, "]", argument});
  }
  std::vector<std::string> hidden = unlisted_names(option);
  for (const std::string& name : option.names) hidden.push_back(other_spelling(name));
  for (const std::string& name : hidden) {
    if (!name.empty()) lines += specification({"!", with_form(option, name), argument});
  }
  return lines;
}

// Returns the completion of the arguments of one form.
std::string form_arguments(const Subcommand&, const SubcommandForm& form, const std::string& options) {
  const std::string begin = form.verb.empty() ? "      " : "        " + form.verb + ") ";
  return begin + "_arguments -S : \\\n" + options + specification({"(- *)-h[", kHelpMeaning, "]"}) +
         specification({"(- *)--help[", kHelpMeaning, "]"}) + "    '1:job:_ddprun_jobs'\n" +
         (form.verb.empty() ? "" : "    ") + "      ;;\n";
}

// Returns the case branch of one subcommand. It removes the words before the subcommand's own arguments from words and
// CURRENT.
std::string branch(const Subcommand& subcommand, const std::string& forms) {
  const std::string begin = "    " + subcommand.word + ")\n      shift words; (( CURRENT-- ))\n";
  if (subcommand.verbs().empty()) return begin + forms;
  return begin + "      if (( CURRENT == 2 )); then\n        compadd -- " + joined(subcommand.verbs(), " ") +
         " --help\n        return 0\n      fi\n      shift words; (( CURRENT-- ))\n      case $words[1] in\n" + forms +
         "      esac\n      ;;\n";
}

std::string subcommand_functions(const std::string& branches) {
  std::string descriptions;
  for (const Subcommand& subcommand : subcommands())
    descriptions += "    " + single_quoted(subcommand.word + ":" + escaped(subcommand.meaning, "\\:")) + "\n";
  return "\n_ddprun_subcommands() {\n  local -a known=(\n" + descriptions +
         "  )\n  _describe 'command of ddprun' known\n}\n\n_ddprun_jobs() {\n  local -a running=(${(f)\"$(" +
         std::string(kRunningJobs) + ")\"})\n  compadd \"$@\" -a running\n}\n\n" +
         "# What follows $1 where it is a word for ddprun itself, else status 1.\n_ddprun_subcommand() {\n  case $1 "
         "in\n" +
         branches + "    *) return 1 ;;\n  esac\n  return 0\n}\n";
}

}  // namespace

std::string zsh_completion(const OptionTable& table) {
  const TextBody body =
      text_body(table, {.option = [](const ShownOption& option, const auto&) { return specifications(option); },
                        .form = form_arguments,
                        .subcommand = branch});
  return std::string(kZshBegin) + subcommand_functions(body.subcommands) + std::string(kMain) + body.options +
         std::string(kZshEnd);
}

}  // namespace launcher
