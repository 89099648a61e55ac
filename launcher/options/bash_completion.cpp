#include <string_view>

#include "launcher/options/completions.h"
#include "launcher/options/script_text.h"
#include "launcher/options/shown_options.h"
#include "launcher/options/subcommands.h"

namespace launcher {
namespace {

// bash cuts COMP_WORDS at "=" and ":" too, and replaces only the last piece by what is offered.
constexpr std::string_view kBashBegin = R"bash(# Completion of ddprun for bash, printed by "ddprun --generate bash".

# Fills in, up to the cursor: words, as the shell will read them; places, where each begins in COMP_WORDS; piece, the
# part of the last word that bash replaces.
_ddprun_words() {
  local rest=${COMP_LINE:0:COMP_POINT} gap i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    gap=${rest%%[![:space:]]*}
    rest=${rest#"$gap"}
    piece=${COMP_WORDS[i]}
    if ((i == COMP_CWORD)); then piece=$rest; fi
    rest=${rest#"$piece"}
    if ((i > 0)) && [[ -z $gap ]]; then
      words[${#words[@]} - 1]+=$piece
    else
      words+=("$piece")
      places+=("$i")
    fi
  done
}

# Offers what compgen finds; $1 is what stands before the value in its word.
_ddprun_offer() {
  local before=$1 kept=${current%"$piece"}
  shift
  if [[ $piece == [=:] ]]; then kept=$current; fi
  mapfile -t COMPREPLY < <(compgen "$@")
  COMPREPLY=("${COMPREPLY[@]/#/$before}")
  COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}

# The value $2 of option $1; $3 is what stands before it in its word.
_ddprun_value() {
  case $1 in
)bash";

constexpr std::string_view kBashEnd =
    R"bash(# What may stand behind the words "$@", of which $1 is one for ddprun itself.
_ddprun_subcommand() {
  local verbs options i
  _ddprun_subcommand_words "$1"
  i=1
  if [[ -n $verbs ]]; then
    if (($# == 1)); then
      _ddprun_offer '' -W "$verbs --help" -- "$current"
      return
    fi
    _ddprun_subcommand_words "$1 $2"
    i=2
  fi
  if (($# > i)) && _ddprun_takes_file "${!#}"; then
    compopt -o filenames
    _ddprun_offer '' -f -- "$current"
  elif [[ $current == -* ]]; then
    _ddprun_offer '' -W "$options --help" -- "$current"
  else
    _ddprun_offer '' -W "$(_ddprun_jobs)" -- "$current"
  fi
}

# The program, or what follows it: words[$1] is the program.
_ddprun_program() {
  if (($1 == 1 && last > 1)) && [[ " $_ddprun_subcommands " == *" ${words[1]} "* ]]; then
    _ddprun_subcommand "${words[@]:1:last-1}"
  elif (($1 < last)); then
    if declare -F _comp_command_offset > /dev/null; then
      _comp_command_offset "${places[$1]}"
    elif declare -F _command_offset > /dev/null; then
      _command_offset "${places[$1]}"
    else
      compopt -o default
    fi
  elif ((!module)); then
    compopt -o filenames
    mapfile -t COMPREPLY < <(
      compgen -f -- "$current"
      if [[ -n $current && $current != */* ]]; then compgen -c -- "$current"; fi
      if (($1 == 1)); then compgen -W "$_ddprun_subcommands" -- "$current"; fi
    )
  fi
}

# Sets option to the name in $1, spelt as in ddprun --help.
_ddprun_name() {
  option=${1%%=*}
  if [[ $option == --* ]]; then
    option=${option#--}
    option=--${option//-/_}
  fi
}

_ddprun() {
  COMPREPLY=()
  local words=() places=() piece='' option='' module=0 i
  _ddprun_words
  local last=$((${#words[@]} - 1))
  local current=${words[last]}
  for ((i = 1; i < last; i++)); do
    case ${words[i]} in
      --)
        _ddprun_program $((i + 1))
        return
        ;;
      -*=*) continue ;;
      -?*) _ddprun_name "${words[i]}" ;;
      *)
        _ddprun_program "$i"
        return
        ;;
    esac
    if [[ $option == -m || $option == --module ]]; then module=1; fi
    if _ddprun_takes_next_word "$option" && ((++i == last)); then
      _ddprun_value "$option" "$current" ''
      return
    fi
  done
  _ddprun_name "$current"
  case $current in
    -*=*) _ddprun_value "$option" "${current#*=}" "${current%%=*}=" ;;
    -*) _ddprun_offer '' -W "$_ddprun_options" -- "$option" ;;
    *) _ddprun_program "$last" ;;
  esac
}

complete -F _ddprun ddprun
)bash";

std::string bash_value(const ShownOption& option) {
  const std::string names = joined(names_taken(option), " | ");
  const auto branch = [&](const std::string& action) { return "    " + names + ") " + action + " -- \"$2\" ;;\n"; };
  if (option.takes_file()) return branch("compopt -o filenames && _ddprun_offer \"$3\" -f");
  if (option.takes_folder()) return branch("compopt -o filenames && _ddprun_offer \"$3\" -d");
  if (option.words().empty()) return "";
  return branch("_ddprun_offer \"$3\" -W " + single_quoted(joined(option.words(), " ")));
}

// The functions about subcommands that differ with what there is, and the words themselves.
std::string subcommand_parts() {
  std::string words;
  std::string cases;
  std::string files;
  for (const Subcommand& subcommand : subcommands()) {
    words.append(words.empty() ? "" : " ").append(subcommand.word);
    std::vector<std::string> verbs;
    for (const SubcommandForm& form : subcommand.forms) {
      std::vector<std::string> names;
      for (const ShownOption& option : form.options) {
        names.insert(names.end(), option.names.begin(), option.names.end());
        if (option.takes_file()) files += "    " + joined(option.names, " | ") + ") ;;\n";
      }
      if (!form.verb.empty()) verbs.push_back(form.verb);
      const std::string phrase = subcommand.word + (form.verb.empty() ? "" : " " + form.verb);
      cases += "    " + single_quoted(phrase) + ") options=" + single_quoted(joined(names, " ")) + " ;;\n";
    }
    if (!verbs.empty()) {
      cases += "    " + single_quoted(subcommand.word) + ") verbs=" + single_quoted(joined(verbs, " ")) + " ;;\n";
    }
  }
  return "_ddprun_subcommands=" + single_quoted(words) +
         "\n\n# Sets verbs, the words of which one follows $1, or options.\n"
         "_ddprun_subcommand_words() {\n  verbs='' options=''\n  case $1 in\n" +
         cases + "  esac\n}\n\n_ddprun_takes_file() {\n  case $1 in\n" + files +
         "    *) return 1 ;;\n  esac\n}\n\n_ddprun_jobs() {\n  " + std::string(kRunningJobs) + "\n}\n\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const auto groups = shown_options(app);
  std::string script(kBashBegin);
  script += for_each_option(groups, bash_value);
  script += "  esac\n}\n\n_ddprun_takes_next_word() {\n  case $1 in\n";
  script += for_each_option(groups, [](const ShownOption& option) {
    return option.takes_next_word() ? "    " + joined(names_taken(option), " | ") + ") ;;\n" : "";
  });
  script += "    *) return 1 ;;\n  esac\n}\n\n_ddprun_options='\n";
  script += for_each_option(groups, [](const ShownOption& option) { return joined(option.names, " ") + "\n"; });
  return script.append("'\n\n").append(subcommand_parts()).append(kBashEnd);
}

}  // namespace launcher
