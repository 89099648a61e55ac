// Requests of etcd's API v3 as JSON, for its gateway at /v3 (etcd 3.4 and newer), and their replies. Everything that is
// received is checked. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/nodes/elastic/http_client.h"
#include "launcher/os/system/event_loop.h"

namespace launcher::elastic {

std::string to_base64(std::string_view bytes);

// Returns nothing when `text` is not base64 with padding.
std::optional<std::string> from_base64(std::string_view text);

// A condition on one key: that it does not exist, that it exists, that it belongs to a lease, or that it was last
// written at a revision.
struct EtcdCondition {
  enum class Kind : std::uint8_t { kAbsent, kPresent, kLease, kRevision };
  Kind kind = Kind::kAbsent;
  std::string key{};
  std::int64_t number = 0;  // the ID of the lease, or the revision
};

struct EtcdOperation {
  enum class Kind : std::uint8_t { kRead, kWrite, kDelete };
  Kind kind = Kind::kRead;
  std::string key{};
  std::string value{};     // the value to write
  std::int64_t lease = 0;  // the lease with which etcd deletes the key
};

// If all conditions are true, etcd executes `then`, else `otherwise`, atomically.
struct EtcdTransaction {
  std::vector<EtcdCondition> conditions{};
  std::vector<EtcdOperation> then{};
  std::vector<EtcdOperation> otherwise{};
};

struct EtcdEntry {
  std::string value{};
  std::int64_t revision = 0;  // the revision of the last write
  std::int64_t lease = 0;     // 0: no lease
};

struct EtcdOutcome {
  bool succeeded = false;                    // whether the conditions were true
  bool is_lease_missing = false;             // nothing was executed, as a lease for a write does not exist any more
  std::map<std::string, EtcdEntry> found{};  // those keys of the read operations that exist
};

struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::seconds left{};  // 0: the lease does not exist any more
};

HttpRequest transaction_request(const EtcdTransaction& transaction);

HttpRequest grant_request(std::chrono::seconds time);

HttpRequest keep_alive_request(std::int64_t lease);

HttpRequest time_to_live_request(std::int64_t lease);

HttpRequest version_request();

// Returns nothing when this is not etcd's reply to such a request; reply_problem() then gives the reason.
std::optional<EtcdOutcome> parse_outcome(const HttpReply& reply);

// Parses the reply to a request for a lease.
std::optional<EtcdLease> parse_lease(const HttpReply& reply);

// Returns a version such as "3.4.23"; "" when this is not a reply to version_request().
std::string parse_version(const HttpReply& reply);

// True when the server does not have /v3. Its version may explain why.
bool lacks_gateway(const HttpReply& reply);

struct EtcdProblem {
  std::string text{};
  bool is_lasting = false;  // the problem will not disappear without a change
  // The server is another program, or a proxy in front of etcd that is not ready.
  bool is_foreign = false;
};

// Why `reply` cannot be used.
EtcdProblem reply_problem(const HttpReply& reply);

// Why a reply shows that there is no gateway. `version` is that of the server, or "" when it did not report one.
EtcdProblem gateway_problem(const HttpReply& reply, const std::string& version);

class EtcdClient {
 public:
  // Nothing means that there was no answer, or not one of etcd; problem() gives the reason.
  using OnOutcome = std::function<void(const std::optional<EtcdOutcome>&)>;
  using OnLease = std::function<void(const std::optional<EtcdLease>&)>;

  EtcdClient(EventLoop& loop, const std::string& host, std::uint16_t port);

  void carry_out(const EtcdTransaction& transaction, OnOutcome on_outcome);
  void grant(std::chrono::seconds time, OnLease on_lease) { ask_lease(grant_request(time), std::move(on_lease)); }
  void keep_alive(std::int64_t lease, OnLease on_lease) { ask_lease(keep_alive_request(lease), std::move(on_lease)); }
  void time_to_live(std::int64_t lease, OnLease on_lease) {
    ask_lease(time_to_live_request(lease), std::move(on_lease));
  }
  void cancel() { http_.cancel(); }
  std::string problem() const { return http_.problem().empty() ? problem_.text : http_.problem(); }
  // The host refused the last connection: it is up, but no server listens at the port.
  bool was_refused() const { return http_.was_refused(); }
  // True when the problem will not disappear without a change.
  bool is_unusable() const { return http_.problem().empty() && problem_.is_lasting; }
  // True when another program answered the last request.
  bool is_foreign() const { return http_.problem().empty() ? problem_.is_foreign : http_.was_other_protocol(); }
  // This machine's address in the network of the server; "" if the server was never reached.
  const std::string& own_address() const { return http_.own_address(); }

 private:
  void ask_lease(HttpRequest request, OnLease on_lease);
  void handle_reply(const std::optional<HttpReply>& reply, bool is_good, std::function<void()> then);

  HttpClient http_;
  EtcdProblem problem_;
};

}  // namespace launcher::elastic
