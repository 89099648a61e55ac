#include <CLI/App.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/joined.h"
#include "launcher/options/generated_texts.h"
#include "launcher/options/roff.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/version.h"

namespace launcher {
namespace {

// Texts in which the words between backquotes are bold.
std::string marked(ExitStatus status) {
  return "`" + std::to_string(to_int(status)) + "`";
}

std::vector<std::string> manual_description() {
  return {
      "`ddprun` starts one process per rank of a distributed program, gives each the environment that torchrun gives, "
      "hosts the store at which the ranks meet, and ends them together. PROGRAM is any program: an executable file, a "
      "Python file (run with `python3 -u`), or with `-m` a Python module.",
      "Options come before PROGRAM. Everything after it belongs to the program and is passed on byte for byte; "
      "nothing is expanded. With `--` the next argument is PROGRAM, whatever it looks like.",
      "When a rank fails, the others are asked to stop and after `--grace` killed; what failed first is reported on "
      "standard error. However `ddprun` ends, no process that the ranks started is left, unless "
      "`--keep_daemons` asks for that.",
  };
}

std::vector<Entry> variables_of_ddprun() {
  return {
      {"`PYTHON_EXEC`",
       "The interpreter for Python programs instead of the `python3` of the virtual environment that ddprun is "
       "installed in, or of PATH"},
      {"`CUDA_VISIBLE_DEVICES`", "The GPUs that `-n gpu`, `-n auto` and `--virtual_local_rank` count"},
      {"`TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`", "torchrun's template of prefixes, where `--prefix` is not given"},
      {"`TMPDIR`", "Folder for error files, and for log files without `--log_dir`"},
  };
}

std::vector<Entry> manual_examples() {
  return {
      {"ddprun -n 8 ./train --lr 0.1", "8 ranks of a program on this machine."},
      {"ddprun -n gpu train.py", "One rank of a Python program for each GPU."},
      {"ddprun --gpus 2,4 --log_dir logs --tee 3 ./train",
       "Two ranks on two of the GPUs, their output shown and kept in files."},
      {"ddprun --nnodes 2 --node_rank 0 --master_addr host0 -n 8 ./train",
       "16 ranks on two machines; on the other one with `--node_rank 1`."},
      {"ddprun -n 8 --dry_run ./train", "What would be started, and with which variables."},
  };
}

std::vector<std::string> related_pages() {
  return {"mpirun(1)", "nohup(1)", "timeout(1)", "cgroups(7)", "signal(7)"};
}

// Makes the words before the first bracket bold: "ddprun [OPTIONS] [--] PROGRAM".
std::string usage_line(const std::string& usage) {
  const std::size_t end = std::min(usage.find(" ["), usage.size());
  return roff_bold(usage.substr(0, end)) + roff_escaped(usage.substr(end)) + "\n";
}

std::string synopsis(const std::string& usage) {
  std::string lines = usage_line(usage);
  for (const Subcommand& subcommand : subcommands()) {
    for (const SubcommandForm& form : subcommand.forms)
      lines += ".br\n" + usage_line("ddprun " + form.usage(subcommand.word));
  }
  return lines;
}

std::string paragraphs(const std::vector<std::string>& texts) {
  return joined(texts, ".PP\n", roff_prose);
}

std::string entries(const std::vector<Entry>& list) {
  std::string lines;
  for (const Entry& entry : list) {
    lines += ".TP\n" + roff_term(entry.term) + "\n" + roff_prose(without_links(entry.meaning) + ".");
  }
  return lines;
}

std::string usage_of(const ShownOption& option) {
  const std::string text = joined(option.names, ", ", roff_bold);
  if (option.value.empty()) return text;
  const std::string value = roff_italic(option.value);
  return text + (option.value_may_be_missing ? "[=" + value + "]" : " " + value);
}

std::string entry_of(const ShownOption& option) {
  const std::string more = option.details.empty() ? "" : ". " + without_links(option.details);
  const std::string text = ".TP\n" + usage_of(option) + "\n" + roff_prose(option.meaning + more);
  if (option.variable.empty()) return text;
  return text + ".br\nDefault: " + roff_escaped(option.fallback) + "; variable: " + roff_bold(option.variable) + "\n";
}

std::string subcommand_entry(const Subcommand& subcommand, const std::string& options) {
  std::string lines;
  for (const SubcommandForm& form : subcommand.forms)
    lines.append(lines.empty() ? ".TP\n" : ".TQ\n").append(usage_line("ddprun " + form.usage(subcommand.word)));
  lines += roff_prose(subcommand.meaning + (subcommand.meaning.ends_with('.') ? "" : "."));
  lines += ".RS\n.TP\n" + roff_italic("JOB") + "\n" + roff_prose(subcommand.job);
  return lines + options + ".RE\n.IP\n" + roff_prose("Exit status: " + subcommand.exit_status);
}

std::string examples() {
  std::string lines;
  for (const Entry& example : manual_examples()) {
    lines += ".TP\n" + roff_bold(example.term) + "\n" + roff_prose(example.meaning);
  }
  return lines;
}

// Makes the name in "mpirun(1)" bold, because man's readers turn such names into links.
std::string related() {
  return joined(related_pages(), ",\n",
                [](const std::string& page) {
                  const std::size_t bracket = page.find('(');
                  return roff_bold(page.substr(0, bracket)) + page.substr(bracket);
                }) +
         "\n";
}

}  // namespace

std::vector<Entry> variables_of_ranks() {
  return {
      {"`RANK`, `WORLD_SIZE`", "The rank's number in the whole job, and how many there are"},
      {"`LOCAL_RANK`, `LOCAL_WORLD_SIZE`", "The same on this node"},
      {"`GROUP_RANK`, `GROUP_WORLD_SIZE`", "The node's number, and how many nodes there are"},
      {"`ROLE_NAME`, `ROLE_RANK`, `ROLE_WORLD_SIZE`", "`--role`, and the same among the ranks of this role"},
      {"`MASTER_ADDR`, `MASTER_PORT`", "Where the store is; with `--store_proxy all`, where this node's proxy is"},
      {"`DDPRUN_STORE`, `DDPRUN_STORE_PROXY`",
       "On nodes without the store: its `HOST:PORT`, and that of the node's "
       "[proxy](many-nodes.md#one-connection-per-node)"},
      {"`GLOO_SOCKET_IFNAME`, `NCCL_SOCKET_IFNAME`",
       "With `--iface`, and where several nodes could take [another interface](many-nodes.md#which-network), unless "
       "set; NCCL's with the `=` that means exactly that name"},
      {"`TORCHELASTIC_USE_AGENT_STORE`",
       "`True`: ddprun hosts the store, and every rank is its client; `False` with `--store rank0`"},
      {"`TORCHELASTIC_RUN_ID`", "`--rdzv_id`"},
      {"`TORCHELASTIC_RESTART_COUNT`, `TORCHELASTIC_MAX_RESTARTS`", "Restarts so far, and `--max_restarts`"},
      {"`TORCHELASTIC_SIGNALS_TO_HANDLE`", "The signals to ddprun that stop the job"},
      {"`TORCHELASTIC_ERROR_FILE`",
       "Where a rank may write why it fails: `{\"message\": \"...\", \"timestamp\": SECONDS}`"},
      {"`TORCHELASTIC_TIMER_FILE`",
       "Where ddprun was started with `TORCHELASTIC_ENABLE_FILE_TIMER=1`: the named pipe of the "
       "[file timer](launcher.md#file-timer)"},
      {"`CUDA_VISIBLE_DEVICES`", "With `--gpus` or `--virtual_local_rank`; else as in the environment of ddprun"},
      {"`TORCH_NCCL_ASYNC_ERROR_HANDLING`", "1, unless set"},
      {"`DDPRUN_PROGRESS_FD`",
       "Number of the descriptor of the rank's [progress page](watching.md), where the kernel has such memory"},
      {"`DDPRUN_TIMELINE_FD`",
       "Number of the descriptor of the memory for the rank's part of a [timeline](watching.md#timeline), which may be "
       "asked for at any time"},
      {"`DDPRUN_STACK_SIGNAL`",
       "Number of the signal with which ddprun asks a rank for its [stack](watching.md#when-it-hangs)"},
      {"`OMP_NUM_THREADS`",
       "Usable CPUs (affinity and the quota of cgroups v1 and v2) for each rank of this node, at least 1, unless set; "
       "ddprun says so in one line"},
  };
}

std::vector<Entry> exit_statuses() {
  return {
      {marked(ExitStatus::kSuccess), "Every rank ended with 0, perhaps after ddprun received a signal to stop"},
      {"`1` to `255`, a rank's",
       "Of the rank that failed first, also where ddprun received a signal to stop or a timeout expired afterwards; "
       "where `--max_restarts` was used up, of the last attempt"},
      {marked(ExitStatus::kSignalBase) + " + `N`",
       "The rank that failed first was killed by signal N; or ddprun received signal N to stop, and a rank ended "
       "neither with 0 nor with " +
           marked(ExitStatus::kSavedAndStopped)},
      {marked(ExitStatus::kSavedAndStopped),
       "ddprun received a signal to stop, and a rank ended with this status (saved and stopped), all others with it or "
       "with 0: no failure. Without such a signal it is a failure like any other"},
      {marked(ExitStatus::kTimeout),
       "`--timeout` or `--start_timeout` expired (on any node) and no rank had failed before; `--on_hang stop`, and no "
       "rank made progress; or the nodes did not all arrive in time"},
      {"`1`", "Of several nodes: the launcher of a node was killed or frozen, or its machine cannot be reached"},
      {marked(ExitStatus::kLauncherError),
       "ddprun itself failed: bad option, a host of `-H` that cannot be reached, nodes that were started with "
       "different "
       "options, an answer (`--help`, `--check`, ...) that cannot be written, port in use, output lost on a full disk, "
       "by a closed standard output, or dropped because no process read it"},
      {marked(ExitStatus::kNotExecutable), "PROGRAM cannot be executed; nothing was started"},
      {marked(ExitStatus::kNotFound), "There is no such PROGRAM; nothing was started"},
  };
}

std::string manual_page(const OptionTable& table) {
  const TextBody body =
      text_body(table, {.group = [](const ShownGroup& group) { return ".SS " + roff_escaped(group.title) + "\n"; },
                        .option = [](const ShownOption& option, const auto&) { return entry_of(option); },
                        .subcommand = subcommand_entry});
  const std::string version = "ddprun " + roff_escaped(kDdprunVersion);
  return ".\\\" Printed by \"ddprun --generate man\": made of the table of its options.\n"
         ".TH DDPRUN 1 \"" +
         std::string(kReleaseDate) + "\" \"" + version +
         "\" \"User Commands\"\n"
         ".SH NAME\nddprun \\- start the processes of a distributed program and end them together\n"
         ".SH SYNOPSIS\n" +
         synopsis(table.app().get_name()) + ".SH DESCRIPTION\n" + paragraphs(manual_description()) + ".SH OPTIONS\n" +
         roff_prose(
             "In names - and _ are the same, and --name VALUE is --name=VALUE. The last of several equal options "
             "counts. "
             "An option that is not given is taken from its variable, where that is set and not empty.") +
         body.options + ".SH SUBCOMMANDS\n" +
         roff_prose(
             "As the first argument these words are for ddprun itself. A program of such a name is started by its "
             "path: "
             "`ddprun ./status`.") +
         body.subcommands +
         ".SH ENVIRONMENT\n"
         ".SS Of each rank\n" +
         roff_prose("All of the environment of ddprun, and:") + entries(variables_of_ranks()) + ".SS Of ddprun\n" +
         roff_prose("The variables of the options, and:") + entries(variables_of_ddprun()) + ".SH EXIT STATUS\n" +
         entries(exit_statuses()) + ".PP\n" +
         roff_prose(
             "With `--exit_code torchrun` each status that comes from the ranks or from a signal is 1, but for 0.") +
         ".SH EXAMPLES\n" + examples() + ".SH SEE ALSO\n" + related();
}

}  // namespace launcher
