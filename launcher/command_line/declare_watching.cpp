#include <charconv>
#include <string>

#include "launcher/command_line/declare_options.h"
#include "launcher/command_line/option_table.h"

namespace launcher {
namespace {

// PORT, or ADDRESS:PORT.
void read_metrics_address(const std::string& text, Options& options) {
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? options.metrics_host : text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  options.metrics_host = host;
  options.metrics_port = static_cast<std::uint16_t>(
      parse_number("--metrics_port", colon == std::string::npos ? text : text.substr(colon + 1), 0, 65535));
}

}  // namespace

void declare_watching(OptionTable& table, Options& options) {
  table.group("How it is watched");
  table.seconds("--hang_timeout", options.hang_timeout,
                "Without progress of any rank, report who holds up whom; unless given: 120; 0: never");
  using OnHang = Options::OnHang;
  table.choice("--on_hang",
               {{"report", [&] { options.on_hang = OnHang::kReport; }},
                {"stop", [&] { options.on_hang = OnHang::kStop; }},
                {"restart", [&] { options.on_hang = OnHang::kRestart; }}},
               "What follows on that report: nothing, the end of the job with status 124, or a restart");
  table.parsed(
      "--metrics_port", [&](const std::string& text) { read_metrics_address(text, options); }, "[ADDRESS:]PORT", "none",
      "Serve what each rank is doing as OpenMetrics at /metrics, on loopback unless an address is given");
}

}  // namespace launcher
