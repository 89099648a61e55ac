#include "launcher/options/foreign_options.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "launcher/options/command_line.h"
#include "launcher/options/foreign_arguments.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Treatment = ForeignOption::Treatment;
using Words = std::vector<std::string>;

Options taken(const Words& arguments) {
  const auto result = parse_command_line(arguments);
  if (const auto* exit = std::get_if<ExitRequest>(&result)) FAIL("refused: " << exit->text);
  return std::get<Options>(result);
}

std::string refused_text(const Words& arguments) {
  const auto result = parse_command_line(arguments);
  if (std::holds_alternative<Options>(result)) FAIL("accepted");
  return std::get<ExitRequest>(result).text;
}

Words parts_of(const std::string& text, char separator) {
  Words words{""};
  for (const char c : text) {
    if (c == separator) {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  return text.empty() ? Words{} : words;
}

// A value that the word of a table takes.
std::string example_of(const std::string& pattern, const ForeignOption& option) {
  if (pattern == "NAME=VALUE") return "A=1";
  if (pattern == "N") return option.ddprun_text.find("node_rank") == std::string_view::npos ? "3" : "0";
  const std::string first = parts_of(pattern, '|').front();
  if (const auto colon = first.find(":N:"); colon != std::string::npos)
    return first.substr(0, colon) + ":3:" + first.substr(colon + 3);
  const std::string here(option.ddprun_text);
  const bool is_placeholder =
      std::isupper(static_cast<unsigned char>(first.front())) != 0 && pattern.find('|') == std::string::npos;
  if (!is_placeholder) return first;
  if (here.find("--gpus") == 0 || here.find("--stdin") == 0) return "0";
  if (option.treatment == Treatment::kRefused) return "some";
  if (here.find("_port") != std::string::npos || here.find("_restarts") != std::string::npos) return "3";
  return "some";
}

Words example_line(const ForeignOption& option, const std::string& name) {
  Words words{name};
  for (const std::string& pattern : parts_of(std::string(option.values), ' '))
    words.push_back(example_of(pattern, option));
  return words;
}

Words before_program(Words words) {
  words.insert(words.end(), {"./program", "--its", "-v"});
  return words;
}

TEST_CASE("ForeignOptions: each row of the table is what its words become on the command line") {
  int checked = 0;
  for (const ForeignOption& option : foreign_options()) {
    for (const std::string& name : parts_of(std::string(option.names), ',')) {
      const Words words = before_program(example_line(option, name));
      CAPTURE(words);
      ++checked;
      if (option.treatment == Treatment::kSame) continue;  // checked below
      if (option.treatment == Treatment::kRefused) {
        const std::string text = refused_text(words);
        CHECK_THAT(text, ContainsSubstring(name + " is an option of " + launcher_names(option) +
                                           ", not of ddprun: " + std::string(option.ddprun_text)));
        continue;
      }
      const auto result = parse_command_line(words);
      if (const auto* exit = std::get_if<ExitRequest>(&result)) {
        CHECK(exit->text.starts_with("ddprun 0"));  // --version
        continue;
      }
      const auto& options = std::get<Options>(result);
      CHECK(options.program == Words{"./program", "--its", "-v"});
      const bool is_ignored = option.treatment == Treatment::kIgnored;
      CHECK(options.remarks.size() == (is_ignored ? 1U : 0U));
      if (is_ignored && !options.remarks.empty())
        CHECK_THAT(options.remarks[0], ContainsSubstring(" is ignored: " + std::string(option.ddprun_text)));
      CHECK(options.own_arguments.size() ==
            (option.treatment == Treatment::kTranslated
                 ? static_cast<std::size_t>(std::count(option.ddprun_text.begin(), option.ddprun_text.end(), '\n')) + 1
                 : 0U));
    }
  }
  CHECK(checked > 200);
}

TEST_CASE("ForeignOptions: what is the same there is an option of ddprun") {
  const std::string help = std::get<ExitRequest>(parse_command_line(Words{"--help"})).text;
  for (const ForeignOption& option : foreign_options()) {
    if (option.treatment != Treatment::kSame) continue;
    for (std::string name : parts_of(std::string(option.names), ',')) {
      CAPTURE(name);
      std::string plain = name.substr(name.find_first_not_of('-'));
      std::replace(plain.begin(), plain.end(), '-', '_');
      CHECK((plain == "np" || help.find((plain.size() == 1 ? "-" : "--") + plain) != std::string::npos));
    }
  }
}

TEST_CASE("ForeignOptions: of several rows with one name the last takes any value") {
  const auto options = foreign_options();
  for (const ForeignOption& option : options) {
    if (option.treatment == Treatment::kSame) continue;
    for (const std::string& name : parts_of(std::string(option.names), ',')) {
      const ForeignOption* last = nullptr;
      for (const ForeignOption& other : options) {
        const auto names = parts_of(std::string(other.names), ',');
        const auto is_alike = [&](const std::string& each) {
          return each.substr(each.find_first_not_of('-')) == name.substr(name.find_first_not_of('-'));
        };
        if (std::any_of(names.begin(), names.end(), is_alike)) last = &other;
      }
      CAPTURE(name);
      const bool is_own = name == "--bind-to" || name == "--export" || name == "--display";
      const auto patterns = parts_of(std::string(last->values), ' ');
      const bool takes_any = std::all_of(patterns.begin(), patterns.end(), [](const std::string& pattern) {
        return pattern.find('|') == std::string::npos && std::isupper(static_cast<unsigned char>(pattern.front())) != 0;
      });
      CHECK((is_own || takes_any));
    }
  }
}

TEST_CASE("ForeignOptions: mpirun's words mean what they mean there") {
  CHECK(taken({"-np2", "prog"}).nproc_per_node == 2);
  CHECK(taken({"-np2", "prog"}).counts_all_ranks);
  CHECK(taken({"-np", "2", "prog"}).nproc_per_node == 2);
  CHECK(taken({"--np", "2", "prog"}).counts_all_ranks);
  CHECK(taken({"-hostfile", "file", "prog"}).host_file == "file");
  CHECK(taken({"-machinefile", "file", "prog"}).host_file == "file");
  CHECK(taken({"-f", "file", "prog"}).host_file == "file");
  CHECK(taken({"-bind-to", "none", "prog"}).binding == Options::Binding::kNone);
  CHECK(taken({"-bind-to", "core", "prog"}).binding == Options::Binding::kCore);
  CHECK(taken({"--bind-to", "socket", "prog"}).binding == Options::Binding::kNuma);
  CHECK(taken({"-map-by", "ppr:4:node", "prog"}).nproc_per_node == 4);
  CHECK_FALSE(taken({"-map-by", "ppr:4:node", "prog"}).counts_all_ranks);
  CHECK(taken({"--map-by", "ppr:4:node:PE=2", "prog"}).nproc_per_node == 4);
  CHECK_THAT(refused_text({"--map-by", "ppr:4:socket:pe=2", "prog"}), ContainsSubstring("--nproc_per_node=N"));
  CHECK(taken({"--map-by", "ppr:x:node:PE=2", "prog"}).remarks.size() == 1U);
  CHECK(taken({"-map-by", "slot", "prog"}).remarks.empty());
  CHECK(taken({"-genv", "A", "1", "-genv", "B", "x y", "prog"}).exported == Words{"A=1", "B=x y"});
  CHECK(taken({"-genvlist", "A,B", "prog"}).exported == Words{"A", "B"});
  CHECK(taken({"-mca", "plm_rsh_agent", "my ssh", "prog"}).ssh.command == "my ssh");
  CHECK(taken({"--mca", "btl_tcp_if_include", "eth0", "prog"}).interface == "eth0");
  CHECK(taken({"-mca", "pml", "ob1", "-mca", "btl", "self", "-n", "2", "prog"}).remarks ==
        Words{"-mca pml ob1 and -mca btl self are ignored: it sets up Open MPI, which ddprun does not use"});
  CHECK(taken({"--tag-output", "--allow-run-as-root", "--oversubscribe", "prog"}).remarks.empty());
  CHECK(taken({"-p", "22", "prog"}).ssh.port == 22);
  CHECK(taken({"-p22", "prog"}).ssh.port == 22);
  CHECK(taken({"--gloo", "prog"}).remarks.empty());
  CHECK(taken({"--timestamp-output", "prog"}).prefix == "{time} [{rank}] ");
  CHECK(taken({"--enable_each_rank_log", "logs", "prog"}).log_folder == "logs");
  CHECK(taken({"--ntasks-per-node=4", "prog"}).nproc_per_node == 4);
  CHECK(taken({"-vv", "prog"}).remarks.size() == 1U);
  CHECK(taken({"-timeout", "5", "-wdir", "/tmp", "prog"}).working_folder == "/tmp");
}

TEST_CASE("ForeignOptions: ddprun's own names and the program's arguments are left alone") {
  CHECK(taken({"-n", "2", "prog", "--mca", "a", "b", "-map-by", "slot"}).program ==
        Words{"prog", "--mca", "a", "b", "-map-by", "slot"});
  CHECK(taken({"-m", "by"}).module);
  CHECK(taken({"-x", "mca=1", "prog"}).exported == Words{"mca=1"});
  CHECK(taken({"-xA=1", "prog"}).exported == Words{"A=1"});
  CHECK(taken({"-Hlocalhost:2", "prog"}).hosts == "localhost:2");
  CHECK(taken({"--export=A=1", "prog"}).exported == Words{"A=1"});
  CHECK(taken({"--export=ALL", "prog"}).exported.empty());
  CHECK(taken({"--", "--mca"}).program == Words{"--mca"});
  CHECK(taken({"--gpus", "0,1", "prog"}).gpus == Words{"0", "1"});
}

TEST_CASE("ForeignOptions: a value that is missing or cannot be right is said") {
  CHECK_THAT(refused_text({"-genv", "A"}), ContainsSubstring("-genv needs a value: -genv NAME VALUE"));
  CHECK_THAT(refused_text({"--mca"}), ContainsSubstring("--mca needs a value"));
  CHECK_THAT(refused_text({"--npernode", "x", "prog"}), ContainsSubstring("--npernode: expected a number, got 'x'"));
  CHECK_THAT(refused_text({"--npernode=x", "prog"}), ContainsSubstring("--npernode: expected a number, got 'x'"));
  CHECK_THAT(refused_text({"--stdin", "9x", "prog"}), ContainsSubstring("--stdin"));
  CHECK_THAT(refused_text({"--nosuchoption", "prog"}), ContainsSubstring("unknown option --nosuchoption"));
  CHECK_THAT(refused_text({"-Q", "prog"}), ContainsSubstring("unknown option -Q"));
  CHECK_THAT(refused_text({"-lx", "prog"}), ContainsSubstring("unknown option -lx"));
  CHECK_THAT(refused_text({"-np", "./prog"}), ContainsSubstring("is the value missing"));
  CHECK_THAT(refused_text({"-p", "high", "prog"}), ContainsSubstring("--ssh_port=N; srun's partition"));
}

TEST_CASE("ForeignOptions: a long name after one dash is not taken for a letter with its value") {
  for (const char* name : {"-profile", "-pmi-address", "-skip-launch-node", "-ckpoint", "-mixed"})
    CHECK_THAT(refused_text({name, "prog"}), ContainsSubstring(std::string("unknown option ") + name));
  CHECK(taken({"-K1", "prog"}).remarks.empty());
  CHECK(taken({"-genv", "A=1", "-env", "B", "2", "prog"}).exported == Words{"A=1", "B=2"});
}

TEST_CASE("ForeignOptions: several programs are answered with a script, unless they stand behind --") {
  CHECK_THAT(refused_text({"-n", "2", "./a", ":", "-n", "3", "./b"}), ContainsSubstring("choose by the variable RANK"));
  CHECK(taken({"-n", "2", "--", "./a", ":", "-n", "3", "./b"}).program == Words{"./a", ":", "-n", "3", "./b"});
  CHECK(taken({"-n", "2", "./a", ":", "x", "y"}).program.size() == 4U);
}

TEST_CASE("ForeignOptions: the page has a table for each launcher, with every option in it") {
  const std::string page = foreign_options_page();
  for (const ForeignOption& option : foreign_options()) {
    for (const std::string& name : parts_of(std::string(option.names), ','))
      CHECK_THAT(page, ContainsSubstring("`" + name));
  }
  for (const std::string& line : parts_of(page, '\n')) {
    if (!line.starts_with("| `")) continue;
    CAPTURE(line);
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    CHECK(bars == 4U);
  }
}

}  // namespace
}  // namespace launcher
