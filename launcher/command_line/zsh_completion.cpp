#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "launcher/command_line/completions.h"
#include "launcher/command_line/script_text.h"
#include "launcher/command_line/shown_options.h"

namespace launcher {
namespace {

constexpr std::string_view kBegin = R"zsh(#compdef ddprun
# Completion of ddprun for zsh, printed by "ddprun --generate zsh".

_ddprun_program() {
  if (( ${words[(I)-m]} || ${words[(I)--module]} )); then
    _message 'Python module'
  else
    _alternative 'commands:command:_command_names -e' 'files:file:_files'
  fi
}

# A specification that begins with "!" is known but not offered.
_ddprun() {
  _arguments -S -M 'm:-=_ r:|[_-]=* r:|=*' : \
)zsh";

constexpr std::string_view kEnd = R"zsh(    '(-)1:program:_ddprun_program' \
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
  std::string action = " ";  // a message and nothing to choose from
  if (option.takes_file()) action = "_files";
  if (option.takes_folder()) action = "_files -/";
  if (const auto words = option.words(); !words.empty())
    action = std::string("(").append(joined(words, " ")).append(")");
  return (option.value_may_be_missing ? "::" : ":") + escaped(option.value, "\\:") + ":" + action;
}

// How `name` may have its value: "-n4" and "-n 4", "--nproc_per_node=4" and "--nproc_per_node 4", "--prefix=TEXT" only.
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
  const std::string meaning = escaped(option.meaning, "\\[]:");
  const std::string names = joined(option.names, " ");
  for (const std::string& name : option.names) {
    const std::string form = with_form(option, name);
    // What is given already is not offered again, in any of its names.
    lines += option.may_be_repeated ? specification({"*", form, "[", meaning, "]", argument})
                                    : specification({"(", names, ")", form, "[", meaning, "]", argument});
  }
  for (const std::string& name : names_taken(option)) {
    const bool is_listed = std::find(option.names.begin(), option.names.end(), name) != option.names.end();
    const std::string hidden = is_listed ? other_spelling(name) : name;
    if (!hidden.empty()) lines += specification({"!", with_form(option, hidden), argument});
  }
  return lines;
}

}  // namespace

std::string zsh_completion(const CLI::App& app) {
  return std::string(kBegin) + for_each_option(shown_options(app), specifications) + std::string(kEnd);
}

}  // namespace launcher
