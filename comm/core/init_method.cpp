#include "comm/core/init_method.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>
#include <string_view>

#include "base/schedulers/launcher_variables.h"

namespace ddp::detail {
namespace {

constexpr int kMaxRanks = 1 << 20;

[[noreturn]] void refuse(const std::string& url, const std::string& why) {
  throw std::invalid_argument("init_process_group: init_method '" + url + "': " + why);
}

int parse_number(const std::string& url, const std::string& name, std::string_view text, int low, int high) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > high) {
    refuse(url, name + " is '" + std::string(text) + "', expected a whole number from " + std::to_string(low) + " to " +
                    std::to_string(high));
  }
  return value;
}

void parse_query(const std::string& url, std::string_view query, InitMethod& method) {
  while (!query.empty()) {
    const std::string_view item = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    if (name == "rank") method.rank = parse_number(url, "rank", value, 0, kMaxRanks);
    if (name == "world_size") method.world_size = parse_number(url, "world_size", value, 1, kMaxRanks);
  }
  if (method.rank.has_value() != method.world_size.has_value() && method.kind != InitMethod::Kind::kEnvironment) {
    refuse(url,
           method.rank ? "rank without world_size: give both or none" : "world_size without rank: give both or none");
  }
}

// "host:29500", "[fe80::1]:29500".
void parse_address(const std::string& url, std::string_view address, InitMethod& method) {
  const size_t colon = address.rfind(':');
  const bool is_bracketed = address.starts_with('[');
  const size_t close = address.rfind(']');
  if (colon == std::string_view::npos || (is_bracketed && (close == std::string_view::npos || colon < close))) {
    refuse(url, "the port is missing: expected tcp://host:port, with brackets around an IPv6 address");
  }
  std::string_view host = address.substr(0, colon);
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) refuse(url, "the host is missing: expected tcp://host:port");
  if (!is_bracketed && host.find(':') != std::string_view::npos) {
    refuse(url, "an IPv6 address needs brackets: tcp://[" + std::string(host) + "]:port");
  }
  method.host = host;
  method.port = static_cast<uint16_t>(parse_number(url, "the port", address.substr(colon + 1), 1, 65535));
}

// A query that gives rank or world size replaces the launcher's variables, except for the local rank.
RankInfo place_of_environment(const InitMethod& method, const EnvironmentLookup& lookup) {
  std::map<std::string, std::string> overrides;
  const LauncherVariables* family = launcher_variables(lookup);
  if (method.rank) overrides[family != nullptr ? family->rank : "RANK"] = std::to_string(*method.rank);
  if (method.world_size)
    overrides[family != nullptr ? family->world_size : "WORLD_SIZE"] = std::to_string(*method.world_size);
  if (method.kind != InitMethod::Kind::kEnvironment) {
    overrides["MASTER_ADDR"] = method.kind == InitMethod::Kind::kTcp ? method.host : method.path;
    overrides["MASTER_PORT"] = std::to_string(method.kind == InitMethod::Kind::kTcp ? method.port : 1);
  }
  return rank_info_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = overrides.find(name);
    return found == overrides.end() ? lookup(name) : std::optional(found->second);
  });
}

}  // namespace

InitMethod parse_init_method(const std::string& url) {
  constexpr std::string_view kExpected = "expected env://, tcp://host:port or file:///path";
  InitMethod method;
  if (url.empty()) return method;
  const size_t separator = url.find("://");
  if (separator == std::string::npos) refuse(url, std::string(kExpected));
  const std::string_view scheme = std::string_view(url).substr(0, separator);
  std::string_view rest = std::string_view(url).substr(separator + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t question = rest.find('?');
  const std::string_view query = question == std::string_view::npos ? std::string_view() : rest.substr(question + 1);
  rest = rest.substr(0, question);
  if (scheme == "env") {
    if (!rest.empty() && rest != "/")
      refuse(url, "expected env:// without an address: MASTER_ADDR and MASTER_PORT give the address");
  } else if (scheme == "tcp") {
    method.kind = InitMethod::Kind::kTcp;
    if (rest.ends_with('/')) rest.remove_suffix(1);
    parse_address(url, rest, method);
  } else if (scheme == "file") {
    method.kind = InitMethod::Kind::kFile;
    if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
    if (!rest.starts_with('/') || rest == "/") {
      refuse(url, "expected the absolute path of a file that all ranks can reach: file:///path");
    }
    method.path = rest;
  } else {
    refuse(url, "unsupported scheme " + std::string(scheme) + "://; " + std::string(kExpected));
  }
  parse_query(url, query, method);
  return method;
}

RankInfo place_for(const InitMethod& method, const std::optional<RankInfo>& given, const EnvironmentLookup& lookup) {
  if (given && (method.rank || method.world_size)) {
    throw std::invalid_argument(
        "init_process_group: the rank is given twice, in rank_info and in init_method's query (?rank=...): "
        "leave one out");
  }
  if (method.kind == InitMethod::Kind::kEnvironment) {
    return given ? *given : place_of_environment(method, lookup);
  }
  if (!given && !method.rank && launcher_variables(lookup) == nullptr) {
    throw std::invalid_argument(
        "init_process_group: init_method has an address, but not the rank of this process: add "
        "?rank=R&world_size=N, set rank_info, or start the program with a launcher (or RANK and WORLD_SIZE)");
  }
  RankInfo info = given ? *given : place_of_environment(method, lookup);
  // The store is the launcher's only if the method names the launcher's own address.
  info.agent_store = info.agent_store && method.kind == InitMethod::Kind::kTcp &&
                     lookup("MASTER_ADDR") == method.host && lookup("MASTER_PORT") == std::to_string(method.port);
  info.master_addr = method.host;
  info.master_port = method.port;
  return info;
}

}  // namespace ddp::detail
