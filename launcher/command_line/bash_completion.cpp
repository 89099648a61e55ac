#include <string_view>

#include "launcher/command_line/completions.h"
#include "launcher/command_line/script_text.h"
#include "launcher/command_line/shown_options.h"

namespace launcher {
namespace {

// bash cuts COMP_WORDS at "=" and ":" too, and replaces only the last piece by what is offered.
constexpr std::string_view kBegin = R"bash(# Completion of ddprun for bash, printed by "ddprun --generate bash".

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

constexpr std::string_view kEnd = R"bash(# The program, or what follows it: words[$1] is the program.
_ddprun_program() {
  if (($1 < last)); then
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
      --*=*) continue ;;
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
    --*=*) _ddprun_value "$option" "${current#*=}" "${current%%=*}=" ;;
    -*) _ddprun_offer '' -W "$_ddprun_options" -- "$option" ;;
    *) _ddprun_program "$last" ;;
  esac
}

complete -F _ddprun ddprun
)bash";

std::string value_of(const ShownOption& option) {
  const std::string names = joined(names_taken(option), " | ");
  const auto branch = [&](const std::string& action) { return "    " + names + ") " + action + " -- \"$2\" ;;\n"; };
  if (option.takes_file()) return branch("compopt -o filenames && _ddprun_offer \"$3\" -f");
  if (option.takes_folder()) return branch("compopt -o filenames && _ddprun_offer \"$3\" -d");
  if (option.words().empty()) return "";
  return branch("_ddprun_offer \"$3\" -W " + single_quoted(joined(option.words(), " ")));
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  const auto groups = shown_options(app);
  std::string script(kBegin);
  script += for_each_option(groups, value_of);
  script += "  esac\n}\n\n_ddprun_takes_next_word() {\n  case $1 in\n";
  script += for_each_option(groups, [](const ShownOption& option) {
    return option.takes_next_word() ? "    " + joined(names_taken(option), " | ") + ") ;;\n" : "";
  });
  script += "    *) return 1 ;;\n  esac\n}\n\n_ddprun_options='\n";
  script += for_each_option(groups, [](const ShownOption& option) { return joined(option.names, " ") + "\n"; });
  return script.append("'\n\n").append(kEnd);
}

}  // namespace launcher
