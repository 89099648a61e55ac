#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/suggestion.h"
#include "launcher/options/usage_error.h"
#include "launcher/os/system/is_one_of.h"

namespace launcher {
namespace {

constexpr int kMaxWholeSeconds = 1'000'000'000;

// torchrun removes blanks as well. Quotes around the whole list come from YAML files, where no shell removes them.
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

bool is_boolean_word(std::string value) {
  constexpr std::array<std::string_view, 10> kValues = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  return is_one_of(kValues, value);
}

// Settings without effect must still have a valid value. Settings that would encrypt the connection are refused.
void check_setting(const std::string& name, const std::string& value) {
  constexpr std::array<std::string_view, 6> kNumbers = {
      "close_timeout", "heartbeat_timeout", "keep_alive_interval", "keep_alive_max_attempt", "rank", "read_timeout"};
  constexpr std::array<std::string_view, 6> kCertificates = {"ca_cert", "cacert",   "cert",
                                                             "key",     "ssl_cert", "ssl_cert_key"};
  if (is_one_of(kNumbers, name)) parse_number("--rdzv_conf " + name, value, 0, kMaxWholeSeconds);
  if (name == "cas_backoff_max_seconds") parse_seconds("--rdzv_conf " + name, value);
  if (name == "is_host" && !is_boolean_word(value)) {
    throw UsageError("--rdzv_conf is_host: expected true or false, got '" + value + "'");
  }
  if (name == "store_type" && value != "tcp") {
    throw UsageError("--rdzv_conf store_type: expected tcp, got '" + value + "': ddprun has no store in a file");
  }
  if (name == "protocol" && value != "http") {
    throw UsageError("--rdzv_conf protocol: expected http, got '" + value + "': ddprun speaks no TLS with etcd");
  }
  if (is_one_of(kCertificates, name)) {
    throw UsageError("--rdzv_conf " + name + ": ddprun speaks no TLS with etcd; name a port with http, without " +
                     name);
  }
}

// torchrun ignores unknown settings, so scripts may have them. ddprun prints a note instead of an error.
void note_unknown_setting(const std::string& name, Options& options) {
  const std::vector<std::string> known = {"ca_cert",
                                          "cacert",
                                          "cas_backoff_max_seconds",
                                          "cert",
                                          "close_timeout",
                                          "etcd_prefix",
                                          "heartbeat_timeout",
                                          "is_host",
                                          "join_timeout",
                                          "keep_alive_interval",
                                          "keep_alive_max_attempt",
                                          "key",
                                          "last_call_timeout",
                                          "protocol",
                                          "rank",
                                          "read_timeout",
                                          "ssl_cert",
                                          "ssl_cert_key",
                                          "store_type",
                                          "timeout"};
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string nearest = nearest_name(name, known);
  options.notes.push_back("--rdzv_conf " + name + " has no effect: there is no such setting" +
                          (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

// torchrun's format "k=v,k=v". Only the timeouts for the rendezvous have an effect.
void read_rendezvous_settings(const std::string& text, Options& options) {
  for (const std::string& part : split_at_commas(without_quotes(text))) {
    const std::size_t equals = part.find('=');
    const std::string name = without_quotes(part.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : without_quotes(part.substr(equals + 1));
    if (name.empty() || value.empty() || name.find_first_of("'\"") != std::string::npos) {
      throw UsageError("--rdzv_conf: expected K=V,..., such as timeout=600, got '" + part + "'");
    }
    check_setting(name, value);
    note_unknown_setting(name, options);
    const bool is_last_call = name == "last_call_timeout";
    if (name != "timeout" && name != "join_timeout" && !is_last_call) continue;
    (is_last_call ? options.elastic.last_call : options.join_timeout) = parse_seconds("--rdzv_conf " + name, value);
  }
}

// `null` is torchrun's default. Its other handlers write to Python's logging.
void check_event_handler(const std::string& name) {
  if (name == "null" || name == "dynamic_rendezvous") return;
  throw UsageError("--event_log_handler: expected null, got '" + name +
                   "': ddprun does not run Python handlers; --events FILE writes the events of the job");
}

void check_logs_specs(const std::string& name) {
  if (name == "default") return;
  throw UsageError("--logs_specs: expected default, got '" + name +
                   "': ddprun runs no plug-ins of Python; see --log_dir, --redirects and --tee");
}

void check_start_method(const std::string& name) {
  if (name == "spawn" || name == "fork" || name == "forkserver") return;
  throw UsageError("--start_method: expected spawn, fork or forkserver, got " + quoted_value(name));
}

// The backends of several nodes as a text: "static, with MIN:MAX c10d".
std::string backend_text() {
  Options options;
  options.nnodes = 2;
  std::string text(find_rendezvous(options)->name);
  options.elastic.min_nodes = 1;
  return text.append(", with MIN:MAX ").append(find_rendezvous(options)->name);
}

void declare_accepted(OptionTable& table) {
  const std::string nothing = "Accepted without effect";
  table.accepted(torchrun_option({"--monitor_interval SECONDS", nothing + ": ranks are watched without polling"}),
                 [](const std::string& text) { parse_seconds("--monitor_interval", text); });
  table.accepted(torchrun_option({"--start_method spawn|fork|forkserver", nothing}), check_start_method);
  table.accepted(torchrun_option({"--event_log_handler null", nothing + "; see `--events`"}), check_event_handler);
  table.accepted(torchrun_option({"--logs_specs default", nothing}), check_logs_specs);
  table.accepted_flag(
      torchrun_option({"--use_env", "Accepted without effect: ranks always get their numbers in the environment"}));
}

}  // namespace

void declare_torchruns(OptionTable& table, Options& options) {
  table.group("For compatibility with torchrun and torch.distributed.launch");
  table.text({"--rdzv_backend NAME",
              "Several nodes: `static`, with `--node_rank`; `c10d` or `etcd`, with the same command on each node",
              "[`etcd`](many-nodes.md#a-coordinator-that-can-be-replaced) is also called `etcd-v2`.",
              {.unset = backend_text(), .is_torchrun_option = true, .may_be_empty = true}},
             options.rdzv_backend);
  table.text({"--rdzv_endpoint HOST[:PORT]",
              "Several nodes: another way to give `--master_addr` and `--master_port`",
              "The default of PORT is " + std::to_string(Options::kC10dPort) + " with `c10d` and " +
                  std::to_string(Options::kEtcdPort) + " with `etcd`.",
              {.is_torchrun_option = true, .may_be_empty = true}},
             options.rdzv_endpoint);
  table.accepted(
      {"--rdzv_conf K=V,...",
       "`timeout` or `join_timeout` is `--join_timeout`, `last_call_timeout` `--last_call`; others have no effect",
       "A name that torchrun does not know either is reported. TLS for etcd (`protocol=https`, certificates) is "
       "refused. Quotes around the whole list are removed.",
       {.is_torchrun_option = true, .may_be_empty = true}},
      [&](const std::string& text) { read_rendezvous_settings(text, options); });
  table.text({"--log_line_prefix_template TEMPLATE",
              "torchrun's form of `--prefix`, with `${role_name}`, `${rank}`, `${local_rank}` and `${hostname}`",
              "",
              {.is_torchrun_option = true, .may_be_empty = true}},
             options.line_prefix_template);
  table.parsed({"--shutdown_timeout SECONDS",
                "Another name for `--grace`, in whole seconds",
                "If neither is given, TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets the time.",
                {.unset = "--grace", .is_torchrun_option = true}},
               options.shutdown_timeout ? shown_seconds(*options.shutdown_timeout) : "", [&](const std::string& text) {
                 const int seconds = parse_number("--shutdown_timeout", text, 0, kMaxWholeSeconds);
                 options.shutdown_timeout = std::chrono::seconds(seconds);
               });
  declare_accepted(table);
}

}  // namespace launcher
