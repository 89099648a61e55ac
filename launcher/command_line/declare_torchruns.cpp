#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include "launcher/command_line/declare_options.h"
#include "launcher/command_line/option_table.h"
#include "launcher/command_line/usage_error.h"

namespace launcher {
namespace {

constexpr int kMostWholeSeconds = 1'000'000'000;

// torchrun strips blanks as well. Quotes around the whole list come from YAML files, where a shell would remove them.
std::string without_quotes(std::string text) {
  const auto strip = [&text] {
    const std::size_t first = text.find_first_not_of(" \t");
    text = first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
  };
  strip();
  const bool is_quoted =
      text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.front() == text.back();
  if (is_quoted) text = text.substr(1, text.size() - 2);
  strip();
  return text;
}

void check_setting(const std::string& name, const std::string& value) {
  constexpr std::array<std::string_view, 5> kSeconds = {"close_timeout", "heartbeat_timeout", "keep_alive_interval",
                                                        "read_timeout", "rank"};
  if (std::find(kSeconds.begin(), kSeconds.end(), name) != kSeconds.end()) {
    parse_number("--rdzv_conf " + name, value, 0, kMostWholeSeconds);
  }
  if (name == "store_type" && value != "tcp") {
    throw UsageError("--rdzv_conf store_type: expected tcp, got '" + value + "': ddprun has no store in a file");
  }
}

// torchrun's "k=v,k=v". Only the times for the nodes to meet have an effect.
void read_rendezvous_settings(const std::string& text, Options& options) {
  for (const std::string& part : split_at_commas(without_quotes(text))) {
    const std::size_t equals = part.find('=');
    const std::string name = without_quotes(part.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : without_quotes(part.substr(equals + 1));
    if (name.empty() || value.empty()) {
      throw UsageError("--rdzv_conf: expected K=V,..., such as timeout=600, got '" + part + "'");
    }
    check_setting(name, value);
    const bool is_last_call = name == "last_call_timeout";
    if (name != "timeout" && name != "join_timeout" && !is_last_call) continue;
    (is_last_call ? options.elastic.last_call : options.join_timeout) = parse_seconds("--rdzv_conf " + name, value);
  }
}

// `null` is torchrun's default. Its other handlers write by Python's logging.
void check_event_handler(const std::string& name) {
  if (name == "null" || name == "dynamic_rendezvous") return;
  throw UsageError("--event_log_handler: expected null, got '" + name +
                   "': ddprun runs no handlers of Python; --events FILE writes the events of the job");
}

void check_logs_specs(const std::string& name) {
  if (name == "default") return;
  throw UsageError("--logs_specs: expected default, got '" + name +
                   "': ddprun runs no plug-ins of Python; see --log_dir, --redirects and --tee");
}

void declare_completion(OptionTable& table, Options& options) {
  const auto print = [&options](const char* shell) {
    return [&options, shell] {
      options.mode = Options::Mode::kGenerate;
      options.generated = shell;
    };
  };
  const auto refuse = [] {
    throw UsageError("--print_completion tcsh: ddprun has completions for bash, zsh and fish only");
  };
  table.command("--print_completion",
                {{"bash", print("bash")}, {"zsh", print("zsh")}, {"fish", print("fish")}, {"tcsh", refuse}},
                "Print the completion for a shell, as --generate does; there is none for tcsh");
}

}  // namespace

void declare_torchruns(OptionTable& table, Options& options) {
  const std::string nothing = "Accepted; there is nothing to choose here";
  table.group("Of torchrun and torch.distributed.launch");
  table.text("--rdzv_backend", options.rdzv_backend, "NAME", "static",
             "Several nodes: static, or the same command on each, without --node_rank: c10d, etcd");
  table.text("--rdzv_endpoint", options.rdzv_endpoint, "HOST[:PORT]", "none",
             "Several nodes: another way to give --master_addr and --master_port");
  table.parsed(
      "--rdzv_conf", [&](const std::string& text) { read_rendezvous_settings(text, options); }, "K=V,...", "none",
      "timeout or join_timeout is --join_timeout, last_call_timeout --last_call; others have no effect");
  table.text("--log_line_prefix_template", options.line_prefix_template, "TEMPLATE", "none",
             "torchrun's form of --prefix, with ${role_name}, ${rank}, ${local_rank} and ${hostname}");
  table.parsed(
      "--shutdown_timeout",
      [&](const std::string& text) {
        options.shutdown_timeout = std::chrono::seconds(parse_number("--shutdown_timeout", text, 0, kMostWholeSeconds));
      },
      "SECONDS", "--grace", "Another name of --grace, in whole seconds");
  table.parsed(
      "--monitor_interval", [](const std::string& text) { parse_seconds("--monitor_interval", text); }, "SECONDS", "",
      nothing + ": ranks are watched without polling");
  table.choice("--start_method", {{"spawn", [] {}}, {"fork", [] {}}, {"forkserver", [] {}}}, nothing);
  table.parsed("--event_log_handler", check_event_handler, "null", "", nothing + "; see --events");
  table.parsed("--logs_specs", check_logs_specs, "default", "", nothing);
  table.accepted_flag("--use_env", "Accepted: ranks always get their numbers in the environment");
  table.group("Information");
  declare_completion(table, options);
}

}  // namespace launcher
