#include <string_view>

#include "launcher/options/generated_texts.h"

namespace launcher {
namespace {

// bash splits COMP_WORDS at "=" and ":", too, and replaces only the last piece by a completion.
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

# By option: how compgen finds its value in the next word, "-" where it does not know any; empty where no word follows.
declare -gA _ddprun_values=()
# By subcommand of ddprun: its options, and the words of which one has to follow it.
declare -gA _ddprun_options=() _ddprun_verbs=()

# Options with the names $3 ... after $1.
_ddprun_add() {
  local words=$1 value=$2 name
  shift 2
  _ddprun_options[.$words]+=" $*"
  for name; do _ddprun_values[.$name]=$value; done
}

_ddprun_takes_next_word() {
  [[ -n ${_ddprun_values[.$1]} ]]
}

# The value $2 of option $1; $3 is what stands before it in its word.
_ddprun_value() {
  local value=${_ddprun_values[.$1]}
  case $value in
    -f | -d) compopt -o filenames && _ddprun_offer "$3" "$value" -- "$2" ;;
    -W*) _ddprun_offer "$3" -W "${value#-W}" -- "$2" ;;
  esac
}

)bash";

constexpr std::string_view kBashEnd =
    R"bash(# What may follow the words "$@", of which $1 is one for ddprun itself.
_ddprun_subcommand() {
  local own=$1 i=1
  if [[ -n ${_ddprun_verbs[$1]} ]]; then
    if (($# == 1)); then
      _ddprun_offer '' -W "${_ddprun_verbs[$1]} --help" -- "$current"
      return
    fi
    own="$1 $2" i=2
  fi
  if (($# > i)) && _ddprun_takes_next_word "${!#}"; then
    _ddprun_value "${!#}" "$current" ''
  elif [[ $current == -* ]]; then
    _ddprun_offer '' -W "${_ddprun_options[.$own]} --help" -- "$current"
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
    -*) _ddprun_offer '' -W "${_ddprun_options[.]}" -- "$option" ;;
    *) _ddprun_program "$last" ;;
  esac
}

complete -F _ddprun ddprun
)bash";

// "_ddprun_add 'timeline start' '-f' -o --output"
std::string bash_option(const ShownOption& option, const std::string& words) {
  std::string value = option.takes_next_word() ? "-" : "";
  if (option.takes_file()) value = "-f";
  if (option.takes_folder()) value = "-d";
  if (!option.words().empty()) value = "-W" + joined(option.words(), " ");
  const std::string rest = " " + single_quoted(value) + " ";
  std::string lines = "_ddprun_add " + single_quoted(words) + rest + joined(option.names, " ") + "\n";
  for (const std::string& name : unlisted_names(option)) lines += "_ddprun_add unlisted" + rest + name + "\n";
  return lines;
}

}  // namespace

std::string bash_completion(const OptionTable& table) {
  const TextBody body = text_body(table, {.option = bash_option});
  std::string verbs;
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.verbs().empty()) continue;
    verbs += "_ddprun_verbs[" + subcommand.word + "]=" + single_quoted(joined(subcommand.verbs(), " ")) + "\n";
  }
  return std::string(kBashBegin) + body.options + body.subcommands + verbs +
         "_ddprun_subcommands=" + single_quoted(subcommand_words()) + "\n\n_ddprun_jobs() {\n  " +
         std::string(kRunningJobs) + "\n}\n\n" + std::string(kBashEnd);
}

}  // namespace launcher
