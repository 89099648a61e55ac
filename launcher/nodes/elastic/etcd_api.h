// Requests of etcd's API v3 as JSON, which its gateway takes at /v3 (etcd 3.4 and newer), and their replies. Nothing is
// believed that was not checked. Pure.
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

// Nothing when `text` is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

// A condition on one key: that it does not exist, that it exists, that it belongs to a lease, or that it was last
// written at a revision.
struct EtcdCondition {
  enum class Kind : std::uint8_t { kAbsent, kPresent, kLease, kRevision };
  Kind kind = Kind::kAbsent;
  std::string key{};
  std::int64_t number = 0;  // the lease, or the revision
};

struct EtcdOperation {
  enum class Kind : std::uint8_t { kRead, kWrite, kDelete };
  Kind kind = Kind::kRead;
  std::string key{};
  std::string value{};     // to write
  std::int64_t lease = 0;  // with which it is to be deleted
};

// When all conditions hold, `then` is carried out, else `otherwise`: at once, and as a whole.
struct EtcdTransaction {
  std::vector<EtcdCondition> conditions{};
  std::vector<EtcdOperation> then{};
  std::vector<EtcdOperation> otherwise{};
};

struct EtcdEntry {
  std::string value{};
  std::int64_t revision = 0;  // at which it was last written
  std::int64_t lease = 0;     // 0: none
};

struct EtcdOutcome {
  bool held = false;                         // the conditions
  bool is_lease_missing = false;             // nothing was carried out: a lease to write with does not exist any more
  std::map<std::string, EtcdEntry> found{};  // of the keys that were read, those that exist
};

struct EtcdLease {
  std::int64_t id = 0;
  std::chrono::seconds left{};  // 0: there is no such lease any more
};

HttpRequest transaction_request(const EtcdTransaction& transaction);

HttpRequest grant_request(std::chrono::seconds time);

HttpRequest keep_alive_request(std::int64_t lease);

HttpRequest time_to_live_request(std::int64_t lease);

HttpRequest version_request();

// Nothing when that is not etcd's reply to such a request; reply_problem() says what it is.
std::optional<EtcdOutcome> parse_outcome(const HttpReply& reply);

// To any of the requests for leases.
std::optional<EtcdLease> parse_lease(const HttpReply& reply);

// "3.4.23"; "" when that is not a reply to a version_request().
std::string parse_version(const HttpReply& reply);

// The server knows nothing of /v3. Its version may explain why.
bool lacks_gateway(const HttpReply& reply);

struct EtcdProblem {
  std::string text{};
  bool is_lasting = false;  // it cannot go away on its own
  bool is_foreign = false;  // the server is another program, unless it is something in front of etcd that is not ready
};

// Why `reply` is of no use.
EtcdProblem reply_problem(const HttpReply& reply);

// The same for a server of this version, "" when it did not report one, of which `reply` lacks the gateway.
EtcdProblem gateway_problem(const HttpReply& reply, const std::string& version);

class EtcdClient {
 public:
  // Nothing: there was no answer, or none of etcd's; problem() says why.
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
  // There is a host that answers the last request, and no server.
  bool was_refused() const { return http_.was_refused(); }
  // The problem cannot go away on its own.
  bool is_unusable() const { return http_.problem().empty() && problem_.is_lasting; }
  // Another program answered the last request.
  bool is_foreign() const { return http_.problem().empty() ? problem_.is_foreign : http_.was_other_protocol(); }
  // This machine's address in the network of the server, "" when it was never reached.
  const std::string& own_address() const { return http_.own_address(); }

 private:
  void ask_lease(HttpRequest request, OnLease on_lease);
  void handle_reply(const std::optional<HttpReply>& reply, bool is_good, std::function<void()> then);

  HttpClient http_;
  EtcdProblem problem_;
};

}  // namespace launcher::elastic
