// Asks etcd inside the event loop, one request after the other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launcher/nodes/elastic/etcd_api.h"
#include "launcher/nodes/elastic/http_client.h"
#include "launcher/os/system/event_loop.h"

namespace launcher::elastic {

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
  // Forgets what was asked.
  void cancel() { http_.cancel(); }
  // Of the last request, "" when it was answered.
  std::string problem() const { return http_.problem().empty() ? problem_.text : http_.problem(); }
  // There is a host that answers the last request, and no server.
  bool was_refused() const { return http_.was_refused(); }
  // The problem cannot go away on its own.
  bool is_unusable() const { return http_.problem().empty() && problem_.is_lasting; }
  // This machine's address in the network of the server, "" when it was never reached.
  const std::string& own_address() const { return http_.own_address(); }

 private:
  void ask_lease(HttpRequest request, OnLease on_lease);
  void understand(const std::optional<HttpReply>& reply, bool is_good, std::function<void()> then);

  HttpClient http_;
  EtcdProblem problem_;
};

}  // namespace launcher::elastic
