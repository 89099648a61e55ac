#include "launcher/nodes/elastic/etcd_api.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "launcher/os/system/utf8.h"

namespace launcher::elastic {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kAnswer = 2s;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

using nlohmann::json;

constexpr std::size_t kMaxErrorText = 200;
constexpr std::size_t kShownReply = 60;
constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kServerError = 500;
constexpr int kNotImplemented = 501;
// gRPC's status codes, which the gateway returns in addition to those of HTTP.
constexpr int kGrpcNotFound = 5;
constexpr int kGrpcPermissionDenied = 7;
constexpr int kGrpcUnauthenticated = 16;
// The oldest version whose gateway is at /v3.
constexpr int kMinEtcdMajor = 3;
constexpr int kMinEtcdMinor = 4;

json parse_reply(std::string_view text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

const json* member(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// etcd writes 64-bit integers as text, because JavaScript's numbers are too small; a number is accepted, too. A missing
// member means 0, the default of protocol buffers.
std::optional<std::int64_t> integer(const json& object, const char* name) {
  const json* value = member(object, name);
  if (value == nullptr) return 0;
  if (value->is_number_integer()) return value->get<std::int64_t>();
  if (!value->is_string()) return std::nullopt;
  const auto& text = value->get_ref<const std::string&>();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::string> bytes(const json& object, const char* name) {
  const json* value = member(object, name);
  if (value == nullptr) return "";
  return value->is_string() ? from_base64(value->get_ref<const std::string&>()) : std::nullopt;
}

HttpRequest post(const char* path, const json& body) {
  return {.method = "POST", .path = path, .body = body.dump()};
}

json to_json(const EtcdCondition& condition) {
  using Kind = EtcdCondition::Kind;
  json compare = {{"key", to_base64(condition.key)},
                  {"result", condition.kind == Kind::kPresent ? "GREATER" : "EQUAL"}};
  const std::string number = std::to_string(condition.number);
  if (condition.kind == Kind::kLease) {
    compare.update({{"target", "LEASE"}, {"lease", number}});
  } else if (condition.kind == Kind::kRevision) {
    compare.update({{"target", "MOD"}, {"mod_revision", number}});
  } else {
    compare.update({{"target", "CREATE"}, {"create_revision", "0"}});
  }
  return compare;
}

json to_json(const EtcdOperation& operation) {
  json content = {{"key", to_base64(operation.key)}};
  if (operation.kind == EtcdOperation::Kind::kRead) return json::object({{"request_range", content}});
  if (operation.kind == EtcdOperation::Kind::kDelete) return json::object({{"request_delete_range", content}});
  content["value"] = to_base64(operation.value);
  content["lease"] = std::to_string(operation.lease);
  return json::object({{"request_put", content}});
}

template <typename Items>
json to_list(const Items& items) {
  json list = json::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}

bool add_entries(const json& range, std::map<std::string, EtcdEntry>& found) {
  const json* list = member(range, "kvs");
  if (list == nullptr) return true;
  if (!list->is_array()) return false;
  for (const json& item : *list) {
    const auto key = bytes(item, "key");
    auto value = bytes(item, "value");
    const auto revision = integer(item, "mod_revision");
    const auto lease = integer(item, "lease");
    if (!key || !value || !revision || !lease || key->empty() || *revision <= 0) return false;
    found[*key] = {std::move(*value), *revision, *lease};
  }
  return true;
}

// gRPC's code and message in the gateway's reply about an error.
struct GrpcError {
  std::int64_t code = 0;
  std::string text;
};

std::optional<GrpcError> grpc_error(const HttpReply& reply) {
  if (reply.status == kOk) return std::nullopt;
  const json object = parse_reply(reply.body);
  const auto code = integer(object, "code");
  if (member(object, "code") == nullptr || !code) return std::nullopt;
  for (const char* name : {"message", "error"}) {
    const json* text = member(object, name);
    if (text != nullptr && text->is_string()) {
      return GrpcError{*code, printable(beginning(text->get_ref<const std::string&>(), kMaxErrorText))};
    }
  }
  return std::nullopt;
}

bool is_old(std::string_view version) {
  int major = 0;
  int minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return false;
  return std::pair(major, minor) < std::pair(kMinEtcdMajor, kMinEtcdMinor);
}

}  // namespace

EtcdClient::EtcdClient(EventLoop& loop, const std::string& host, std::uint16_t port)
    : http_(loop, host, port, kAnswer) {}

void EtcdClient::carry_out(const EtcdTransaction& transaction, OnOutcome on_outcome) {
  http_.ask(transaction_request(transaction), [this, done = std::move(on_outcome)](const auto& reply) {
    const auto outcome = reply ? parse_outcome(*reply) : std::nullopt;
    handle_reply(reply, outcome.has_value(), [outcome, done] { done(outcome); });
  });
}

void EtcdClient::ask_lease(HttpRequest request, OnLease on_lease) {
  http_.ask(std::move(request), [this, done = std::move(on_lease)](const auto& reply) {
    const auto lease = reply ? parse_lease(*reply) : std::nullopt;
    handle_reply(reply, lease.has_value(), [lease, done] { done(lease); });
  });
}

void EtcdClient::handle_reply(const std::optional<HttpReply>& reply, bool is_good, std::function<void()> then) {
  if (!reply || is_good) {
    problem_ = {};
    then();
  } else if (lacks_gateway(*reply)) {
    // Asks for the version: another version of etcd needs another message.
    http_.ask(version_request(), [this, first = *reply, then = std::move(then)](const auto& answer) {
      problem_ = gateway_problem(first, answer ? parse_version(*answer) : "");
      then();
    });
  } else {
    problem_ = reply_problem(*reply);
    then();
  }
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t begin = 0; begin < bytes.size(); begin += 3) {
    const std::string_view group = bytes.substr(begin, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8U | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += i <= group.size() ? kDigits[bits >> (18U - 6U * i) & 63U] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t digit = i < text.size() - padding ? kDigits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6U | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) bytes += static_cast<char>(bits >> shift & 255U);
    bits = 0;
  }
  bytes.erase(bytes.size() - padding);
  return bytes;
}

HttpRequest transaction_request(const EtcdTransaction& transaction) {
  return post("/v3/kv/txn", {{"compare", to_list(transaction.conditions)},
                             {"success", to_list(transaction.then)},
                             {"failure", to_list(transaction.otherwise)}});
}

HttpRequest grant_request(std::chrono::seconds time) {
  return post("/v3/lease/grant", {{"TTL", std::to_string(time.count())}});
}

HttpRequest keep_alive_request(std::int64_t lease) {
  return post("/v3/lease/keepalive", {{"ID", std::to_string(lease)}});
}

HttpRequest time_to_live_request(std::int64_t lease) {
  return post("/v3/lease/timetolive", {{"ID", std::to_string(lease)}});
}

HttpRequest version_request() {
  return {.path = "/version"};
}

std::optional<EtcdOutcome> parse_outcome(const HttpReply& reply) {
  EtcdOutcome outcome;
  if (const auto error = grpc_error(reply); error && error->code == kGrpcNotFound) {
    outcome.is_lease_missing = true;
    return outcome;
  }
  const json object = parse_reply(reply.body);
  if (reply.status != kOk || member(object, "header") == nullptr) return std::nullopt;
  if (const json* succeeded = member(object, "succeeded")) {
    if (!succeeded->is_boolean()) return std::nullopt;
    outcome.succeeded = succeeded->get<bool>();
  }
  const json* responses = member(object, "responses");
  if (responses == nullptr) return outcome;
  if (!responses->is_array()) return std::nullopt;
  for (const json& response : *responses) {
    const json* range = member(response, "response_range");
    if (range != nullptr && !add_entries(*range, outcome.found)) return std::nullopt;
  }
  return outcome;
}

std::optional<EtcdLease> parse_lease(const HttpReply& reply) {
  if (const auto error = grpc_error(reply); error && error->code == kGrpcNotFound) return EtcdLease{};
  const json object = parse_reply(reply.body);
  const json* result = member(object, "result");  // the gateway wraps replies of gRPC streams
  const json& content = result != nullptr ? *result : object;
  if (reply.status != kOk || member(content, "header") == nullptr) return std::nullopt;
  const auto id = integer(content, "ID");
  const auto left = integer(content, "TTL");
  if (!id || !left || *id == 0) return std::nullopt;
  return EtcdLease{*id, std::chrono::seconds(std::clamp<std::int64_t>(*left, 0, std::int64_t{1} << 30))};
}

std::string parse_version(const HttpReply& reply) {
  const json object = parse_reply(reply.body);
  const json* version = member(object, "etcdserver");
  if (reply.status != kOk || version == nullptr || !version->is_string()) return "";
  return printable(beginning(version->get_ref<const std::string&>(), kShownReply));
}

bool lacks_gateway(const HttpReply& reply) {
  return reply.status == kNotFound && !grpc_error(reply);
}

EtcdProblem reply_problem(const HttpReply& reply) {
  const auto error = grpc_error(reply);
  const bool asks_who = error ? error->code == kGrpcUnauthenticated || error->code == kGrpcPermissionDenied ||
                                    error->text.find("user name is empty") != std::string::npos
                              : reply.status == kUnauthorized || reply.status == kForbidden;
  if (asks_who) {
    return {
        "it requires a user and a password, which ddprun cannot send: use an etcd without authentication (etcdctl auth "
        "disable)",
        true};
  }
  if (error) return {"it answered: " + error->text, false};
  if (reply.body.find("HTTPS server") != std::string::npos) {
    return {
        "it answers only https on this port, and ddprun uses http: name a port with http (etcd's --listen-client-urls)",
        true};
  }
  const std::string_view text = beginning(reply.body, kShownReply);
  // A temporary error, such as "Bad Gateway" of a proxy whose etcd is still starting.
  const bool is_passing = reply.status >= kServerError && reply.status != kNotImplemented;
  return {"the program that answers there is not etcd 3.4 or newer: status " + std::to_string(reply.status) +
              (text.empty() ? "" : ", '" + printable(text.substr(0, text.find_first_of("\r\n"))) + "'"),
          false, !is_passing};
}

EtcdProblem gateway_problem(const HttpReply& reply, const std::string& version) {
  if (version.empty()) return reply_problem(reply);
  if (is_old(version)) return {"it is etcd " + version + ": ddprun needs etcd 3.4 or newer, for its API v3", true};
  return {"it is etcd " + version + " without the JSON form of its API v3: start it with --enable-grpc-gateway=true",
          true};
}

}  // namespace launcher::elastic
